"""An enrolled agent speaks for itself and its own attempts alone, whatever it says, in a real lab."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from kombu import Producer

from agent.link.broker import AgentBroker
from agent.wire.bounded import Wire
from agent.wire.credentials import Credentials
from agent.wire.envelope import SigningKey, seal
from agent.wire.messages import (
    AgentHello,
    Device,
    Heartbeat,
    JobRefused,
    JobResult,
    JobStarted,
    Reason,
    ReasonCode,
    Status,
    encode,
)
from agent.wire.queue import INGEST_TASK, publish
from tests import needs
from tests.orchestrator.asked import CPU
from tests.orchestrator.trust.lab import TrustedLab, trusted_lab

BAD = Reason(code=ReasonCode.RUNNER_ERROR, text="says another agent")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrustedLab]:
    with trusted_lab(tmp_path_factory.mktemp("lab"), needs.redis_server(), tls=True) as made:
        made.farm("lab", "agents", "enrol", "rack-2", "--write", str(made.folder / "rack-2"))
        yield made


@pytest.fixture
def say(lab: TrustedLab) -> Callable[..., None]:
    """Say something to the farm with the credentials of rack-2."""
    given = Credentials.read(lab.folder / "rack-2")
    assert lab.authority is not None
    broker = AgentBroker("rack-2", given.broker_url, given.key_prefix, lab.authority.path)

    def said(message: Wire, name: str = "rack-2") -> None:
        envelope = seal(SigningKey.read(given.signing_key), name, encode(message).rstrip(), time.time())
        with broker.ingest_connection() as connection:
            publish(Producer(connection.channel()), INGEST_TASK, broker.ingest_queue, envelope)

    return said


@pytest.mark.slow
def test_nothing_that_another_agent_says_of_an_attempt_reaches_it(lab: TrustedLab, say) -> None:
    submitting = lab.begin(seconds=5.0)
    query = "SELECT attempt_id, cell_id, device_id, epoch FROM attempt WHERE ended_at IS NULL"
    ((attempt_id, cell_id, device_id, epoch),) = lab.rows(query)
    result = JobResult(
        attempt_id=attempt_id, epoch=epoch, cell_id=cell_id, device_id=device_id, status=Status.FAILED,
        reason=BAD, measurement=None, environment={}, duration_ns=1,
    )  # fmt: skip
    messages = (
        result,
        JobRefused(attempt_id=attempt_id, epoch=epoch, reason=BAD),
        JobStarted(attempt_id=attempt_id, epoch=epoch),
        Heartbeat(attempt_id=attempt_id, epoch=epoch, seq=1, phase="anything"),
    )
    for message in messages:
        say(message)
    say(result, name="rack-1")
    ignored = f"agent rack-2 speaks of attempt {attempt_id} of another"
    lab.until(lambda: lab.serve.tail(9000).count(ignored) == len(messages), "each word is ignored")
    lab.until(lambda: "agent rack-2 signs for another: 'rack-1'" in lab.serve.tail(9000), "the name, too")

    model = next(iter((lab.home / "store" / "sha256").rglob("*/*"))).name
    assert lab.authority is not None
    with httpx.Client(
        base_url=lab.environment["FARM_ENDPOINT"],
        headers={"authorization": f"Bearer {Credentials.read(lab.folder / 'rack-2').token}"},
        verify=ssl.create_default_context(cafile=lab.authority.path),
        trust_env=False,
    ) as other:
        assert other.get(f"/artifacts/{model}").status_code == 403

    assert submitting.end() == 0, submitting.tail()
    results = f"SELECT attempt_id, status FROM result WHERE cell_id = '{cell_id}'"
    assert lab.rows(results) == [(attempt_id, "done")]
    attempts = f"SELECT attempt_no, state FROM attempt WHERE cell_id = '{cell_id}'"
    assert lab.rows(attempts) == [(1, "done")]


@pytest.mark.slow
def test_a_hello_that_names_devices_of_another_agent_is_ignored(lab: TrustedLab, say) -> None:
    before = lab.rows("SELECT device_id, agent_id FROM device ORDER BY device_id")
    stolen: Device = CPU.model_copy(update={"device_id": before[0][0]})
    say(AgentHello(agent_id="rack-2", host="h", version="0", devices=(stolen,)))
    said = f"agent rack-2 names devices that are not its own: {before[0][0]}"
    lab.until(lambda: said in lab.serve.tail(), "the farm says so")
    assert lab.rows("SELECT device_id, agent_id FROM device ORDER BY device_id") == before
    lab.measure()
