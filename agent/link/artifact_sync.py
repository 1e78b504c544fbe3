"""Transfers files: to this host before the job that needs them, to the server before the result with them."""

import errno
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, Protocol

from agent.wire import messages
from agent.wire.bounded import MAX_WARNINGS, Wire

FETCHING: Final = "fetching the model"
NO_SAMPLES: Final = "its raw samples are missing:"
NO_ROOM: Final = "waiting: no space left on the agent's disk; free some"

log = logging.getLogger(__name__)


class NeverTakenError(OSError):
    """The server will never take a file, however often it is sent; the text tells why."""


class Artifacts(Protocol):
    """Content-addressed files, here and on the server. `fetch` and `upload` block; any thread may call."""

    def fetch(self, sha256: str, size: int) -> None:
        """Make sure that a model is in the local store. Raises `ValueError` or `OSError` with the reason."""

    def upload(self, sha256: str) -> None:
        """Make sure that the server has a file of the local store.

        Raises `NeverTakenError`; `ValueError` or `OSError` where a later try may do better.
        """

    def has(self, sha256: str, size: int) -> bool:
        """Whether a model of this size is in the local store, intact as far as is known."""

    def has_room(self) -> bool:
        """Whether the disk has room for an attempt to work."""

    def hold(self, attempt_id: str, files: Iterable[str]) -> None:
        """Protect the files that an attempt is going to use from eviction."""

    def release(self, attempt_id: str, *, damaged: bool) -> None:
        """End the protection of an attempt's files; `damaged`: the daemon could not use the model's file."""


class SharedStore:
    """Agent and server use one folder: nothing has to be transferred."""

    def fetch(self, sha256: str, size: int) -> None:
        """Nothing to do; the daemon verifies the file before it is used."""

    def upload(self, sha256: str) -> None:
        """Nothing to do."""

    def has(self, sha256: str, size: int) -> bool:  # noqa: ARG002  # the store's form
        """Return True: the daemon verifies the file before it is used."""
        return True

    def has_room(self) -> bool:
        """Return True: the server looks after its own disk."""
        return True

    def hold(self, attempt_id: str, files: Iterable[str]) -> None:
        """Nothing to do."""

    def release(self, attempt_id: str, *, damaged: bool) -> None:
        """Nothing to do; a damaged file is the farm's own."""


@dataclass(slots=True)
class _Waiting:
    """A job that waits for its model or for room on the disk; `phase` says which."""

    job: messages.JobSpec
    over: threading.Event = field(default_factory=threading.Event)
    phase: str = FETCHING


