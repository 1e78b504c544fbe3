"""A link routes a line by its type, wherever that stands in the line, and by nothing else in it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.link import relay
from agent.link.artifact_sync import ArtifactSync, NeverTakenError
from agent.link.broker import AgentBroker, NameClaim
from agent.link.relay import Relay
from agent.wire.envelope import KEYS_KIND, MAX_ENVELOPE_BYTES
from agent.wire.measurement import Accuracy, Latency, Measurement
from agent.wire.messages import (
    Heartbeat,
    JobRefused,
    JobResult,
    Reason,
    ReasonCode,
    Status,
    decode_for_orchestrator,
    encode,
)

BROKER = AgentBroker("rack-1", "redis://127.0.0.1:1/0")
REASON = Reason(code=ReasonCode.ARTIFACT, text="the model is damaged")
RESULT = JobResult(
    attempt_id="a1", epoch=1, cell_id="c", device_id="rack-1.host-cpu", status=Status.FAILED, reason=REASON
)
REFUSED = JobRefused(attempt_id="a1", epoch=1, reason=REASON)


def measured(status: Status) -> JobResult:
    """Build a result with raw samples."""
    nothing = dict.fromkeys(("init", "init_warm", "first", "p90", "p99", "mean", "ci95"))
    measurement = Measurement(
        latency_ms=Latency(p50=1.5, **nothing),
        samples=3,
        memory_peak_bytes=5,
        accuracy=Accuracy(reference=None, max_abs=None, rel_l2=None, cosine=None, verdict=None),
        delegation=None,
        settings={},
        samples_sha256="5" * 64,
    )
    reason = None if status is Status.DONE else REASON
    return RESULT.model_copy(update={"status": status, "reason": reason, "measurement": measurement})


class PlainSeal:
    """An envelope is the message itself."""

    def seal(self, payload: bytes) -> str:
        return payload.decode()

    def open(self, envelope: str) -> bytes | None:
        if len(envelope) > MAX_ENVELOPE_BYTES:
            raise ValueError("too long")
        return None if json.loads(envelope)["type"] == KEYS_KIND else envelope.encode()


class Store:
    def __init__(self) -> None:
        self.released: list[tuple[str, bool]] = []
        self.fault: Exception | None = None

    def upload(self, _sha256: str) -> None:
        if self.fault is not None:
            raise self.fault

    def release(self, attempt_id: str, *, damaged: bool) -> None:
        self.released.append((attempt_id, damaged))


class Ended(BaseException):
    """In place of the end of the process."""


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Relay, socket.socket, list[str]]]:
    ours, theirs = socket.socketpair()
    sent: list[str] = []

    def end(_code: int) -> None:
        raise Ended

    def publish(_producer: Any, _task: str, _queue: str, envelope: str) -> None:
        sent.append(envelope)

    monkeypatch.setattr(relay.os, "_exit", end)
    monkeypatch.setattr(relay, "publish", publish)
    monkeypatch.setattr(relay, "_UPLOAD_LIMIT_S", 0.0)
    claim = NameClaim.of(BROKER, tmp_path, 60.0)
    link: Any = Relay(BROKER, PlainSeal(), ArtifactSync(Store()), theirs, 60.0, lambda: False, claim)  # type: ignore[arg-type]  # what a route needs of them
    link._producers = dict.fromkeys(("agent.rack-1.jobs", "agent.rack-1.ingest"))
    with ours, theirs:
        yield link, ours, sent


def relayed(link: Relay, daemon: socket.socket, *lines: bytes) -> None:
    daemon.sendall(b"".join(lines))
    daemon.shutdown(socket.SHUT_WR)
    with pytest.raises(Ended):
        link.relay_up()


def test_a_result_waits_for_its_samples_wherever_its_type_stands(ends) -> None:
    link, daemon, sent = ends
    fields = RESULT.model_dump(mode="json")
    last = {name: fields[name] for name in sorted(fields, key="type".__eq__)}
    assert list(last)[-1] == "type"
    relayed(link, daemon, encode(RESULT), json.dumps(last).encode() + b"\n")
    assert sent == []
    assert link._results.qsize() == 2


@pytest.mark.parametrize("status", [Status.DONE, Status.FAILED])
def test_a_result_whose_samples_are_never_taken_goes_up_at_once_with_its_figures_and_the_reason(
    ends, status: Status
) -> None:
    link, _, sent = ends
    link.artifacts.artifacts.fault = NeverTakenError("the farm answers 413: the limit is 10")
    result = measured(status)
    link._route(encode(result).rstrip())
    threading.Thread(target=link.relay_results, daemon=True).start()
    link._results.join()
    (line,) = sent
    told = decode_for_orchestrator(line.encode())
    assert isinstance(told, JobResult)
    assert (told.status, told.measurement.samples_sha256) == (status, None)
    assert told.measurement.latency_ms == result.measurement.latency_ms
    why = "its raw samples are missing: the farm answers 413: the limit is 10"
    assert told.measurement.warnings[-1] == why
    assert told.reason == (Reason(code=ReasonCode.COMPLETED, text=why) if status is Status.DONE else REASON)
    assert link.artifacts.artifacts.released != []


def test_a_result_waits_while_its_samples_may_be_taken_later(ends) -> None:
    link, _, sent = ends
    link.artifacts.artifacts.fault = OSError("the farm answers 507")
    link._route(encode(measured(Status.DONE)).rstrip())
    threading.Thread(target=link.relay_results, daemon=True).start()
    link._results.join()
    assert (sent, link.artifacts.artifacts.released) == ([], [])


def test_a_result_that_is_repeated_while_it_waits_waits_once_and_goes_up_again_later(ends) -> None:
    link, _, sent = ends
    line = encode(measured(Status.DONE)).rstrip()
    link.artifacts.artifacts.fault = OSError("the endpoint cannot be reached")
    for _ in range(3):
        link._route(line)
    assert link._results.qsize() == 1
    threading.Thread(target=link.relay_results, daemon=True).start()
    link._results.join()
    assert sent == []
    link.artifacts.artifacts.fault = None
    link._route(line)
    link._results.join()
    assert sent == [line.decode()]


def test_a_line_is_not_a_result_because_it_contains_the_word(ends) -> None:
    link, daemon, sent = ends
    beat = Heartbeat(attempt_id="a1", epoch=1, seq=1, phase='"type":"result" {"type":"refused"}')
    fields = {"attempt_id": beat.attempt_id, **beat.model_dump(mode="json")}
    line = json.dumps(fields, separators=(",", ":")).encode()
    relayed(link, daemon, line + b"\n")
    assert sent == [line.decode()]
    assert link.artifacts.artifacts.released == []


def test_a_refusal_frees_the_files_of_its_attempt_and_goes_up(ends) -> None:
    link, daemon, sent = ends
    relayed(link, daemon, encode(REFUSED))
    assert sent == [encode(REFUSED).decode().rstrip()]
    assert link.artifacts.artifacts.released == [("a1", True)]


def test_a_ping_of_this_link_shows_the_daemon_that_it_is_alive_and_a_strangers_is_dropped(
    ends, caplog
) -> None:
    link, daemon, _ = ends
    link._pings.add("ping 1")
    link.on_message("ping 2")
    link.on_message("ping 1")
    daemon.settimeout(60.0)
    assert daemon.recv(100) == relay.ALIVE + b"\n"
    assert "a message is dropped: " in caplog.text


def test_a_link_ends_as_a_whole_where_one_of_its_threads_fails():
    code = (
        "import threading, time; from agent.link.__main__ import _or_leave\n"
        "threading.Thread(target=_or_leave, args=(lambda: 1 / 0,), daemon=True).start()\n"
        "time.sleep(600)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert ended.returncode == relay.BROKER_EXIT
    assert "ZeroDivisionError" in ended.stderr
