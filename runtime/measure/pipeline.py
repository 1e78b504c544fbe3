"""Times a pipeline: each frame is pre-processed on the CPU, and the model runs on the frame before meanwhile.

Its rate stands beside that of the same work one after another. Both take turns, so that what else happens
on the machine meets both.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from runtime.delegates.asynchrony import NotStarted, RunSlot
from runtime.delegates.base import Array
from runtime.errors import MisfitError
from runtime.measure.accuracy.pictures import Normalisation, PictureInput
from runtime.measure.in_flight import Alone, Blocking, keep_in_flight, slots_of
from runtime.measure.inputs import POOL_SIZE, InputPool
from runtime.measure.loading import Subject
from runtime.measure.loop import collector_off
from runtime.measure.natural import natural

FRAME: Final = (720, 1280)
"""Height and width of a camera's frame in pixels: HD, which phones' cameras and video calls give."""

_SLOTS: Final = 2
"""Runs that are started: one computes, and the next one's inputs are copied in behind it."""

_PAIRS: Final = 8
"""Stretches of each way, at most. Chosen: of the 10 s that are the default, each has 0.6 s, within which a
machine's state hardly changes."""

_FEWEST: Final = 4
"""Frames of a stretch, at least, of a model that takes longer than the stretch."""

_BLOCK: Final = np.ones(4096, np.float32)
"""16 kB, which stay in a core's first cache: spending time takes none of the memory's rate."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames one after another, the time that they took, and their pre-processing's part of it."""

    count: int = 0
    wall_ns: int = 0
    preprocess_ns: int = 0

    def __add__(self, other: "Frames") -> "Frames":
        return Frames(
            self.count + other.count, self.wall_ns + other.wall_ns, self.preprocess_ns + other.preprocess_ns
        )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`serial`: each frame is pre-processed and then run; `overlapped`: both at once, of two frames.

    What has no frames could not be counted, and `why_not` says why.
    """

    serial: Frames = Frames()
    overlapped: Frames = Frames()
    why_not: str = ""


def pipeline(
    subject: Subject, cpu_ms: float | None, seconds: float, clock: Callable[[], int] = time.perf_counter_ns
) -> Pipeline:
    """Open a model and give it frames for about so many seconds, half of them one after another.

    The pre-processing of a frame takes `cpu_ms` of a processor; None: it makes a picture of a camera's frame
    fit the model's input. `clock` counts ns. Runs that give something else than a run alone leave no
    overlapped frames. Raises what `Subject.open`, `Subject.pool` and a run raise.
    """
    opened = subject.open()
    try:
        if cpu_ms is None:
            feed = _resizing(opened.model.get_input_details())
        else:
            feed = _spending(subject.pool(opened.model), cpu_ms)
    except MisfitError as error:
        return Pipeline(why_not=f"{error}; `cpu_ms` stands for any other pre-processing")
    ways: list[Sequence[RunSlot]] = [[Blocking(opened.model)]]
    slots = slots_of(opened, _SLOTS)
    if isinstance(slots, NotStarted):
        why_not, alone = slots.reason, None
    else:
        ways.append(slots)
        why_not, alone = "", Alone.of(opened, subject.path, InputPool(tuple(map(feed.prepare, feed.raw)), ""))
    found = [Frames()] * len(ways)
    until = 0
    with collector_off():
        # The first stretch of each warms up.
        for turn in range(-1, _PAIRS):
            if turn == 0:
                until = clock() + int(1e9 * seconds)
            elif turn > 0 and clock() >= until:
                break  # so slow a model has few frames: more of them would take minutes
            for way in range(len(ways))[:: -1 if turn % 2 else 1]:
                length_s = seconds / (2 * _PAIRS) if turn >= 0 else 0.0
                frames, number, outputs = _stretch(ways[way], feed, length_s, clock)
                found[way] += frames if turn >= 0 else Frames()
                if way and alone and not why_not and (unlike := alone.difference(number, outputs)):
                    why_not = f"beside the next frame's pre-processing, unlike a run alone: {unlike}"
    return Pipeline(found[0], Frames() if why_not else found[1], why_not)


@dataclass(frozen=True, slots=True)
class _Feed:
    """Frames before their pre-processing, which are taken in turn, and what makes one the model's inputs."""

    raw: Sequence[Any]
    prepare: Callable[[Any], tuple[Array, ...]]


def _resizing(details: Sequence[Mapping[str, Any]]) -> _Feed:
    """Make pictures fit the only input, as LiteRT's tools do. Raises `MisfitError` if it takes none."""
    picture = PictureInput.of(details)
    generator = np.random.Generator(np.random.PCG64(0))
    pictures = natural(generator, (POOL_SIZE, *FRAME, picture.channels))
    # `FRAME` and the channels of a picture are a known shape.
    assert pictures is not None
    frames = np.rint(255 * pictures).astype(np.uint8)
    return _Feed(list(frames), lambda frame: (picture.value(frame, Normalisation()),))


def _spending(pool: InputPool, cpu_ms: float) -> _Feed:
    """Compute for so long of the thread's own time, and give the inputs as they are."""
    scratch = np.empty_like(_BLOCK)

    def prepare(values: tuple[Array, ...]) -> tuple[Array, ...]:
        until = time.thread_time_ns() + int(1e6 * cpu_ms)
        while time.thread_time_ns() < until:
            np.add(_BLOCK, _BLOCK, out=scratch)
        return values

    return _Feed(pool.sets, prepare)


def _stretch(
    slots: Sequence[RunSlot], feed: _Feed, seconds: float, clock: Callable[[], int]
) -> tuple[Frames, int, tuple[Array, ...]]:
    """Give frames for so long; return those between the first end and the last before no more are started,
    the last run's input set, and its outputs.
    """
    ends: list[int] = []
    spent: list[int] = []
    last: list[tuple[int, tuple[Array, ...]]] = []

    def inputs(number: int) -> tuple[Array, ...]:
        began = clock()
        values = feed.prepare(feed.raw[number % len(feed.raw)])
        spent.append(clock() - began)
        return values

    def ended(number: int, outputs: tuple[Array, ...]) -> None:
        ends.append(clock())
        last[:] = [(number % len(feed.raw), outputs)]

    fewest, until = _FEWEST + len(slots), clock() + int(1e9 * seconds)
    runs = keep_in_flight(slots, inputs, lambda started: started < fewest or clock() < until, ended)
    steady = ends[: runs - len(slots)]
    # Between the first and the last of these ends, the inputs of runs len(slots) to runs - 2 were made.
    frames = Frames(len(steady) - 1, steady[-1] - steady[0], sum(spent[len(slots) : runs - 1]))
    return frames, *last[0]