@dataclass(slots=True)
class ArtifactSync:
    """Transfers files beside the messages, so that the daemon needs no network. One fetch per job at a time;
    a job whose model is not available, or that is cancelled meanwhile, is refused for the agent. A full
    disk is not the job's fault: it waits until there is room.

    `heartbeat_s`: seconds between the heartbeats of a job that waits for its model.
    """

    artifacts: Artifacts
    heartbeat_s: float = 10.0
    _waiting: dict[str, _Waiting] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def deliver(self, line: bytes, down: Callable[[bytes], None], up: Callable[[Wire], None]) -> None:
        """Pass a message `down` to the daemon, a job once its model is here; heartbeats of a job that waits,
        and its refusal, go `up`. Raises `ValueError` for what is not a message.
        """
        message = messages.decode_for_agent(line)
        if isinstance(message, messages.CancelJob) and (waiting := self._end(message.attempt_id)):
            self._refuse(
                waiting.job, messages.ReasonCode.CANCELLED, "cancelled while its model was fetched", up
            )
            return
        if isinstance(message, messages.JobSpec):
            # Before the check: a file that is here must not be evicted while its job waits for another one.
            for own in message.attempts:
                self.artifacts.hold(own.attempt_id, message.files | message.reference_files)
            needed = message.files | message.reference_files
            here = all(self.artifacts.has(name, size) for name, size in needed.items())
            if not here or not self.artifacts.has_room():
                self._begin(message, line, down, up)
                return
        down(line)

    def prepare(self, line: bytes) -> bytes:
        """Prepare to send a result or a refusal: upload its files, and stop protecting the attempt's.

        Returns the line to send: where the server will never take a file, the result without it. Raises
        `ValueError` or `OSError` while the files cannot be uploaded.
        """
        message = messages.decode_for_orchestrator(line)
        if isinstance(message, messages.JobResult):
            sent = self._with_files(message)
            line = line if sent is message else to_line(sent)
        if isinstance(message, messages.JobResult | messages.JobRefused):
            damaged = message.reason is not None and message.reason.code is messages.ReasonCode.ARTIFACT
            self.artifacts.release(message.attempt_id, damaged=damaged)
        return line

    def _with_files(self, result: messages.JobResult) -> messages.JobResult:
        """Upload the files of a result; return it without those that the server will never take."""
        measured = result.measurement
        for sha256 in () if measured is None else measured.artifacts:
            try:
                self.artifacts.upload(sha256)
            except NeverTakenError as error:
                log.error("attempt %s: %s %s", result.attempt_id, NO_SAMPLES, error)
                result = _without_artifact(result, sha256, str(error))
        refused = set()
        for made in result.references:
            if made.sha256 is not None:
                try:
                    self.artifacts.upload(made.sha256)
                except NeverTakenError as error:
                    log.warning("attempt %s: a reference stays here: %s", result.attempt_id, error)
                    refused.add(made.key)
        if refused:
            kept = tuple(made for made in result.references if made.key not in refused)
            result = result.model_copy(update={"references": kept})
        return result

    def _begin(
        self, job: messages.JobSpec, line: bytes, down: Callable[[bytes], None], up: Callable[[Wire], None]
    ) -> None:
        waiting = _Waiting(job)
        with self._guard:
            if job.attempt_id in self._waiting:  # the farm repeated the job while its files are fetched
                return
            self._waiting[job.attempt_id] = waiting
        # Not in this thread, which takes the farm's messages: the next one may cancel this job.
        for work, arguments in (
            (self._fetch, (waiting, line, down, up)),
            (self._send_heartbeats, (waiting, up)),
        ):
            threading.Thread(target=work, args=arguments, daemon=True).start()

    def _fetch(
        self, waiting: _Waiting, line: bytes, down: Callable[[bytes], None], up: Callable[[Wire], None]
    ) -> None:
        job = waiting.job
        why = self._wait_for_files(waiting)
        if self._end(job.attempt_id) is None:  # cancelled meanwhile; the cancellation has refused it
            return
        if why is None:
            down(line)
        else:
            self._refuse(job, messages.ReasonCode.ARTIFACT, why, up)

    def _wait_for_files(self, waiting: _Waiting) -> str | None:
        """Fetch what a job needs, as soon as there is room for it. Return None, or the reason why not."""
        job = waiting.job
        while True:
            if self.artifacts.has_room():
                try:
                    for name, size in job.files.items():
                        self.artifacts.fetch(name, size)
                except (ValueError, OSError) as error:
                    if getattr(error, "errno", None) != errno.ENOSPC:
                        return f"model {job.model_id}: {error}"
                else:
                    self._fetch_references(job)
                    return None
            if waiting.phase != NO_ROOM:
                log.error("attempt %s: %s", job.attempt_id, NO_ROOM)
                waiting.phase = NO_ROOM
            if waiting.over.wait(self.heartbeat_s):
                return NO_ROOM

    def _fetch_references(self, job: messages.JobSpec) -> None:
        """Fetch the references that the farm named. One that does not come is made anew."""
        for name, size in job.reference_files.items():
            try:
                self.artifacts.fetch(name, size)
            except (ValueError, OSError) as error:
                log.warning("model %s: reference %s is made anew: %s", job.model_id, name[:12], error)

    def _send_heartbeats(self, waiting: _Waiting, up: Callable[[Wire], None]) -> None:
        """Heartbeats while the model is fetched: a large one takes longer than the farm tolerates silence."""
        job = waiting.job
        for seq in count():
            for own in job.attempts:
                up(
                    messages.Heartbeat(
                        attempt_id=own.attempt_id, epoch=own.epoch, seq=seq, phase=waiting.phase
                    )
                )
            if waiting.over.wait(self.heartbeat_s):
                return

    def _end(self, attempt_id: str) -> _Waiting | None:
        """Stop waiting for a job's files; None where the job did not wait."""
        with self._guard:
            waiting = self._waiting.pop(attempt_id, None)
        if waiting is not None:
            waiting.over.set()
        return waiting

    def _refuse(
        self, job: messages.JobSpec, code: messages.ReasonCode, why: str, up: Callable[[Wire], None]
    ) -> None:
        for own in job.attempts:
            self.artifacts.release(own.attempt_id, damaged=False)
            reason = messages.Reason(code=code, text=why)
            # The cancel is for the attempt that carries the others; the farm is to try those again.
            if code is messages.ReasonCode.CANCELLED and own.attempt_id != job.attempt_id:
                reason = messages.Reason(
                    code=messages.ReasonCode.INTERRUPTED, text="the attempt that carried it was cancelled"
                )
            up(messages.JobRefused(attempt_id=own.attempt_id, epoch=own.epoch, reason=reason))


def _without_artifact(result: messages.JobResult, sha256: str, why: str) -> messages.JobResult:
    """Return the result with all its figures, and the reason why raw samples or answers are missing."""
    assert result.measurement is not None
    said, measured = f"{NO_SAMPLES} {why}", result.measurement.without_artifact(sha256)
    kept = measured.model_copy(update={"warnings": (*measured.warnings[: MAX_WARNINGS - 1], said)})
    # A result that is not complete has a reason of its own, which counts for more.
    reason = result.reason
    if result.status is messages.Status.DONE:
        reason = messages.Reason(code=messages.ReasonCode.COMPLETED, text=said)
    return result.model_copy(update={"measurement": kept, "reason": reason})


def to_line(message: Wire) -> bytes:
    """Encode a message as a line without its newline."""
    return messages.encode(message).rstrip(b"\n")
