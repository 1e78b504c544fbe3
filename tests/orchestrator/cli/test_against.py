"""`baseline.against` compares an ended campaign with an earlier one, and a budget may bound the ratio."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.wire.messages import Reason, ReasonCode
from orchestrator.cli.budgets import Undecided, conclude, read
from orchestrator.cli.changes import compared_with, earlier_of
from orchestrator.config.home import FarmHome
from orchestrator.db.campaigns import campaigns
from orchestrator.db.scheduling import ingest
from orchestrator.errors import UsageError
from orchestrator.farm import Farm
from orchestrator.manifest.campaign import Campaign
from orchestrator.results.device_noise import DeviceNoise
from orchestrator.results.records import CellRecord
from tests.orchestrator.asked import CPU, asked
from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.stocked import cells, dispatch, new_database, planned, report_devices, result

NIGHTLY = replace(asked(("m",), name="nightly"), against="latest")


@pytest.fixture
def farm(tmp_path: Path) -> Iterator[Farm]:
    """Open a farm whose campaign `nightly` ended with one cell, and whose campaign `open` has not ended."""
    home = FarmHome(tmp_path / "home")
    home.root.mkdir()
    database = new_database(home.root)
    report_devices(database, (CPU,))
    for campaign in (NIGHTLY, asked(("m",), {"litert": {}}, name="open")):
        with database.write() as turn:
            campaigns.add(
                turn, campaign, planned(database, campaign, (CPU,)), campaign.name, "never", datetime.now(UTC)
            )
        if campaign is NIGHTLY:
            (row,) = cells(database)
            message = result(dispatch(database, row.cell_id))
            with database.write() as turn:
                assert ingest.apply(turn, message, datetime.now(UTC)) == "counted"
    database.close()
    with Farm.open(home) as opened:
        yield opened


def against(ref: str, name: str = "nightly") -> Campaign:
    return replace(NIGHTLY, name=name, against=ref)


def test_the_earlier_campaign_is_the_newest_of_the_name_that_has_ended(
    farm: Farm, capsys: pytest.CaptureFixture[str]
) -> None:
    for ref in ("latest", "nightly"):
        earlier = earlier_of(farm, against(ref))
        assert earlier is not None
        assert earlier.name == "nightly"
    assert earlier_of(farm, against("nightly", "another")) is not None
    assert earlier_of(farm, replace(NIGHTLY, against=None)) is None
    assert earlier_of(farm, against("latest", "open")) is None
    assert "no campaign open has ended before this one" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no campaign 'weekly'"):
        earlier_of(farm, against("weekly"))


def slower(cell: CellRecord, factor: float) -> CellRecord:
    """Return the cell measured again, with other times."""
    measured = cell.measurement
    assert measured is not None
    assert measured.latency_ms.p50 is not None
    p50 = factor * measured.latency_ms.p50
    latency = measured.latency_ms.model_copy(update={"p50": p50, "ci95": (0.99 * p50, 1.01 * p50)})
    again = measured.model_copy(update={"latency_ms": latency, "settings": {"processes": "5"}})
    noise = DeviceNoise(0.0, 0.0, 5, "cpu", "2026-03-01T12:00:00+00:00")
    return replace(cell, cell_id=f"again-{factor}", measurement=again, noise=noise)


def test_a_budget_on_the_ratio_is_judged_by_its_interval_and_ends_with_3(
    farm: Farm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    earlier = earlier_of(farm, NIGHTLY)
    assert earlier is not None
    (before,) = farm.reading.cells(earlier.campaign_id)
    budgets = read(["ratio>=0.95"], NIGHTLY.against)
    base = [slower(before, 1.0)]
    monkeypatch.setattr(type(farm.reading), "cells", lambda *_: base)
    for factor, outcome, code in ((1.0, "met", 0), (1 / 0.95, "open", 5), (1.2, "exceeded", 3)):
        now = [slower(before, factor + 1e-9)]
        report = compared_with(farm, earlier, now, as_json=False)
        assert conclude("nightly", now, budgets, tmp_path / "farm.xml", 0, report) == code
        said = capsys.readouterr()
        assert "against nightly of " in said.out
        assert f"(campaign {earlier.campaign_id}):" in said.out
        assert (f"budget ratio>=0.95 {outcome}: m cpu@host-cpu: " in said.err) is (outcome != "met")
        assert (f"::error title=budget::budget ratio>=0.95 {outcome}" in said.err) is (outcome != "met")
        junit = (tmp_path / "farm.xml").read_text()
        assert ('<failure message="exceeded: 0.833' in junit) is (outcome == "exceeded")
        assert ('<failure message="open: 0.95' in junit) is (outcome == "open")
    assert conclude("nightly", base, budgets, None, 0, None) == 5
    assert conclude("nightly", base, budgets, None, 0, None, Undecided.WARN) == 0
    assert "nothing to compare with: there is no earlier campaign" in capsys.readouterr().err


def test_a_reason_is_one_annotation_and_no_command_of_its_own(
    farm: Farm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    (cell,) = farm.reading.cells("nightly")
    reason = Reason(code=ReasonCode.RUNNER_ERROR, text="100%0A of\n ::add-mask::a\r\nb")
    failed = replace(cell, status="failed", reason=reason, measurement=None)
    assert conclude("nightly", [failed], read(["p50<=5ms"]), None, 0) == 3
    note, annotation, _counts = capsys.readouterr().err.splitlines()
    assert note.endswith(": 100%0A of  ::add-mask::a⟨U+000D⟩ b)")
    assert annotation.startswith("::error title=budget::budget p50<=5ms no result: ")
    assert annotation.endswith(": 100%250A of%0A ::add-mask::a%0D%0Ab)")


def test_a_ratio_without_a_campaign_to_compare_with_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no campaign to compare with"):
        read(["ratio>=0.95"])


@pytest.mark.slow
def test_a_campaign_is_compared_with_the_one_of_its_name_before(shell: Shell) -> None:
    shell.write("good.tflite", unary_model())
    shell.write(
        "models.yaml",
        "version: 1\ncampaign: nightly\n"
        "defaults: {measure: {warmup: {runs: 1}, blocks: 3, slice: {seconds: 0.01}}}\n"
        "models: [{id: good, source: good.tflite}]\n"
        "delegates: {cpu: {kind: cpu}}\n"
        "baseline: {against: {campaign: latest}}\n"
        "budgets: [ratio>=0.95]\n",
    )
    first = shell.farm("submit", "models.yaml", "--undecided", "warn")
    assert first.code == 0
    assert "there is nothing to compare" in first.err
    again = shell.farm("submit", "models.yaml")
    assert again.code == 0
    assert "1 reused" in again.err
    assert "1 budget: 1 met" in again.err
    assert "against nightly of " in again.out
