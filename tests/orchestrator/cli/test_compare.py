"""`farm compare --by` over stored, paired ratios; no verdict over a void result."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent.wire.measurement import Quality, Ratio, baseline_id
from orchestrator.db.scheduling import ingest
from tests.orchestrator.asked import CPU, GPU, POCL, asked
from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.stocked import cells, dispatch, new_database, result, stock

VOID = Quality(void=("process 2: swapped while timing", "another model ran"))
BASELINES = {("m", "gpu-0"): ("gpu", "pocl-0"), ("m", "pocl-0"): ("cpu", "host-cpu")}


def fill(shell: Shell, void: str | None = None) -> None:
    """`gpu` on a GPU over itself on PoCL, 2 x, and on PoCL over `cpu`, 4 x, each measured in five blocks."""
    shell.home.mkdir()
    database = new_database(shell.home)
    stock(database, asked(("m",), {"cpu": {}, "gpu": {}}), (CPU, POCL, GPU))
    for row in cells(database):
        message = result(dispatch(database, row.cell_id))
        assert message.measurement is not None
        base = BASELINES.get((row.model, row.target))
        ratio = None
        if base is not None:
            median = 2.0 if row.target == "gpu-0" else 4.0
            ratio = Ratio(
                against="@".join(base), baseline_id=baseline_id(base[0], {}), device_id=base[1],
                median=median, ci95=(0.99 * median, 1.01 * median), blocks=5, seed=1,
            )  # fmt: skip
        quality = VOID if row.target == void else Quality()
        measured = message.measurement.model_copy(update={"ratio": ratio, "quality": quality})
        with database.write() as turn:
            found = ingest.apply(
                turn, message.model_copy(update={"measurement": measured}), datetime.now(UTC)
            )
        assert found == "counted"
    database.close()


def test_what_was_measured_by_blocks_is_compared_by_its_stored_ratio(shell):
    fill(shell)
    for by, values, median, verdict in (
        ("device", "pocl-0,gpu-0", 2.0, "faster"),
        ("device", "gpu-0,pocl-0", 1 / 2, "slower"),
        ("delegate", "cpu,gpu", 4.0, "faster"),
        ("delegate", "gpu,cpu", 1 / 4, "slower"),
    ):
        found = shell.farm("compare", "test", values, "--by", by, "--json").json()
        change = next(c for c in found["changes"] if c["ratio"] is not None)
        assert change["verdict"] == verdict
        assert change["ratio"]["median"] == pytest.approx(median)
        assert change["ratio"]["blocks"] == 5


def test_a_void_result_has_no_verdict_and_keeps_a_gate_shut(shell):
    fill(shell, void="gpu-0")
    asked_for = ("compare", "test", "gpu-0,pocl-0", "--by", "device")
    assert shell.farm(*asked_for).code == 0
    ran = shell.farm(*asked_for, "--fail-on", "regression")
    assert ran.code == 5, "nothing is known of it, so nobody can say that it is no slower"
    said = " ".join(ran.out.split())
    assert "! void" in said
    assert "gpu-0: void: process 2: swapped while timing" in said
    assert "void: 1, without a verdict; farm retry --void measures those again" in said
    assert "1 cell: whether slower is open" in ran.err
    assert shell.farm(*asked_for, "--fail-on", "regression", "--undecided", "warn").code == 0
    found = shell.farm(*asked_for, "--json").json()
    assert (found["counts"]["void"], found["counts"].get("slower", 0)) == (1, 0)
