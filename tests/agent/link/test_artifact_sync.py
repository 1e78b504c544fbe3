"""A job goes down once its model is here, and gives signs of life until then."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from agent.link.artifact_sync import FETCHING, NO_ROOM, ArtifactSync, NeverTakenError, SharedStore
from agent.wire.bounded import Wire
from agent.wire.messages import (
    CancelJob,
    Heartbeat,
    JobRefused,
    JobResult,
    JobSpec,
    Reason,
    ReasonCode,
    Status,
    decode_for_orchestrator,
    encode,
)
from agent.wire.reference import ReferenceRecord

JOB = JobSpec(
    attempt_id="a1", attempt_no=1, cell_id="c", epoch=7, device_id="d", model_id="m", model_sha256="5" * 64,
    model_bytes=10, delegate="cpu", delegate_kind="cpu",
)  # fmt: skip
LINE = encode(JOB).rstrip()


@dataclass
class SlowStore:
    """Fetches when it is told to; `fault`: what comes of it."""

    fault: Exception | None = None
    here: bool = False
    go: threading.Event = field(default_factory=threading.Event)
    fetched: int = 0
    held: dict[str, str] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)
    room: bool = True

    def has_room(self) -> bool:
        return self.room

    def has(self, sha256: str, size: int) -> bool:
        return self.here

    def fetch(self, sha256: str, size: int) -> None:
        self.fetched += 1
        assert self.go.wait(60)
        if self.fault:
            raise self.fault

    def upload(self, sha256: str) -> None:
        raise AssertionError("nothing to upload")

    def hold(self, attempt_id: str, files: Iterable[str]) -> None:
        (self.held[attempt_id],) = files

    def release(self, attempt_id: str, *, damaged: bool) -> None:
        self.held.pop(attempt_id, None)
        if damaged:
            self.damaged.append(attempt_id)


@dataclass
class Ends:
    """The messages that went down to the daemon and up to the farm."""

    said: list[bytes] = field(default_factory=list)
    told: list[Wire] = field(default_factory=list)

    def down(self, sync: ArtifactSync, message: Wire) -> None:
        sync.deliver(encode(message).rstrip(), self.said.append, self.told.append)

    def refusals(self) -> list[JobRefused]:
        return [message for message in self.told if isinstance(message, JobRefused)]

    def beats(self) -> list[int]:
        return [message.seq for message in self.told if isinstance(message, Heartbeat)]


def until(ready, limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_with_the_model_here_a_job_goes_straight_down() -> None:
    ends = Ends()
    ends.down(ArtifactSync(SharedStore()), JOB)
    assert (ends.said, ends.told) == ([LINE], [])


def test_a_job_waits_for_its_model_and_gives_signs_of_life() -> None:
    store, ends = SlowStore(), Ends()
    sync = ArtifactSync(store, heartbeat_s=0.01)
    ends.down(sync, JOB)
    ends.down(sync, JOB)
    until(lambda: len(ends.beats()) >= 3)
    assert ends.said == []
    assert store.held == {"a1": "5" * 64}
    store.go.set()
    until(lambda: ends.said == [LINE])
    assert store.fetched == 1
    beats = ends.beats()
    assert beats == list(range(len(beats)))
    assert {message.phase for message in ends.told if isinstance(message, Heartbeat)} == {FETCHING}
    assert store.held == {"a1": "5" * 64}


@pytest.mark.parametrize("here", [True, False], ids=["here", "to-fetch"])
def test_a_job_waits_for_room_on_the_disk_and_costs_no_attempt(here: bool) -> None:
    store, ends = SlowStore(OSError(errno.ENOSPC, "full"), here=here, room=not here), Ends()
    store.go.set()
    ends.down(ArtifactSync(store, heartbeat_s=0.01), JOB)
    until(lambda: NO_ROOM in {message.phase for message in ends.told if isinstance(message, Heartbeat)})
    assert (ends.said, ends.refusals()) == ([], [])
    store.fault, store.room = None, True
    until(lambda: ends.said == [LINE])
    assert ends.refusals() == []


def test_a_job_that_waits_for_room_can_be_cancelled() -> None:
    store, ends = SlowStore(room=False), Ends()
    sync = ArtifactSync(store, heartbeat_s=0.01)
    before = set(threading.enumerate())
    ends.down(sync, JOB)
    until(ends.beats)
    ends.down(sync, CancelJob(attempt_id="a1"))
    assert [refused.reason.code for refused in ends.refusals()] == [ReasonCode.CANCELLED]
    until(lambda: set(threading.enumerate()) <= before)
    assert (ends.said, len(ends.refusals())) == ([], 1)


@pytest.mark.parametrize("fault", [OSError("the farm answers 404"), ValueError("no model")])
def test_a_model_that_cannot_be_had_is_a_refusal_for_the_infrastructure(fault: Exception) -> None:
    store, ends = SlowStore(fault), Ends()
    store.go.set()
    ends.down(ArtifactSync(store), JOB)
    until(ends.refusals)
    (refused,) = ends.refusals()
    assert (refused.epoch, refused.reason.code) == (7, ReasonCode.ARTIFACT)
    assert refused.reason.text.startswith("model m: ")
    assert (ends.said, store.held) == ([], {})


def test_a_job_that_is_cancelled_while_it_waits_is_refused_at_once_and_never_runs() -> None:
    store, ends = SlowStore(), Ends()
    sync = ArtifactSync(store, heartbeat_s=0.01)
    before = set(threading.enumerate())
    ends.down(sync, JOB)
    ends.down(sync, CancelJob(attempt_id="a1"))
    assert [refused.reason.code for refused in ends.refusals()] == [ReasonCode.CANCELLED]
    store.go.set()
    until(lambda: set(threading.enumerate()) <= before)
    assert ends.said == []
    assert len(ends.refusals()) == 1


def test_a_cancellation_of_anything_else_goes_down() -> None:
    ends = Ends()
    ends.down(ArtifactSync(SlowStore()), CancelJob(attempt_id="other"))
    assert ends.said == [encode(CancelJob(attempt_id="other")).rstrip()]


def test_what_the_daemon_refuses_as_damaged_is_told_to_the_store() -> None:
    store = SlowStore(here=True)
    sync, ends = ArtifactSync(store), Ends()
    for code in (ReasonCode.ARTIFACT, ReasonCode.INTERRUPTED):
        ends.down(sync, JOB)
        refused = JobRefused(attempt_id="a1", epoch=7, reason=Reason(code=code, text="x"))
        sync.prepare(encode(refused).rstrip())
    assert (store.held, store.damaged) == ({}, ["a1"])


def reference(key: str, file: str) -> ReferenceRecord:
    return ReferenceRecord(key=key * 64, kind="reference", maker="1/x", sha256=file * 64, size_bytes=9)


class WithoutReferences(SharedStore):
    """The farm has the model, and takes and gives no reference but `f`."""

    fetched: tuple[str, ...] = ()

    def has(self, sha256: str, size: int) -> bool:
        return size == JOB.model_bytes

    def fetch(self, sha256: str, size: int) -> None:
        self.fetched += (sha256[0],)
        if sha256[0] == "e":
            raise OSError("the farm answers 404")

    def upload(self, sha256: str) -> None:
        if sha256[0] == "e":
            raise NeverTakenError("the farm answers 413")


def test_references_are_fetched_before_the_job_and_one_that_cannot_be_had_is_no_obstacle() -> None:
    store, ends = WithoutReferences(), Ends()
    job = JOB.model_copy(update={"references": (reference("1", "e"), reference("2", "f"))})
    ends.down(ArtifactSync(store), job)
    until(lambda: ends.said == [encode(job).rstrip()])
    assert (store.fetched, ends.refusals()) == (("5", "e", "f"), [])


def test_a_result_goes_without_the_references_that_the_farm_never_takes() -> None:
    told = JobResult(
        attempt_id="a1", epoch=7, cell_id="c", device_id="d", status=Status.DONE,
        references=(reference("1", "e"), reference("2", "f")),
    )  # fmt: skip
    sent = decode_for_orchestrator(ArtifactSync(WithoutReferences()).prepare(encode(told).rstrip()))
    assert isinstance(sent, JobResult)
    assert sent == told.model_copy(update={"references": (reference("2", "f"),)})
