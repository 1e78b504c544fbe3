from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event
from sqlmodel import select

from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.db.scheduling import ingest
from tests.orchestrator.asked import GPU, asked
from tests.orchestrator.stocked import cells, dispatch, result, stock

NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    """Record the statements that are sent to the database within the block."""
    sent: list[str] = []

    def note(_connection, _cursor, statement, *_rest) -> None:
        sent.append(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(database.engine, "before_cursor_execute", note)


def test_a_loaded_row_is_found_without_a_query(database):
    stock(database)
    job = dispatch(database, cells(database)[0].cell_id)
    with database.write() as turn:
        turn.load_attempts([job.attempt_id])
        with statements(database) as sent:
            attempt = turn.attempt(job.attempt_id)
            assert turn.cell(attempt.cell_id).device_id == turn.device(attempt.device_id).device_id
            assert turn.campaign(turn.cell(attempt.cell_id).campaign_no).name == "test"
            assert turn.find_result(job.attempt_id) is None
            assert turn.history(attempt.cell_id) == [attempt]
    assert sent == []


def test_what_is_missing_is_asked_for_once(database):
    with database.write() as turn:
        turn.load_attempts(["gone"])
        with statements(database) as sent:
            assert turn.find_attempt("gone") is None
            assert turn.find_result("gone") is None
        with pytest.raises(LookupError, match="no attempt 'gone'"):
            turn.attempt("gone")
    assert sent == []


def test_charges_of_a_campaign_are_added_in_one_statement_for_it_and_one_for_its_user(database):
    stock(database)
    with database.read() as session:
        (number,) = session.exec(select(tables.Campaign.no)).all()
    with statements(database) as sent, database.write() as turn:
        turn.charge(number, 5.0, NOW)
        turn.charge(number, -2.0)
        turn.charge(number, 1.0, NOW + timedelta(seconds=1))
    assert len([text for text in sent if text.startswith("UPDATE campaign")]) == 2
    with database.read() as session:
        campaign = session.get_one(tables.Campaign, number)
        assert (campaign.served_s, campaign.served_at) == (4.0, NOW + timedelta(seconds=1))


def test_what_is_put_off_is_done_once_per_key_after_everything_else_is_written(database):
    stock(database)
    done = []
    with database.write() as turn:
        turn.at_end("key", lambda: done.append("first"))
        turn.at_end("key", lambda: done.append("second"))
        turn.exec(select(tables.Campaign)).one().name = "renamed"
        turn.at_end("other", lambda: done.append(turn.exec(select(tables.Campaign.name)).one()))
        assert done == []
    assert done == ["second", "renamed"]


def test_nothing_is_written_by_a_turn_that_fails(database):
    stock(database)
    with database.read() as session:
        (number,) = session.exec(select(tables.Campaign.no)).all()

    def fail():
        with database.write() as turn:
            turn.charge(number, 5.0, NOW)
            turn.at_end("key", lambda: pytest.fail("the turn did not end"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.read() as session:
        assert session.get_one(tables.Campaign, number).served_s == 0.0


def test_a_turn_over_many_results_asks_as_many_questions_as_one_over_two(database):
    fleet = [
        GPU.model_copy(update={"device_id": f"gpu-{n}", "exclusion_group": f"gpu-{n}"}) for n in range(8)
    ]
    stock(database, asked(delegates={"gpu": {}}), fleet)
    counts = []
    for share in (slice(0, 2), slice(2, 8)):
        jobs = [dispatch(database, cell.cell_id) for cell in cells(database)[share]]
        with statements(database) as sent, database.write() as turn:
            turn.load_attempts([job.attempt_id for job in jobs])
            with turn.no_autoflush:
                assert {ingest.apply(turn, result(job), NOW) for job in jobs} == {"counted"}
        counts.append(len([text for text in sent if text.startswith("SELECT")]))
    assert counts[0] == counts[1]
