"""Times the stages of a start; the code that does the work marks them.

`with stage("compile"):` stands around the work; who measures a start opens the model within `clocked`. Where
nobody measures, a stage costs one look at a context variable.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter_ns
from typing import Final, Literal, TypeAlias, get_args

Stage: TypeAlias = Literal["parse", "partition", "compile", "tune", "upload"]
"""`parse` reads and checks the file. `partition` infers shapes, folds constants and assigns operators to
delegates. `compile` makes what runs them: kernels of the CPU path, or a delegate's graph and program. `tune`
times alternatives. `upload` allocates memory on a device and copies packed constants there."""

STAGES: Final[tuple[Stage, ...]] = get_args(Stage)


class StageClock:
    """Nanoseconds by stage; a stage that was not entered is in none of the figures.

    A stage within another interrupts it, so that no time counts twice. `at_end` is called behind each stage;
    what it takes counts to no stage, and its sum is `told_ns`.
    """

    def __init__(self, at_end: Callable[[Stage], None] | None = None) -> None:
        self._at_end = at_end
        self._spent: dict[Stage, int] = {}
        self._open: list[Stage] = []
        self._since = 0
        self.told_ns = 0

    @property
    def spent_ns(self) -> Mapping[Stage, int]:
        """Nanoseconds of every stage that was entered and has ended."""
        return dict(self._spent)

    @contextmanager
    def within(self, stage: Stage) -> Iterator[None]:
        """Count the time of the block to `stage`, without that of stages in it."""
        self._turn()
        self._open.append(stage)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()
            if self._at_end is not None:
                self._at_end(stage)
                now = perf_counter_ns()
                # `_turn` has set `_since` to the end of the stage.
                self.told_ns += now - self._since
                self._since = now

    def _turn(self) -> None:
        """Give the time since the last turn to the innermost stage."""
        now = perf_counter_ns()
        if self._open:
            stage = self._open[-1]
            self._spent[stage] = self._spent.get(stage, 0) + now - self._since
        self._since = now


_clock: ContextVar[StageClock | None] = ContextVar("stage_clock", default=None)


@contextmanager
def clocked(clock: StageClock) -> Iterator[StageClock]:
    """Within the block, stages of this thread are told to `clock`, and to no outer one."""
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)


@contextmanager
def stage(name: Stage) -> Iterator[None]:
    """Mark the block as the work of this stage."""
    clock = _clock.get()
    if clock is None:
        yield
        return
    with clock.within(name):
        yield
