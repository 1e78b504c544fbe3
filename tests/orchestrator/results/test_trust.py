"""A doubtful figure is shown with its verdict in every form, not reused, and measured again on demand."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agent.wire.measurement import Trust
from orchestrator.cli.details import cell_text
from orchestrator.db.engine.sessions import Database
from orchestrator.db.write import ingest, steering_requests
from orchestrator.policy.preview import AND_SUSPECT
from orchestrator.results.comparison import cell_lines
from orchestrator.results.export import results_csv, results_document
from orchestrator.results.records import CellRecord
from orchestrator.site.cell_view import cell_view
from tests.orchestrator.asked import CPU, asked
from tests.orchestrator.cli.records import cell
from tests.orchestrator.stocked import cells, dispatch, planned, result, stock

SUSPECT = Trust(
    verdict="suspect",
    reasons=("process 2: other programs used 1.2 of 2 CPUs", "process 3: drift: +3%"),
    seen=("foreign CPU time", "swap"),
    unseen=("steal time: the kernel does not count it",),
)


def doubtful(trust: Trust | None = SUSPECT) -> CellRecord:
    good = cell("net", "cpu")
    assert good.measurement is not None
    return replace(good, measurement=good.measurement.model_copy(update={"trust": trust}))


def test_every_form_of_a_result_has_its_trust() -> None:
    one = doubtful()
    (found,) = json.loads(results_document([one]))
    assert found["trust"] == json.loads(SUSPECT.model_dump_json())
    (row,) = csv.DictReader(io.StringIO(results_csv([one])))
    assert row["trust.verdict"] == "suspect"
    assert row["trust.reasons"] == "; ".join(SUSPECT.reasons)
    assert (row["trust.seen"], row["trust.unseen"]) == ("foreign CPU time; swap", SUSPECT.unseen[0])
    assert cell_lines(one, None)[2] == f"⚠ suspect: {SUSPECT.reasons[0]} (and 1 more)"
    shown = cell_text(one, [])
    for text in ("suspect", *SUSPECT.reasons, *SUSPECT.unseen):
        assert text in shown
    badge = cell_view(one, None).trust
    assert badge is not None
    assert (badge.text, badge.tone) == ("suspect", "warn")
    assert [value for name, value in badge.details if name == "because"] == list(SUSPECT.reasons)


def test_what_is_trusted_takes_no_line_and_an_old_result_claims_nothing() -> None:
    trusted = Trust(verdict="trusted", seen=("swap",))
    assert len(cell_lines(doubtful(trusted), None)) == 2
    (old,) = json.loads(results_document([doubtful(None)]))
    assert old["trust"] is None
    assert cell_view(doubtful(None), None).trust is None


@pytest.fixture
def measured(database: Database) -> Database:
    """A farm whose one cell has a suspect result."""
    stock(database)
    (waiting,) = cells(database)
    message = result(dispatch(database, waiting.cell_id), environment=CPU.environment)
    assert message.measurement is not None
    suspect = message.measurement.model_copy(update={"trust": SUSPECT})
    with database.write() as turn:
        ingest.apply(turn, message.model_copy(update={"measurement": suspect}), datetime.now(UTC))
    return database


def test_a_suspect_result_is_reused_only_where_the_campaign_says_so(measured: Database) -> None:
    (plan,) = planned(measured, asked())
    assert (plan.action, plan.why) == ("run", "the last result is suspect")
    (plan,) = planned(measured, replace(asked(), reuse=f"same-fingerprint{AND_SUSPECT}"))
    assert plan.action == "reuse"


def test_suspect_cells_and_no_other_measured_ones_are_measured_again_on_demand(measured: Database) -> None:
    (done,) = cells(measured)
    with measured.write() as turn:
        assert steering_requests.retry(turn, done.cell_id, datetime.now(UTC), failed_only=False) == 0
    with measured.write() as turn:
        again = steering_requests.retry(
            turn, done.cell_id, datetime.now(UTC), failed_only=False, suspect=True
        )
    assert again == 1
    (queued,) = cells(measured)
    assert (queued.state, queued.shown_attempt_id) == ("queued", done.shown_attempt_id)
    message = result(dispatch(measured, queued.cell_id), environment=CPU.environment)
    with measured.write() as turn:
        assert ingest.apply(turn, message, datetime.now(UTC)) == "counted"
    with measured.write() as turn:
        again = steering_requests.retry(
            turn, done.cell_id, datetime.now(UTC), failed_only=False, suspect=True
        )
    assert again == 0, "the second result is not doubted"
