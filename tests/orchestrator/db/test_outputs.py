"""The farm keeps the end of a running runner's output, once, and only while it runs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlmodel import select

from agent.wire.messages import RunnerOutput
from orchestrator.db import tables
from orchestrator.db.cells import running_attempts
from orchestrator.db.scheduling import ingest
from tests.orchestrator.asked import asked
from tests.orchestrator.stocked import cells, dispatch, result, stock


def tell(database, job, start, text, **other):
    piece = RunnerOutput(attempt_id=job.attempt_id, epoch=job.epoch, start=start, text=text)
    with database.write() as session:
        running_attempts.append(session, piece.model_copy(update=other))


def kept(database, job):
    with database.read() as session:
        found = running_attempts.of_attempt(session, job.attempt_id)
    return None if found is None else (found.start, found.text)


@pytest.fixture
def job(database):
    stock(database, asked(("m",)))
    return dispatch(database, cells(database)[0].cell_id)


def test_pieces_are_joined_and_repeated_ones_ignored(database, job):
    tell(database, job, 0, "one\n")
    tell(database, job, 4, "two\n")
    tell(database, job, 0, "one\n")
    tell(database, job, 4, "two\nthree\n")
    assert kept(database, job) == (0, "one\ntwo\nthree\n")


def test_behind_a_gap_only_the_newer_text_is_kept(database, job):
    tell(database, job, 0, "one\n")
    tell(database, job, 100, "two\0\n")
    assert kept(database, job) == (100, "two\N{REPLACEMENT CHARACTER}\n")


def test_only_the_end_of_an_output_is_kept(database, job):
    size = 8192
    for number in range(5):
        tell(database, job, number * size, f"{number}" * size)
    start, text = kept(database, job)
    assert (start, len(text), set(text)) == (3 * size, running_attempts.KEPT_CHARACTERS, {"3", "4"})


def test_nothing_is_taken_of_another_epoch_or_of_an_attempt_that_is_over(database, job):
    tell(database, job, 0, "stale", epoch=job.epoch + 1)
    with database.write() as session:
        ingest.apply(session, result(job), datetime.now(UTC))
    tell(database, job, 0, "late")
    assert kept(database, job) is None


def test_the_next_attempts_output_takes_the_place_of_what_ended(database):
    stock(database, asked(("a", "b")))
    first, second = cells(database)[:2]
    ended = dispatch(database, first.cell_id)
    tell(database, ended, 0, "of the first")
    with database.write() as session:
        ingest.apply(session, result(ended), datetime.now(UTC))
    after = dispatch(database, second.cell_id)
    tell(database, after, 0, "of the second")
    with database.read() as session:
        assert [row.attempt_id for row in session.exec(select(tables.Output))] == [after.attempt_id]
