"""What has to be here before a job goes down to the daemon, and there before its result goes up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from agent.messages import (
    ForOrchestrator,
    Heartbeat,
    JobRefused,
    JobResult,
    JobSpec,
    Reason,
    ReasonCode,
    Wire,
    decode_for_agent,
    decode_for_orchestrator,
    encode,
)

FETCHING: Final = "fetching the model"

log = logging.getLogger(__name__)


class Artifacts(Protocol):
    """Content-addressed files, here and on the server. Both methods block and may be called by any thread."""

    def fetch(self, sha256: str, size: int) -> None:
        """Make sure that a model is in the local store. Raises `ValueError` or `OSError` with the reason."""

    def upload(self, sha256: str) -> None:
        """Make sure that the server has a file of the local store. Raises `ValueError` or `OSError`."""

    def has(self, sha256: str, size: int) -> bool:
        """Whether a model of this size is in the local store."""


class SharedStore:
    """Agent and server use one folder: nothing is to be carried."""

    def fetch(self, sha256: str, size: int) -> None:
        """Nothing to do; the daemon verifies the file before it is used."""

    def upload(self, sha256: str) -> None:
        """Nothing to do."""

    def has(self, sha256: str, size: int) -> bool:  # noqa: ARG002  # the store's form
        """True."""
        return True


@dataclass(slots=True)
class Couriers:
    """Carries files beside the messages, so that the daemon needs no network. One fetch per job at a time;
    a job whose model cannot be had is refused in the agent's name.
    """

    artifacts: Artifacts
    _fetching: set[str] = field(default_factory=set)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def down(self, line: bytes, say: Callable[[bytes], None], answer: Callable[[Wire], None]) -> None:
        """Hand a message down, a job once its model is here. Raises `ValueError` for what is no message."""
        message = decode_for_agent(line)
        if not isinstance(message, JobSpec) or self.artifacts.has(message.model_sha256, message.model_bytes):
            say(line)
            return
        with self._guard:
            if message.attempt_id in self._fetching:
                return
            self._fetching.add(message.attempt_id)
        threading.Thread(target=self._fetch, args=(message, line, say, answer), daemon=True).start()

    def up(self, line: bytes) -> ForOrchestrator:
        """The message of a line, once what it names is on the server. Raises `ValueError` or `OSError`."""
        message = decode_for_orchestrator(line)
        if isinstance(message, JobResult) and message.measurement is not None:
            samples = message.measurement.samples_sha256
            if samples is not None:
                self.artifacts.upload(samples)
        return message

    def _fetch(
        self, job: JobSpec, line: bytes, say: Callable[[bytes], None], answer: Callable[[Wire], None]
    ) -> None:
        try:
            answer(Heartbeat(attempt_id=job.attempt_id, epoch=job.epoch, seq=0, phase=FETCHING))
            self.artifacts.fetch(job.model_sha256, job.model_bytes)
        except (ValueError, OSError) as error:
            reason = Reason(code=ReasonCode.ARTIFACT, text=f"model {job.model_id}: {error}")
            answer(JobRefused(attempt_id=job.attempt_id, epoch=job.epoch, reason=reason))
        else:
            say(line)
        finally:
            with self._guard:
                self._fetching.discard(job.attempt_id)


def to_line(message: Wire) -> bytes:
    """A message without its newline."""
    return encode(message).rstrip(b"\n")
