"""The other end of a connection has a deadline for each of its steps; bytes one by one do not move it."""

from __future__ import annotations

import hashlib
import io
import math
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.endpoint import listener, protocol
from tests.services.endpoint import TOKEN, Endpoint

MODEL = bytes(20_000_000)
SHA = hashlib.sha256(MODEL).hexdigest()
AGENT = f"host: farm\r\nauthorization: Bearer {TOKEN}\r\n"
LIMIT_S = 0.3
"""Seconds of the deadlines that a test lets pass."""
PATIENCE_S = 60.0
"""Seconds of the deadlines that a test has to meet on a machine however busy."""
_ESTABLISHED = "01"
"""The state of a connection in /proc/net/tcp that neither end has closed."""


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setattr(listener, "FIRST_REQUEST_S", PATIENCE_S)
    monkeypatch.setattr(protocol, "_STRANGERS", protocol._STRANGERS | {protocol.Stage.BODY: LIMIT_S})
    limits = {stage: min(limit, LIMIT_S) for stage, limit in protocol._OWNERS.items() if limit < math.inf}
    monkeypatch.setattr(protocol, "_OWNERS", protocol._OWNERS | limits)
    opened = Endpoint(tmp_path)
    opened.store.put(io.BytesIO(MODEL), "m")
    yield opened
    opened.close()


class Line:
    """A connection by hand."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.socket = socket.create_connection(("127.0.0.1", endpoint.port), timeout=30.0)

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode())

    def closes_while_sent(self, piece: str) -> None:
        """Send a piece again and again until the server has closed; one that never does is a failure."""
        deadline = time.monotonic() + 60
        self.socket.setblocking(False)
        while time.monotonic() < deadline:
            try:
                if not self.socket.recv(1 << 16):
                    return
            except BlockingIOError:
                pass
            except ConnectionError:
                return
            try:
                self.send(piece)
            except ConnectionError:
                return
            time.sleep(0.02)
        raise AssertionError("the connection stays")

    def wait_until_left(self) -> None:
        """Return once the server has closed its end, though nothing that it sent was read."""
        (_, own), (_, theirs) = self.socket.getsockname(), self.socket.getpeername()
        deadline = time.monotonic() + PATIENCE_S
        while f":{theirs:04X} 0100007F:{own:04X} {_ESTABLISHED}" in Path("/proc/net/tcp").read_text():
            assert time.monotonic() < deadline, "the connection stays"
            time.sleep(0.02)

    def answer(self) -> bytes:
        """Everything that comes until the server closes."""
        return b"".join(iter(lambda: self.socket.recv(1 << 20), b""))


@pytest.fixture
def line(endpoint: Endpoint) -> Iterator[Line]:
    made = Line(endpoint)
    yield made
    made.socket.close()


@pytest.mark.parametrize("beginning", ["", "GET /health HTTP/1.1\r\n"], ids=["nothing", "half a head"])
def test_a_head_that_comes_byte_by_byte_ends_the_connection(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, beginning: str
) -> None:
    monkeypatch.setattr(listener, "FIRST_REQUEST_S", LIMIT_S)
    line = Line(endpoint)
    line.send(beginning)
    line.closes_while_sent("x" if not beginning else "x-a: b\r\n")
    line.socket.close()


def test_an_enrolment_whose_body_comes_byte_by_byte_ends_the_connection(line: Line) -> None:
    line.send("POST /enrol HTTP/1.1\r\nhost: farm\r\ncontent-length: 9000\r\n\r\n")
    line.closes_while_sent(" ")


@pytest.mark.slow
def test_a_token_gives_time_for_the_body_and_none_for_the_next_head(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Until the token is known, the connection is a stranger's: that takes a moment.
    stranger_s = 10 * LIMIT_S
    monkeypatch.setattr(protocol, "_STRANGERS", protocol._STRANGERS | {protocol.Stage.BODY: stranger_s})
    samples = b"[1, 2]"
    name = hashlib.sha256(samples).hexdigest()
    line.send(f"PUT /samples/{name} HTTP/1.1\r\n{AGENT}content-length: {len(samples)}\r\n\r\n[")
    time.sleep(1.5 * stranger_s)
    line.send("1, 2]")
    assert line.socket.recv(1 << 16).startswith(b"HTTP/1.1 201")
    line.closes_while_sent("x")


def test_an_answer_that_nobody_reads_ends_the_connection(line: Line) -> None:
    line.send(f"GET /artifacts/{SHA} HTTP/1.1\r\n{AGENT}\r\n")
    line.wait_until_left()
    assert len(line.answer()) < len(MODEL)


def test_who_shows_no_token_gets_one_answer(line: Line) -> None:
    line.send("GET /health HTTP/1.1\r\nhost: farm\r\n\r\n" * 100)
    assert line.answer().count(b"HTTP/1.1 200") == 1
