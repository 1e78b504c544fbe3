"""A void figure is shown as such in every form, not reused, and measured again on demand."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agent.wire.measurement import BlockFigure, Quality, Ratio, baseline_id
from orchestrator.cli.show import cell_text
from orchestrator.db.campaigns import steering_requests
from orchestrator.db.engine.sessions import Database
from orchestrator.db.scheduling import ingest
from orchestrator.results.comparison import cell_lines
from orchestrator.results.export import PROVENANCE_COLUMNS, results_csv, results_document
from orchestrator.results.records import CellRecord
from orchestrator.results.wording import measured_text
from orchestrator.site.cell_view import cell_view
from runtime.common.verdict import Grade
from tests.orchestrator.asked import CPU, asked
from tests.orchestrator.cli.records import cell
from tests.orchestrator.stocked import cells, dispatch, planned, result, stock

VOID = Quality(
    void=("swapped while timing", "process 3: another model ran"),
    rounds=52,
    repeated=3,
    facts=("process 2: waves of 3 %",),
    seen=("foreign CPU time", "swap"),
    unseen=("steal time: the kernel does not count it",),
)


def rated(quality: Quality | None) -> CellRecord:
    good = cell("net", "cpu")
    assert good.measurement is not None
    return replace(good, measurement=good.measurement.model_copy(update={"quality": quality}))


def test_every_form_of_a_result_has_its_grade_and_what_it_rests_on() -> None:
    one = rated(VOID)
    (found,) = json.loads(results_document([one]))
    assert found["quality"] == json.loads(VOID.model_dump_json())
    assert (found["grade"], found["grade_reason"], found["allowance"]) == ("void", VOID.void[0], 0.0)
    assert found["half_width"] == pytest.approx(0.05, abs=1e-3)
    assert found["p50_grade"]["grade"] == "void"
    (row,) = csv.DictReader(io.StringIO(results_csv([one])))
    assert tuple(row)[-len(PROVENANCE_COLUMNS) :] == PROVENANCE_COLUMNS
    assert (row["grade"], row["quality.void"]) == ("void", "; ".join(VOID.void))
    assert (row["quality.rounds"], row["quality.repeated"]) == ("52", "3")
    assert (row["quality.seen"], row["quality.unseen"]) == ("foreign CPU time; swap", VOID.unseen[0])
    assert cell_lines(one, None)[2] == f"void: {VOID.void[0]}"
    shown = cell_text(one, [])
    for text in ("void", *VOID.void, *VOID.facts, *VOID.unseen):
        assert text in shown
    view = cell_view(one, None)
    assert view.grade is not None
    assert (view.grade.text, view.grade.tone, view.void) == ("void", "bad", VOID.void[0])
    assert [value for name, value in view.grade.details if name == "void"] == list(VOID.void)
    assert ("measured", "90 samples") in view.grade.details


def test_what_is_not_void_has_its_numbers_and_what_was_not_measured_has_no_grade() -> None:
    known = rated(Quality(facts=("waves",), blocks=4, rounds=28, repeated=2, alternating=True))
    assert cell_lines(known, None)[2] == "fair: known to 5 % (h 5 % + b 0 %)"
    badge = cell_view(known, None).grade
    assert badge is not None
    assert (badge.text, badge.tone) == ("fair ±5 %", "quiet")
    assert ("measured", "4 blocks, by turns; 2 of 28 rounds repeated; 90 samples") in badge.details
    again = rated(Quality(blocks=4, rounds=34, repeated=2, repeated_blocks=1, alternating=True))
    sizes = tuple(BlockFigure(p50_ns=1e6, rounds=rounds) for rounds in (7, 7, 7, 13))
    assert again.measurement is not None
    again = replace(again, measurement=again.measurement.model_copy(update={"blocks": sizes}))
    assert again.measurement is not None
    said = "4 blocks, by turns; 1 of 4 blocks repeated; 2 of 34 rounds (7 to 13 a block) repeated; 90 samples"
    assert measured_text(again.measurement) == said
    (failed,) = json.loads(results_document([replace(cell("net"), status="failed", measurement=None)]))
    assert (failed["grade"], failed["p50_grade"], failed["quality"]) == (None, None, None)


def test_a_void_baseline_voids_the_verdict_of_what_was_measured_with_it() -> None:
    ratio = Ratio(
        against="cpu@host-cpu", baseline_id=baseline_id("cpu", {}), device_id="host-cpu", median=2.0,
        ci95=(1.9, 2.1), blocks=3, seed=1,
    )  # fmt: skip
    other = cell("net", "gpu")
    assert other.measurement is not None
    other = replace(other, measurement=other.measurement.model_copy(update={"ratio": ratio}))
    for quality, verdict in ((VOID, "void"), (None, "faster")):
        found = json.loads(results_document([rated(quality), other]))
        assert (found[1]["grade"], found[1]["ratio"]["verdict"]) == ("fair", verdict)


def deliver(database: Database, quality: Quality) -> None:
    """Store a result of the farm's one cell."""
    (waiting,) = cells(database)
    message = result(dispatch(database, waiting.cell_id), environment=CPU.environment)
    assert message.measurement is not None
    rated = message.measurement.model_copy(update={"quality": quality})
    with database.write() as turn:
        found = ingest.apply(turn, message.model_copy(update={"measurement": rated}), datetime.now(UTC))
    assert found == "counted"


def retried(database: Database, *grades: Grade) -> int:
    (done,) = cells(database)
    with database.write() as turn:
        return steering_requests.retry(
            turn, done.cell_id, datetime.now(UTC), failed_only=False, grades=grades
        )


@pytest.mark.parametrize(
    ("quality", "action", "why"),
    [(VOID, "run", "the last result is void"), (Quality(allowance=0.5), "reuse", "measured")],
)
def test_every_result_is_reused_that_is_not_void(
    database: Database, quality: Quality, action: str, why: str
) -> None:
    stock(database)
    deliver(database, quality)
    (plan,) = planned(database, asked())
    assert plan.action == action
    assert plan.why.startswith(why)


def test_cells_of_a_grade_and_no_other_measured_ones_are_measured_again_on_demand(database: Database) -> None:
    stock(database)
    deliver(database, VOID)
    assert (retried(database), retried(database, "noisy"), retried(database, "void")) == (0, 0, 1)
    (queued,) = cells(database)
    assert queued.state == "queued"
    assert queued.shown_attempt_id is not None, "the result stands until there is a newer one"
    deliver(database, Quality(allowance=0.5))
    assert (retried(database, "void"), retried(database, "void", "noisy")) == (0, 1)
