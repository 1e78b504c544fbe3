"""A message that the database refuses stops nothing: not its batch, its device, its agent, or the log."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.wire.messages import (
    AgentHello,
    Heartbeat,
    JobResult,
    JobSpec,
    JobStarted,
    Reason,
    ReasonCode,
    Receipt,
    RunnerOutput,
    Status,
    encode,
)
from orchestrator.config.lab import LabTimes
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from orchestrator.db.queue import picking
from orchestrator.dispatch.base import MessageReceived, read
from orchestrator.scheduling.loop import SchedulerLoop
from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.orchestrator.asked import GPU, asked
from tests.orchestrator.stocked import cells, result, stock
from tests.services.forks import run

DEVICES = [
    GPU.model_copy(update={"device_id": f"rack.gpu-{n}", "exclusion_group": f"gpu-{n}"}) for n in range(2)
]
HELLO = AgentHello(agent_id="rack", host="rack", version="0", devices=tuple(DEVICES))


@dataclass
class Wire:
    """A dispatcher whose messages a test puts there; what the farm answers is kept."""

    sole_agent: bool = False
    fault: str = ""
    arrived: list = field(default_factory=list)
    sent: list = field(default_factory=list)

    def send(self, agent_id, message):
        self.sent.append((agent_id, message))

    def events(self, timeout_s):  # the dispatcher's form
        arrived, self.arrived = self.arrived, []
        return arrived

    def close(self, grace_s=0.0):  # the dispatcher's form
        return ()


@dataclass
class Scheduled:
    """A scheduler over a real database, and two attempts that run."""

    database: Database
    wire: Wire = field(default_factory=Wire)

    def __post_init__(self):
        migrate(self.database)
        stock(self.database, asked(delegates={"gpu": {}}), DEVICES)
        self.loop = SchedulerLoop(self.database, self.wire, LabTimes())
        self.receive(MessageReceived("rack", HELLO))
        sent = {message.cell_id: message for _, message in self.wire.sent if isinstance(message, JobSpec)}
        self.jobs = [sent[cell.cell_id] for cell in cells(self.database)]
        self.receive(*(MessageReceived("rack", started(job)) for job in self.jobs))

    def receive(self, *events):
        self.wire.sent.clear()
        self.wire.arrived = list(events)
        self.loop.listen(0.05)

    def receipts(self):
        return {message.attempt_id for _, message in self.wire.sent if isinstance(message, Receipt)}

    def states(self):
        return [(cell.state, cell.reason_code) for cell in cells(self.database)]


@pytest.fixture(params=["sqlite", "postgresql"])
def scheduled(request, tmp_path):
    where = tmp_path / "farm.db"
    if request.param == "postgresql":
        where = request.getfixturevalue("migrated_postgres_url")
    database = Database.connect(where, tmp_path)
    yield Scheduled(database)
    database.close()


def started(job) -> JobStarted:
    return JobStarted(attempt_id=job.attempt_id, epoch=job.epoch)


def refused(job, **changes) -> JobResult:
    """Build a result that a wire without bounds would let in: no field is checked."""
    return result(job, Status.FAILED).model_copy(update=changes)


UNSTORABLE = {
    "a number of more than 64 bits": {"duration_ns": 2**64},
    "a text that cannot be encoded": {"log_tail": "\ud800"},
}


@pytest.mark.parametrize("what", UNSTORABLE)
def test_a_result_that_the_database_refuses_ends_its_attempt_alone(scheduled, what, caplog) -> None:
    bad, good = scheduled.jobs
    with caplog.at_level(logging.WARNING):
        scheduled.receive(
            MessageReceived("rack", refused(bad, **UNSTORABLE[what])), MessageReceived("rack", result(good))
        )
    assert scheduled.states() == [("failed", "runner_error"), ("done", "completed")]
    (first, _) = cells(scheduled.database)
    assert "cannot be stored" in first.reason_text
    assert scheduled.receipts() == {bad.attempt_id, good.attempt_id}, "the agent stops sending them"
    assert sum(bad.attempt_id in record.getMessage() for record in caplog.records) == 1
    assert all(len(record.getMessage()) < 500 and not record.exc_info for record in caplog.records)
    with scheduled.database.read() as session:
        assert {"rack.gpu-0", "rack.gpu-1"} <= set(picking.idle(session)), "both devices are free"


def test_a_nul_that_came_past_the_wire_ends_its_attempt_on_postgresql(postgres_url, tmp_path) -> None:
    database = Database.connect(postgres_url, tmp_path)
    scheduled = Scheduled(database)
    bad, good = scheduled.jobs
    reason = Reason(code=ReasonCode.UNSUPPORTED_OPERATOR, text="").model_copy(update={"text": "a\0b"})
    scheduled.receive(
        MessageReceived("rack", refused(bad, reason=reason)), MessageReceived("rack", result(good))
    )
    assert scheduled.states() == [("failed", "runner_error"), ("done", "completed")]
    assert "NUL" in cells(database)[0].reason_text
    assert scheduled.receipts() == {bad.attempt_id, good.attempt_id}
    database.close()


def test_other_messages_that_are_refused_are_left_aside_at_a_bounded_rate(scheduled, caplog) -> None:
    job, good = scheduled.jobs
    beat = Heartbeat(attempt_id=job.attempt_id, epoch=job.epoch, seq=1, phase="x")
    hello = HELLO.model_copy(update={"version": "\ud800"})
    piece = RunnerOutput(attempt_id=job.attempt_id, epoch=job.epoch, start=0, text="x")
    bad = [
        beat.model_copy(update={"phase": "\ud800"}),
        hello,
        piece.model_copy(update={"text": "\ud800"}),
    ]
    with caplog.at_level(logging.WARNING):
        scheduled.receive(
            *(MessageReceived("rack", message) for _ in range(10) for message in bad),
            MessageReceived("rack", result(good)),
        )
    assert scheduled.states() == [("running", None), ("done", "completed")]
    aside = [r.getMessage() for r in caplog.records if "left aside" in r.getMessage()]
    assert 1 <= len(aside) <= 5
    assert len(caplog.records) <= 8


def test_a_result_that_cannot_be_read_ends_its_attempt(scheduled) -> None:
    bad, good = scheduled.jobs
    fields = json.loads(encode(result(bad))) | {"duration_ns": 2**70}
    scheduled.receive(
        read("rack", json.dumps(fields).encode()), read("rack", encode(result(good)).rstrip(b"\n"))
    )
    assert scheduled.states() == [("failed", "runner_error"), ("done", "completed")]
    assert "duration_ns" in cells(scheduled.database)[0].reason_text
    assert scheduled.receipts() == {bad.attempt_id, good.attempt_id}


def test_another_agents_attempt_is_not_ended_by_a_result_that_cannot_be_read(scheduled) -> None:
    job, _ = scheduled.jobs
    fields = json.loads(encode(result(job))) | {"duration_ns": 2**70}
    scheduled.receive(read("thief", json.dumps(fields).encode()))
    assert scheduled.states() == [("running", None), ("running", None)]
    assert scheduled.receipts() == set()


def test_an_epoch_that_an_agent_claims_cannot_stop_the_scheduler(scheduled) -> None:
    fields = json.loads(encode(HELLO)) | {"epochs": {"rack.gpu-0": 2**31 - 1}}
    with pytest.raises(ValueError, match="epochs"):
        read("rack", json.dumps(fields).encode())


def hostile_model() -> bytes:
    """One operator of a kind that no delegate has, whose name holds a NUL."""
    tensors = tuple(Tensor(n, name, TensorType.FLOAT32, (1, 8)) for n, name in enumerate(("in", "out")))
    operator = Operator(
        index=0, opcode=BuiltinOperator.CUSTOM, version=1, inputs=(0,), outputs=(1,), custom_code="a\0b"
    )
    graph = Subgraph(0, "main\0", tensors, (0,), (1,), (operator,))
    return write_model(Model(version=3, description="d\0", subgraphs=(graph,)))


def test_a_model_whose_operator_has_a_nul_in_its_name_gets_its_result(postgres_url, tmp_path: Path) -> None:
    (tmp_path / "odd.tflite").write_bytes(hostile_model())
    (tmp_path / "models.yaml").write_text(
        "version: 1\ncampaign: nul\nmodels: [{id: odd, source: odd.tflite}]\ndelegates: {cpu: {kind: cpu}}\n"
        "devices: [{name: '*'}]\ndefaults: {measure: {blocks: 1}}\n"
    )
    environment = os.environ | {
        "FARM_HOME": str(tmp_path / "home"),
        "FARM_DATABASE_URL": postgres_url,
        "NO_COLOR": "1",
    }
    ran = run("farm", "submit", "models.yaml", cwd=tmp_path, env=environment, timeout=120)
    database = Database.connect(postgres_url, tmp_path)
    (cell,) = cells(database)
    assert cell.state == "unsupported", ran.stdout + ran.stderr
    assert "a�b" in cell.reason_text
    assert datetime.now(UTC) > cell.ended_at
    database.close()
