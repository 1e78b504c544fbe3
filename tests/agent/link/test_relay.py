"""A link routes a line by its type, wherever that stands in the line, and by nothing else in it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.link import relay
from agent.link.artifact_sync import ArtifactSync
from agent.link.broker import AgentBroker
from agent.link.name_claim import NameClaim
from agent.link.relay import Relay
from agent.wire.envelope import KEYS_KIND, MAX_ENVELOPE_BYTES
from agent.wire.messages import Heartbeat, JobRefused, JobResult, Reason, ReasonCode, Status, encode

BROKER = AgentBroker("rack-1", "redis://127.0.0.1:1/0")
REASON = Reason(code=ReasonCode.ARTIFACT, text="the model is damaged")
RESULT = JobResult(
    attempt_id="a1", epoch=1, cell_id="c", device_id="rack-1.host-cpu", status=Status.FAILED, reason=REASON
)
REFUSED = JobRefused(attempt_id="a1", epoch=1, reason=REASON)


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
    link._producers = dict.fromkeys(("agent.rack-1.jobs", "ingest"))
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
    daemon.settimeout(5.0)
    assert daemon.recv(100) == relay.ALIVE + b"\n"
    assert "a message is dropped (1 so far)" in caplog.text


def test_a_link_ends_as_a_whole_where_one_of_its_threads_fails():
    code = (
        "import threading, time; from agent.link.__main__ import _or_leave\n"
        "threading.Thread(target=_or_leave, args=(lambda: 1 / 0,), daemon=True).start()\n"
        "time.sleep(60)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert ended.returncode == relay.BROKER_EXIT
    assert "ZeroDivisionError" in ended.stderr
