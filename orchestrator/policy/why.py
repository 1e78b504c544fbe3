"""Explains the state of a cell in sentences: what it waits for, how long, and what would help. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Occupant:
    """An attempt that holds a device, or one that excludes it. `left_s`: an estimate of its time left."""

    attempt_id: str
    cell_id: str
    device_id: str
    what: str
    phase: str
    since: datetime
    left_s: float


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device that serves the cell's line. `agent`: why its agent gets no work, else empty; `is_checked`: a
    health check of it is queued; `reserved`: how another's reservation keeps the cell from it, else empty;
    `sibling`: the cell of the same class that has it, else empty.
    """

    device_id: str
    present: bool
    agent: str = ""
    quarantine: str | None = None
    is_checked: bool = False
    rests_until: datetime | None = None
    occupant: Occupant | None = None
    reserved: str = ""
    sibling: str = ""


@dataclass(frozen=True, slots=True)
class CellFacts:
    """The facts about a cell from which its state is explained. `position` cells with `ahead_s` seconds of
    work are before it in its line; `waits_since`: when it was submitted or put back. `own`: its live attempt,
    whose clock is another one.
    """

    cell_id: str
    state: str
    line: str
    reason: str
    waits_since: datetime
    not_before: datetime | None
    failures: int
    last_failure: str
    campaign: str
    priority: int
    parked: bool
    paused: bool
    cancelled: bool
    position: int
    ahead_s: float
    devices: tuple[DeviceFacts, ...]
    own: Occupant | None
    job_limit_s: float
    job_started: datetime | None
    heard_at: datetime | None
    scheduler: str
    queue_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """The answer. `blocks`: what keeps it from starting, the nearest cause first; `queue_s`: how long it has
    waited, `queue_left_s`: how long it still may (`limits.queue`; None: without limit); `job_s`: how long its
    attempt runs; `eta_s`: about when it starts (or ends, where it runs), None where it is unknown.
    """

    cell_id: str
    state: str
    line: str
    position: int | None
    queue_s: float | None
    job_s: float | None
    eta_s: float | None
    lease: str | None
    blocks: tuple[str, ...]
    queue_left_s: float | None = None


def explain(facts: CellFacts, now: datetime) -> Why:
    """Turn the facts into an answer."""
    if facts.own is not None:
        return _live(facts, facts.own, now)
    if facts.state != "queued":
        text = f"it has ended: {facts.state}" + (f": {facts.reason}" if facts.reason else "")
        return Why(facts.cell_id, facts.state, facts.line, None, None, None, None, None, (text,))
    blocks = tuple(_blocks(facts, now))
    there = [one for one in facts.devices if one.present and not one.agent and not one.reserved]
    usable = [one for one in there if one.quarantine is None and not one.sibling]
    held = facts.parked or facts.paused or facts.cancelled or not usable or bool(facts.scheduler)
    lease = next((d.occupant.attempt_id for d in usable if d.occupant is not None), None)
    queue_s = max(0.0, (now - facts.waits_since).total_seconds())
    eta_s = None if held else _starts_in(facts, usable, now)
    return Why(
        facts.cell_id, facts.state, facts.line, facts.position, queue_s, None, eta_s, lease,
        blocks or ("nothing: it starts within moments",),
        None if facts.queue_until is None else max(0.0, (facts.queue_until - now).total_seconds()),
    )  # fmt: skip


def _live(facts: CellFacts, own: Occupant, now: datetime) -> Why:
    job_s = None if facts.job_started is None else max(0.0, (now - facts.job_started).total_seconds())
    waited_s = max(0.0, ((facts.job_started or own.since) - facts.waits_since).total_seconds())
    if job_s is None:
        text = f"attempt {own.attempt_id} was given to {own.device_id}, which has not started it yet"
    else:
        phase = f": {own.phase}" if own.phase else ""
        text = f"attempt {own.attempt_id} runs on {own.device_id}{phase}"
        text += f"; it may take {facts.job_limit_s:.0f} s"
    heard = "" if facts.heard_at is None else f"; last message {_ago(facts.heard_at, now)} ago"
    blocks = [text + heard]
    if facts.cancelled:
        blocks.append("a user cancelled it; its agent was asked to stop")
    return Why(
        facts.cell_id, facts.state, facts.line, None, waited_s, job_s, own.left_s, own.attempt_id,
        tuple(blocks),
    )  # fmt: skip


