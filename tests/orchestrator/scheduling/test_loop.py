"""The scheduler's messages, and the contents of the database at that moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlmodel import select

from agent.wire.envelope import SigningKey
from agent.wire.messages import (
    AgentAlive,
    AgentHello,
    CancelJob,
    ForAgent,
    JobSpec,
    JobStarted,
    Receipt,
    Shutdown,
)
from orchestrator.config.lab import LabTimes
from orchestrator.db import tables
from orchestrator.db.campaigns import steering_requests
from orchestrator.db.devices import agents, credentials
from orchestrator.db.engine.sessions import Database
from orchestrator.db.engine.turn import Turn
from orchestrator.dispatch.base import BrokerDownError, DispatchEvent, MessageReceived
from orchestrator.errors import UnreachableError
from orchestrator.scheduling.loop import SchedulerLoop
from orchestrator.scheduling.recoveries import Reaper
from tests.orchestrator.asked import GPU, asked
from tests.orchestrator.stocked import cells, result, stock

DEVICE = GPU.model_copy(update={"device_id": "rack.gpu-0"})
HELLO = MessageReceived("rack", AgentHello(agent_id="rack", host="rack", version="0", devices=(DEVICE,)))


class MemoryBroker:
    """Delivers within this process; keeps what the database held when a message was sent."""

    sole_agent = False

    def __init__(self, database: Database) -> None:
        self.fault = ""
        self.down = False
        self.arrived: list[DispatchEvent] = []
        self.sent: list[ForAgent] = []
        self.stored: list[dict[str, set[str]]] = []
        self._database = database

    def send(self, agent_id: str, message: ForAgent) -> None:
        if self.down:
            raise BrokerDownError("it is down")
        self.sent.append(message)
        self.stored.append(committed(self._database))

    def events(self, timeout_s: float) -> Sequence[DispatchEvent]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def close(self, grace_s: float = 20.0) -> Sequence[DispatchEvent]:
        return ()

    def of(self, kind: type) -> list:
        return [
            (message, held)
            for message, held in zip(self.sent, self.stored, strict=True)
            if isinstance(message, kind)
        ]


def test_how_long_received_messages_took_to_be_stored_is_told_once_for_each_batch(database):
    told: list[float] = []
    wire = MemoryBroker(database)
    loop = SchedulerLoop(database, wire, LabTimes(), stored=told.append)
    wire.arrived.append(HELLO)
    loop.listen(0.1)
    loop.listen(0.1)
    assert len(told) == 1
    assert told[0] > 0


def committed(database: Database) -> dict[str, set[str]]:
    with database.read() as session:
        return {
            "results": set(session.exec(select(tables.Result.attempt_id))),
            "attempts": set(session.exec(select(tables.Attempt.attempt_id))),
            "outbox": set(session.exec(select(tables.Outbox.attempt_id))),
        }


@pytest.fixture
def broker(database):
    stock(database, asked(delegates={"gpu": {}}), [DEVICE])
    made = MemoryBroker(database)
    made.arrived.append(HELLO)
    return made


def loop_of(database, broker, **times) -> SchedulerLoop:
    return SchedulerLoop(
        database, broker, LabTimes(**{"sweep_s": 0.0, "reaper_s": 0.0, "patience_s": 0.0, **times})
    )


def test_a_job_is_stored_and_waits_in_the_outbox_when_it_is_sent(database, broker):
    loop_of(database, broker).listen(0.2)
    ((job, held),) = broker.of(JobSpec)
    assert job.attempt_id in held["attempts"]
    assert job.attempt_id in held["outbox"]


def test_a_job_that_could_not_be_sent_stays_in_the_outbox(database, broker):
    broker.down = True
    loop_of(database, broker).listen(0.2)
    held = committed(database)
    assert len(held["outbox"]) == 1
    assert held["outbox"] == held["attempts"]


def test_a_receipt_is_sent_once_the_result_is_stored_and_not_before(database, broker):
    loop = loop_of(database, broker)
    loop.listen(0.2)
    ((job, _),) = broker.of(JobSpec)
    broker.arrived.append(MessageReceived("rack", result(job)))
    loop.listen(0.2)
    ((receipt, held),) = broker.of(Receipt)
    assert receipt.attempt_id == job.attempt_id
    assert held["results"] == {job.attempt_id}


@contextmanager
def interrupted(error: type[BaseException]) -> Iterator[None]:
    """Have every write end with an error before its commit."""
    write = Database.write

    @contextmanager
    def failing(database: Database) -> Iterator[Turn]:
        with write(database) as turn:
            yield turn
            raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "write", failing)
        yield


def test_what_an_agent_says_of_itself_is_stored_though_the_database_was_away_when_it_came(database, broker):
    loop = loop_of(database, broker, sweep_s=600.0)
    loop.listen(0.1)
    broker.arrived.append(MessageReceived("rack", AgentAlive(waiting=1)))
    with interrupted(UnreachableError), pytest.raises(UnreachableError):
        loop.listen(0.1)
    loop.listen(0.1)
    with database.read() as session:
        (rack,) = (agent for agent in agents.states(session) if agent.agent_id == "rack")
    assert rack.undelivered_since is not None


def test_a_result_that_had_come_when_the_user_interrupts_the_farm_is_stored(database, broker):
    broker.sole_agent = True
    loop = loop_of(database, broker)
    loop.listen(0.1)
    loop.assign()
    ((job, _),) = broker.of(JobSpec)
    broker.arrived.append(MessageReceived("rack", result(job)))
    with interrupted(KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        loop.listen(0.1)
    loop.stop()
    assert [cell.state for cell in cells(database)] == ["done"]


def test_an_attempt_that_is_silent_for_too_long_is_lost_and_its_cell_waits_again(database, broker):
    loop = loop_of(database, broker, lost_s=0.0, resend_s=3600.0)
    loop.listen(0.2)
    loop.listen(0.2)
    with database.read() as session:
        first = session.exec(select(tables.Attempt).order_by(tables.Attempt.attempt_no)).first()
        assert (first.state, first.reason_code) == ("failed", "agent_lost")


def test_no_attempt_is_lost_because_the_farm_could_not_store_what_its_agent_sent(database, broker):
    loop_of(database, broker).listen(0.2)
    reaper = Reaper(database, LabTimes(reaper_s=0.0, lost_s=300.0))

    def state_after(seconds: float) -> str:
        at = datetime.now(UTC) + timedelta(seconds=seconds)
        reaper.note_turn(at, broker_down=False)
        assert reaper.in_grace(at) is (seconds == 1000.0)
        reaper.reap(at, broker_down=False)
        return cells(database)[0].state

    assert state_after(10.0) == "dispatched"
    # The database was away, the machine slept, or its clock was set.
    assert [state_after(1000.0 + 50.0 * turn) for turn in range(6)] == ["dispatched"] * 6
    assert state_after(1301.0) == "queued", "silent while the farm listened"


@pytest.mark.parametrize("end", ["died", "silent"])
def test_a_cell_whose_agent_came_back_without_the_device_does_not_wait_for_ever(database, broker, end):
    loop_of(database, broker).listen(0.2)
    ((job, _),) = broker.of(JobSpec)
    live = (job.attempt_id,) if end == "silent" else ()
    hello = HELLO.message.model_copy(update={"devices": (), "live": live})
    started = JobStarted(attempt_id=job.attempt_id, epoch=job.epoch)
    broker.arrived += [MessageReceived("rack", started), MessageReceived("rack", hello)]
    times = {"lost_s": 0.0, "resend_s": 3600.0} if end == "silent" else {}
    loop_of(database, broker, **times).listen(0.2)
    (cell,) = cells(database)
    assert (cell.state, cell.reason_code) == ("unsupported", "no_device")
    assert "rack.gpu-0 is gone" in cell.reason_text


@pytest.mark.parametrize("check", [True, False])
def test_a_device_in_quarantine_that_was_gone_is_checked_once_it_is_back_unless_by_hand(
    database, broker, check
):
    loop = loop_of(database, broker, resend_s=3600.0)
    loop.listen(0.2)
    without = HELLO.message.model_copy(update={"devices": ()})
    with database.write() as turn:
        steering_requests.quarantine(turn, "rack.gpu-0", "it failed", datetime.now(UTC), check=check)
    for hello in (without, HELLO.message, HELLO.message):
        broker.arrived.append(MessageReceived("rack", hello))
        loop.listen(0.2)
    checks = [cell.state for cell in cells(database) if cell.model == "health-check"]
    assert checks == (["unsupported", "queued"] if check else [])


def test_a_cell_that_waited_as_long_as_its_file_allows_fails_though_nothing_else_happens(database, broker):
    (cell,) = cells(database)
    with database.write() as turn:
        turn.cell(cell.cell_id).sqlmodel_update({"queue_limit_s": 60.0, "queue_until": datetime.now(UTC)})
    broker.arrived.clear()
    loop_of(database, broker).listen(0.0)
    assert (cells(database)[0].state, cells(database)[0].reason_code) == ("failed", "queue_limit")


def test_an_attempt_that_its_agent_does_not_end_is_given_up_at_its_deadline(database, broker):
    loop = loop_of(database, broker)
    loop.listen(0.2)
    ((job, _),) = broker.of(JobSpec)
    with database.write() as turn:
        turn.attempt(job.attempt_id).deadline_at = datetime.now(UTC) - timedelta(seconds=1)
    loop.listen(0.2)
    assert CancelJob(attempt_id=job.attempt_id) in broker.sent
    with database.read() as session:
        attempt = session.get_one(tables.Attempt, job.attempt_id)
        assert (attempt.state, attempt.reason_code) == ("failed", "timeout")
    assert (cells(database)[0].state, cells(database)[0].reason_code) == ("failed", "timeout")


@pytest.mark.parametrize("revoked", [False, True])
def test_a_removed_agent_is_told_to_end_once_and_a_revoked_one_goes_on_with_its_results(
    database, broker, revoked
):
    loop = loop_of(database, broker)
    loop.listen(0.2)
    now = datetime.now(UTC)
    with database.write() as turn:
        credentials.add(turn, "rack", SigningKey.new().public, "0" * 64, "0" * 64, now)
        if revoked:
            credentials.revoke_all(turn, "rack", now)
        agents.set_state(turn, "rack", tables.AGENT_REMOVED)
    loop.listen(0.2)
    loop.listen(0.2)
    assert len(broker.of(Shutdown)) == (not revoked)
    broker.arrived.append(HELLO)
    loop.listen(0.2)
    assert len(broker.of(Shutdown)) == (0 if revoked else 2)
