"""`farm compare --by` over stored, paired ratios; no verdict over a result that was disturbed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent.wire.measurement import Ratio, Trust, baseline_id
from orchestrator.db.write import ingest
from tests.orchestrator.asked import CPU, GPU, POCL, asked
from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.stocked import cells, dispatch, new_database, result, stock

SUSPECT = Trust(verdict="suspect", reasons=("process 2: other programs used 1.2 of 2 CPUs", "drift"))
BASELINES = {("m", "gpu-0"): ("gpu", "pocl-0"), ("m", "pocl-0"): ("cpu", "host-cpu")}


def fill(shell: Shell, doubted: str | None = None) -> None:
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
        trust = SUSPECT if row.target == doubted else Trust(verdict="trusted")
        measured = message.measurement.model_copy(update={"ratio": ratio, "trust": trust})
        with database.write() as turn:
            found = ingest.apply(
                turn, message.model_copy(update={"measurement": measured}), datetime.now(UTC)
            )
        assert found == "counted"
    database.close()


def test_what_was_measured_by_blocks_is_compared_by_its_stored_ratio(shell):
    fill(shell)
    for by, values, median, verdict in (
        ("device", "pocl-0,gpu-0", 1 / 2, "faster"),
        ("device", "gpu-0,pocl-0", 2.0, "slower"),
        ("delegate", "cpu,gpu", 1 / 4, "faster"),
        ("delegate", "gpu,cpu", 4.0, "slower"),
    ):
        found = shell.farm("compare", "test", values, "--by", by, "--json").json()
        change = next(c for c in found["changes"] if c["ratio"] is not None)
        assert change["verdict"] == verdict
        assert change["ratio"]["median"] == pytest.approx(median)
        assert change["ratio"]["blocks"] == 5
        assert found["doubtful"] == 0


def test_a_disturbed_result_has_no_verdict_and_is_named_with_a_count(shell):
    fill(shell, doubted="gpu-0")
    asked_for = ("compare", "test", "gpu-0,pocl-0", "--by", "device")
    ran = shell.farm(*asked_for, "--fail-on", "regression")
    assert ran.code == 0, "nothing is said of it, so it is no regression"
    said = " ".join(ran.out.split())
    assert "? inconclusive" in said
    assert "A suspect: process 2: other programs used 1.2 of 2 CPUs (and 1 more)" in said
    assert "without a verdict: 1 of them, a result is suspect or invalid" in said
    found = shell.farm(*asked_for, "--json").json()
    assert (found["doubtful"], found["counts"].get("slower", 0)) == (1, 0)
    told = Quiet(shell.folder).farm(*asked_for, "--fail-on", "regression")
    assert told.code == 3, "where the user says that this machine is never quiet, it is judged"


class Quiet(Shell):
    """A machine that is never quiet, and whose user said so."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"FARM_JUDGE_SUSPECT": "1"}