def _blocks(facts: CellFacts, now: datetime) -> Iterator[str]:
    name = facts.campaign
    if facts.cancelled:
        yield "a user cancelled it"
    if facts.paused:
        yield f"campaign {name} is paused; continue with: farm queue resume {name}"
    if facts.parked:
        yield f"no process waits for campaign {name}; submit it again to continue it"
    if facts.scheduler:
        yield facts.scheduler
    if facts.not_before is not None and facts.not_before > now:
        left_s = (facts.not_before - now).total_seconds()
        failed = f" after {facts.failures} failed (last: {facts.last_failure})" if facts.failures else ""
        yield f"its next attempt{failed} comes in {left_s:.0f} s"
    if not facts.devices:
        yield f"no device serves {facts.line} now"
    for device in facts.devices:
        yield from _device_blocks(device, now)
    if facts.position:
        count = "1 cell" if facts.position == 1 else f"{facts.position} cells"
        yield f"{count} before it in the line of {facts.line}"


def _device_blocks(device: DeviceFacts, now: datetime) -> Iterator[str]:
    name = device.device_id
    if not device.present:
        yield f"{name} is absent: its agent's last hello did not name it"
    if device.agent:
        yield f"{name}: {device.agent}"
    if device.quarantine is not None:
        free = "a health check frees it, or" if device.is_checked else "back with"
        yield f"{name} is in quarantine ({device.quarantine}); {free}: farm devices release {name}"
    if device.reserved:
        yield f"{name}: {device.reserved}"
    if device.sibling:
        yield f"{name} is that of cell {device.sibling}, and each cell of a class wants another device"
    if device.occupant is not None:
        holder = device.occupant
        where = "" if holder.device_id == name else f" on {holder.device_id}, which excludes it"
        yield (
            f"{name} is busy{where} with attempt {holder.attempt_id} (cell {holder.cell_id}: {holder.what}"
            f"{', ' + holder.phase if holder.phase else ''}) for {_ago(holder.since, now)}, "
            f"about {holder.left_s:.0f} s more"
        )
    # Of a free device alone: a busy one rests once its attempt has ended.
    elif device.rests_until is not None and device.rests_until > now:
        yield f"{name} cools down for {(device.rests_until - now).total_seconds():.0f} s more"


def _starts_in(facts: CellFacts, usable: Sequence[DeviceFacts], now: datetime) -> float:
    """Seconds until a device is free and has done what is before the cell, shared among the devices."""
    # There is one at least: without any, `explain` asks for no estimate.
    free_in = min(_free_in(device, now) for device in usable)
    delay_s = 0.0 if facts.not_before is None else (facts.not_before - now).total_seconds()
    return max(0.0, delay_s, free_in + facts.ahead_s / len(usable))


def _free_in(device: DeviceFacts, now: datetime) -> float:
    rest_s = 0.0 if device.rests_until is None else (device.rests_until - now).total_seconds()
    return max(0.0, rest_s, 0.0 if device.occupant is None else device.occupant.left_s)


def _ago(moment: datetime, now: datetime) -> str:
    return f"{max(0.0, (now - moment).total_seconds()):.0f} s"


def sentences(answer: Why) -> Iterator[str]:
    """Yield what blocks a cell, its clocks, and when it starts or ends.

    The queue clock and the job clock are separate: time in the queue counts towards no timeout of attempts.
    """
    yield f"cell {answer.cell_id} is {answer.state}, in the queue of {answer.line}"
    for text in answer.blocks:
        yield f"  {text}"
    if answer.queue_s is not None:
        left = answer.queue_left_s
        limit = "counts towards no limit" if left is None else f"it fails in {_clock(left)}: limits.queue"
        yield f"queue clock: {_clock(answer.queue_s)} ({limit})"
    if answer.job_s is not None:
        yield f"job clock: {_clock(answer.job_s)}"
    if answer.lease is not None:
        yield f"lease: attempt {answer.lease}"
    if answer.eta_s is not None:
        what = "starts" if answer.state == "queued" else "ends"
        yield f"{what} in about {_clock(answer.eta_s)}"
    elif answer.state == "queued":
        yield "starts once nothing blocks it"


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
