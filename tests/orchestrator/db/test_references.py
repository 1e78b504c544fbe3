"""Agents' claims about references, from their results to the jobs of others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlmodel import select

from agent.wire.messages import AgentHello, JobSpec
from agent.wire.reference import ReferenceRecord
from orchestrator.config.lab import LabTimes
from orchestrator.db import tables
from orchestrator.db.campaigns import retention
from orchestrator.db.campaigns.retention import forget, forget_unused
from orchestrator.db.engine.sessions import Database
from orchestrator.db.results import references as known
from orchestrator.dispatch.base import MessageReceived
from orchestrator.maintenance import references as shown
from orchestrator.scheduling.loop import SchedulerLoop
from tests.orchestrator.asked import CPU, asked
from tests.orchestrator.scheduling.test_loop import MemoryBroker
from tests.orchestrator.stocked import result, stock

FILE, KEY, OTHER_KEY = "f" * 64, "1" * 64, "2" * 64
RACKS = ("a", "b", "c")
DEVICES = [CPU.model_copy(update={"device_id": f"{rack}.cpu", "exclusion_group": rack}) for rack in RACKS]


def made(file: str | None = FILE, **fields: Any) -> ReferenceRecord:
    values = {"key": KEY, "kind": "reference", "maker": "1/x86_64", "sha256": file, "size_bytes": 10}
    return ReferenceRecord.model_validate(values | fields)


class Lab:
    """Three agents with a device each, and a campaign in which each runs the same two models."""

    def __init__(self, database: Database) -> None:
        self.database = database
        stock(database, asked(("m", "n"), {"cpu": {}}), DEVICES)
        self.broker = MemoryBroker(database)
        self.loop = SchedulerLoop(database, self.broker, LabTimes())
        for rack, device in zip(RACKS, DEVICES, strict=True):
            hello = AgentHello(agent_id=rack, host=rack, version="0", devices=(device,))
            self.broker.arrived.append(MessageReceived(rack, hello))
        self.loop.listen(0.2)

    def job(self, rack: str) -> JobSpec:
        return next(job for job, _ in reversed(self.broker.of(JobSpec)) if job.device_id == f"{rack}.cpu")

    def end(self, rack: str, *records: ReferenceRecord, sender: str = "") -> JobSpec:
        """End the job of a rack, with what it made; return its next one."""
        told = result(self.job(rack)).model_copy(update={"references": records})
        self.broker.arrived.append(MessageReceived(sender or rack, told))
        self.loop.listen(0.2)
        return self.job(rack)


@pytest.fixture
def lab(database: Database) -> Lab:
    return Lab(database)


def again(lab: Lab, job: JobSpec, agents: int = 2) -> JobSpec:
    with lab.database.read() as session:
        ((_, told),) = known.with_references(session, [("a", job)], agents)
    return told


def test_what_two_agents_made_alike_is_named_to_the_third_and_one_alone_is_not_believed(lab: Lab) -> None:
    job = lab.job("c")
    assert job.references == ()
    lab.end("a", made("e" * 64))
    assert again(lab, job).references == ()
    lab.end("b", made())
    assert again(lab, job).references == (), "they disagree"
    assert lab.end("c", made()).references == (), "the next job has another model"
    assert again(lab, job).references == (made(),)
    assert again(lab, job.model_copy(update={"inputs": {}, "model_sha256": "9" * 64})).references == ()


def test_an_agent_cannot_speak_for_the_attempt_or_the_model_of_another(lab: Lab) -> None:
    job = lab.job("c")
    lab.end("a", made(), sender="c")
    lab.end("c", made(), sender="c")
    with lab.database.read() as session:
        rows = session.exec(select(tables.ReferenceClaim)).all()
        assert [(row.agent_id, row.model_sha256) for row in rows] == [("c", job.model_sha256)]


def test_a_failure_is_remembered_until_it_is_forgotten(lab: Lab) -> None:
    failure = made(None, size_bytes=0, failure="it aborts", limit_s=270.0)
    job = lab.job("c")
    lab.end("a", failure)
    lab.end("b", failure, made(key=OTHER_KEY, kind="cpu"))
    told = again(lab, job)
    assert (told.references, told.references_forgotten) == ((failure,), 0)
    (of_model,) = shown.known(lab.database, "m", 2)
    (line,) = of_model.lines()
    assert line == "m  reference of LiteRT 1/x86_64  not made: it aborts  by a, b; handed on"
    shown.forget(lab.database, [of_model])
    told = again(lab, job)
    assert (told.references, told.references_forgotten) == ((), 1)
    shown.forget(lab.database, shown.known(lab.database, job.model_sha256[:8], 2))
    assert again(lab, job).references_forgotten == 2


def test_a_removed_agent_is_not_believed_any_more(lab: Lab) -> None:
    job = lab.job("c")
    lab.end("a", made())
    lab.end("b", made())
    with lab.database.write() as turn:
        turn.get_one(tables.Agent, "a").state = tables.AGENT_REMOVED
    assert again(lab, job).references == ()
    assert again(lab, job, agents=1).references == (made(),)


def test_an_agent_may_fetch_the_references_of_its_own_attempts_model_alone(lab: Lab) -> None:
    lab.end("a", made())
    with lab.database.read() as session:
        allowed = [rack for rack in RACKS if known.is_of_live_attempt(session, rack, FILE)]
    assert allowed == ["b", "c"], "the attempt of `a` is at another model by now"


def test_what_an_agent_says_that_it_made_lets_it_fetch_nothing(lab: Lab) -> None:
    """Else it would name a model that another agent measures as its own reference, and fetch it."""
    lab.end("a", made())
    with lab.database.write() as turn:
        turn.exec(select(tables.ReferenceClaim)).one().agent_id = "b"
    with lab.database.read() as session:
        assert [rack for rack in RACKS if known.is_of_live_attempt(session, rack, FILE)] == ["c"]


def test_references_stay_as_long_as_their_model(lab: Lab) -> None:
    lab.end("a", made())
    with lab.database.read() as session:
        assert [r.size_bytes for r in retention.references(session) if r.sha256 == FILE] == [10]
        assert FILE not in {r.sha256 for r in retention.references(session, [1])}
    with lab.database.write() as turn:
        turn.get_one(tables.Campaign, 1).ended_at = datetime.now(UTC)
        assert forget(turn, 1)
        forget_unused(turn)
    with lab.database.read() as session:
        assert session.exec(select(tables.ReferenceClaim)).all() == []
    assert shown.known(lab.database, "", 2) == []
