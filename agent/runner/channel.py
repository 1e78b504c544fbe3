"""The pair of sockets between the deciding process and one measuring process: orders down, answers up.

A message is one line of JSON. Samples reach the deciding process at the end of every slice and stay in its
memory: no other process can change them afterwards.
"""

import socket
import time
from threading import Lock
from typing import Final, Literal, TypeVar

from pydantic import Field

from agent.attempt.files import ProcessReport
from agent.wire.bounded import MAX_SAMPLES, Count, Integer, Text, Wire

MOST_BYTES: Final = 256 * 1024 * 1024
"""Bytes of one message that are read at most: a slice of a million invokes has about 30 MB. A process that
writes more has failed."""

_PIECE_BYTES: Final = 1 << 16
"""Bytes that are read at once: what a slice of a few thousand invokes has. Smaller ones take more calls."""


class Order(Wire):
    """A turn of a measuring process: open the model and warm up; time `runs` invokes; finish."""

    do: Literal["start", "slice", "end"]
    runs: Count = 0


class SliceTimes(Wire):
    """The invokes of one slice in ns: how long each took, and when it started on CLOCK_MONOTONIC."""

    invoke_ns: tuple[Integer, ...] = Field(max_length=MAX_SAMPLES)
    start_ns: tuple[Integer, ...] = Field(max_length=MAX_SAMPLES)


class Answer(Wire):
    """A message from a measuring process: its phase at any time, one of the other fields at the end of its
    turn.

    `loaded`: its modules are imported and it waits. `run_ns`: it has warmed up, and an invoke takes so long.
    `over`: a pass has ended, and its report is the next message.
    """

    phase: Text | None = None
    loaded: bool = False
    run_ns: Integer | None = None
    times: SliceTimes | None = None
    report: ProcessReport | None = None
    over: bool = False


W = TypeVar("W", bound=Wire)


class ClosedError(Exception):
    """The other end is closed: its process has ended."""


class Channel:
    """One end of the pair. Its messages are read by one thread; any thread may send."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        # A thread that announces a long preparation sends beside the one that measures.
        self._sending = Lock()
        self._read = bytearray()

    @classmethod
    def of_descriptor(cls, descriptor: int) -> "Channel":
        """Return the end that this process inherited; programs that it starts do not get it."""
        end = socket.socket(fileno=descriptor)
        end.set_inheritable(False)
        return cls(end)

    def send(self, message: Wire) -> None:
        """Send a message. Raises `ClosedError`."""
        line = message.model_dump_json(exclude_defaults=True).encode() + b"\n"
        try:
            with self._sending:
                self._end.sendall(line)
        except OSError as error:
            raise ClosedError from error

    def receive(self, kind: type[W], timeout_s: float | None = None) -> W:
        """Return the next message. Raises `ClosedError`, `TimeoutError`, `ValueError` for a malformed one."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        searched = 0
        # Only what is new is searched: a line of megabytes arrives in pieces of 64 KiB.
        while (line_end := self._read.find(b"\n", searched)) < 0:
            searched = len(self._read)
            if searched > MOST_BYTES:
                raise ValueError(f"a message of more than {MOST_BYTES} bytes")
            # Never 0: such a socket does not wait at all, and raises no TimeoutError.
            left_s = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            self._end.settimeout(left_s)
            try:
                piece = self._end.recv(_PIECE_BYTES)
            except ConnectionError as error:
                raise ClosedError from error
            finally:
                self._end.settimeout(None)
            if not piece:
                raise ClosedError
            self._read += piece
        line = bytes(self._read[:line_end])
        del self._read[: line_end + 1]
        return kind.model_validate_json(line)

    def close(self) -> None:
        """Close this end; the other one then raises `ClosedError`."""
        self._end.close()
