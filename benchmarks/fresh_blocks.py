"""Blocks of fresh processes: one of each contender, which take turns by rounds; then all are started anew.

Rounds of one block differ by what drifts meanwhile; blocks differ also by what a process draws at its start:
the placement of its memory, what it tunes. Whoever repeats rounds in one process repeats the first alone, and
gets intervals that are too narrow. Here each block gives one ratio, and the interval is Student's over the
logarithms of the blocks' ratios, as for the farm's cells.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.interleaved import FOREIGN_CPU_LIMIT, TICK_SECONDS, Ratio, busy_seconds, ratio
from runtime.common.statistics import estimate

REPOSITORY: Final = Path(__file__).resolve().parent.parent

SLOW_ROUNDS: Final = 3
"""Rounds of a block in which slow contenders take part: reference kernels are 50 times as slow as XNNPACK."""

PATIENCE: Final = 3
"""A block ends without its rounds once so many times as many were disturbed."""


class DisturbedError(RuntimeError):
    """Other programs used the CPUs in most rounds."""


class EndedError(RuntimeError):
    """A contender that ran before has ended by itself."""


class Contender:
    """A process that runs slices of calls when it is asked; see `benchmarks.contender`."""

    def __init__(self, name: str, model: Path, cpus: Sequence[int]) -> None:
        count = str(len(cpus))
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POCL_MAX_PTHREAD_COUNT")
        command = ["taskset", "-c", ",".join(map(str, cpus))]
        command += [sys.executable, "-m", "benchmarks.contender", name, str(model), count]
        self.name = name
        self._process = subprocess.Popen(
            command,
            env=os.environ | dict.fromkeys(names, count),
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        said = self._answer()
        self.absent: str | None = said.get("absent")
        self.delegation: str | None = said.get("delegation")
        self.calls = 1

    def calibrate(self, slice_s: float) -> None:
        """Choose how many calls fill a slice; one that alone takes longer is not repeated for that."""
        for _ in range(3):
            taken = self.run(1)
            if taken > slice_s:
                return
        self.calls = max(1, round(slice_s / max(taken, 1e-6)))

    def run(self, calls: int) -> float:
        """Median seconds of so many calls."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{calls}\n")
        self._process.stdin.flush()
        said = self._answer()
        if "seconds" not in said:
            raise EndedError(f"{self.name} {said['absent']}")
        return float(said["seconds"])

    def cpu_seconds(self) -> float:
        """CPU seconds of the process until now."""
        fields = (
            Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) * TICK_SECONDS

    def close(self) -> None:
        """End the process by ending its input."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return dict(json.loads(line)) if line else {"absent": f"ended with {self._process.wait()}"}


@dataclass(frozen=True, slots=True)
class Block:
    """Median seconds of a call by contender, for each undisturbed round that it took part in."""

    seconds: Mapping[str, tuple[float, ...]]
    rejected: int

    def ratio(self, name: str, baseline: str) -> float:
        """How many times as fast a contender is: the median of the ratios of its rounds."""
        return median(b / own for b, own in zip(self.seconds[baseline], self.seconds[name], strict=False))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a comparison runs: `slice_s` seconds per contender and round; `slow`: who has few rounds."""

    blocks: int
    rounds: int
    slice_s: float
    foreign_limit: float = FOREIGN_CPU_LIMIT
    slow: frozenset[str] = frozenset()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """What came out; `absent`: why a contender is not among them."""

    blocks: tuple[Block, ...]
    absent: Mapping[str, str]
    delegation: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """The contenders that ran in every block."""
        return [name for name in self.blocks[0].seconds if all(name in b.seconds for b in self.blocks)]


def compare(names: Sequence[str], model: Path, threads: int, plan: Plan) -> Found:
    """Start every contender once, so that what is compiled and tuned is kept; then measure the blocks.

    Raises `DisturbedError` and `EndedError`.
    """
    cpus = sorted(os.sched_getaffinity(0))[:threads]
    absent, delegation = {}, {}
    for name in names:
        with _started([name], model, cpus) as (first,):
            if first.absent is not None:
                absent[name] = first.absent
            elif first.delegation is not None:
                delegation[name] = first.delegation
    present = [name for name in names if name not in absent]
    blocks = tuple(_block(present, model, cpus, plan, block) for block in range(plan.blocks))
    return Found(blocks, absent, delegation)


def over_processes(found: Found, name: str, baseline: str) -> tuple[float, tuple[float, float] | None]:
    """The speed over the baseline, and its 95 % interval over the blocks; None below three of them."""
    ratios = [block.ratio(name, baseline) for block in found.blocks]
    mean = estimate([math.log(ratio) for ratio in ratios])
    return mean.value, mean.interval


def over_rounds(found: Found, name: str, baseline: str) -> Ratio:
    """The same over the rounds of the first block alone, as if its processes were all there are."""
    seconds = found.blocks[0].seconds
    count = len(seconds[name])
    return ratio(seconds[baseline][:count], seconds[name])


def _block(names: Sequence[str], model: Path, cpus: Sequence[int], plan: Plan, number: int) -> Block:
    rng = random.Random(f"{plan.seed}:{number}")  # noqa: S311  # an order of work, no secret
    order = list(names)
    rng.shuffle(order)
    with _started(order, model, cpus) as contenders:
        for contender in contenders:
            contender.calibrate(plan.slice_s)
        seconds: dict[str, list[float]] = {name: [] for name in names}
        done = rejected = 0
        while done < plan.rounds:
            taking_part = [c for c in contenders if c.name not in plan.slow or done < SLOW_ROUNDS]
            rng.shuffle(taking_part)
            before = _load(contenders)
            taken = {contender.name: contender.run(contender.calls) for contender in taking_part}
            if _foreign_share(before, _load(contenders)) > plan.foreign_limit:
                rejected += 1
                if rejected > PATIENCE * plan.rounds:
                    raise DisturbedError(
                        f"other programs disturbed {rejected} rounds; repeat on a quiet machine"
                    )
                continue
            done += 1
            for name, value in taken.items():
                seconds[name].append(value)
    return Block({name: tuple(values) for name, values in seconds.items()}, rejected)


@contextmanager
def _started(names: Sequence[str], model: Path, cpus: Sequence[int]) -> Iterator[list[Contender]]:
    with ExitStack() as stack:
        contenders = []
        for name in names:
            contender = Contender(name, model, cpus)
            stack.callback(contender.close)
            contenders.append(contender)
        yield contenders


def _load(contenders: Sequence[Contender]) -> tuple[float, float, float]:
    """(wall, busy seconds of all CPUs, CPU seconds of this process and the contenders)."""
    wall, busy, own = busy_seconds()
    return wall, busy, own + sum(contender.cpu_seconds() for contender in contenders)


def _foreign_share(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    wall, busy, own = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, busy - own) / wall
