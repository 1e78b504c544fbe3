"""The arms of an attempt, wherever they are measured: what they share, their time, which go on, how all are
ended.
"""

import contextlib
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from agent.attempt.files import CANCEL_SIGNAL, LEASE_VARIABLE, AttemptFile, Failure, is_cancelled, mark_ending
from agent.runner.judge.stopping import ArmState, Spent, Stopped, after_block, after_halving
from agent.wire.measurement import BlockFigure
from agent.wire.messages import JobSpec, ReasonCode


class FailedError(Exception):
    """A process of the arm ended it; the failure says how, `environment` what it ran in if it said so."""

    def __init__(self, failure: Failure, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(failure.reason.text)
        self.failure = failure
        self.environment = dict(environment or {})


class CancelledError(Exception):
    """The arm was cancelled: it takes no further step, and ends with the blocks that it has finished."""


@dataclass(slots=True)
class Clock:
    """The time of an arm's own turns. `limit_s`: how long they may take together (None: the agent ends the
    runner); `used_s`: how long they took.
    """

    limit_s: float | None = None
    used_s: float = 0.0

    @property
    def left_s(self) -> float | None:
        """The seconds that are left; None without a limit."""
        return None if self.limit_s is None else max(0.0, self.limit_s - self.used_s)

    def timeout(self) -> Failure:
        """Return the failure of an arm whose time is over."""
        text = f"not finished after {self.limit_s:g} s; measure less, or raise the attempt's time limit"
        return Failure.of(ReasonCode.TIMEOUT, text)


def lease_descriptors() -> tuple[int, ...]:
    """Return the lease's descriptors: while a process has them open, the kernel keeps the lock."""
    listed = os.environ.get(LEASE_VARIABLE)
    return () if listed is None else tuple(map(int, listed.split(",")))


@dataclass(slots=True, eq=False)
class AnyArm(ABC):
    """One arm, in a folder of its own. `alone`: the attempt has no other arms. `stopped`: why it needs no
    further block. `cancelled`: it is to end with what it has finished, and takes no further step. `over`: it
    has ended, and takes part in no more blocks.
    """

    attempt: AttemptFile
    folder: Path
    alone: bool = field(kw_only=True)
    stopped: Stopped | None = field(default=None, kw_only=True)
    cancelled: bool = field(default=False, kw_only=True)
    over: bool = field(default=False, kw_only=True)

    @property
    def job(self) -> JobSpec:
        """The job of its attempt."""
        return self.attempt.job

    @property
    def name(self) -> str:
        """`delegate@device`, by which the arms of a comparison are told apart."""
        return f"{self.job.delegate}@{self.job.device_id}"

    @property
    def earlier(self) -> tuple[BlockFigure, ...]:
        """The blocks of the result to which its own are added; none where it is measured from the first."""
        return () if self.job.refines is None else self.job.refines.blocks

    @property
    @abstractmethod
    def has_blocks(self) -> bool:
        """Whether it has finished a block of its own."""

    @abstractmethod
    def kill_if_cancelled(self) -> None:
        """End what it is doing, where the agent has cancelled it."""


A = TypeVar("A", bound=AnyArm)


@dataclass(slots=True)
class Comparison(Generic[A]):
    """All arms of an attempt. `lead`: the attempt that carries them."""

    arms: Sequence[A]
    lead: AttemptFile
    began_s: float

    @property
    def baseline(self) -> A | None:
        """The arm over which the ratios of the others are taken."""
        return next((arm for arm in self.arms if arm.job.attempt_id == self.lead.job.baseline), None)

    @property
    def alive(self) -> list[A]:
        """The arms that go on; none where no attempt is left: a baseline alone serves nobody."""
        alive = [arm for arm in self.arms if not arm.over and not arm.cancelled]
        return alive if any(arm.attempt.reported for arm in alive) else []

    def stop_known(
        self, blocks: int, states: Mapping[str, ArmState], base: A | None, spent: Spent | None
    ) -> None:
        """Stop the arms whose answer is known after so many blocks, by the states of those that are alive."""
        name, plan = None if base is None else base.name, self.lead.job.plan
        if plan.halving is None:
            stops = after_block(plan, blocks, states, name, spent=spent)
        else:
            stops = after_halving(plan, blocks, states, spent=spent)
        for arm in self.alive:
            arm.stopped = stops[arm.name]


@contextlib.contextmanager
def ended_when_asked(arms: Sequence[AnyArm]) -> Iterator[None]:
    """End what an arm is doing once the agent has cancelled it, whichever arm has its turn.

    SIGTERM is for all of them. Where no block is finished, and where the time limit is over, it ends this
    process as it does any other.
    """

    def on_cancel(_number: int = 0, _frame: object = None) -> None:
        for arm in arms:
            arm.kill_if_cancelled()

    def on_terminate(number: int, _frame: object = None) -> None:
        # To have finished blocks judged, the agent marks all arms first; at a time limit it marks none.
        if all(is_cancelled(arm.folder) for arm in arms) and any(arm.has_blocks for arm in arms):
            mark_ending(arms[0].folder)
            os.kill(os.getpid(), CANCEL_SIGNAL)  # for whoever waits for a process meanwhile
        else:
            # By the signal itself, so that the exit status tells it.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    cancel_before, terminate_before = (signal.getsignal(number) for number in (CANCEL_SIGNAL, signal.SIGTERM))
    signal.signal(CANCEL_SIGNAL, on_cancel)
    signal.signal(signal.SIGTERM, on_terminate)
    try:
        yield
    finally:
        signal.signal(CANCEL_SIGNAL, cancel_before)
        signal.signal(signal.SIGTERM, terminate_before)
