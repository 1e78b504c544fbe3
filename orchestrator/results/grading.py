"""Grades how well figures are known, and finds the results that more blocks would clarify, the vaguest first.

A grade follows from what is stored, by `runtime.common.verdict`. A cell that was measured with a baseline is
graded by its ratio, in which the state of the machine cancels; its p50 has a grade of its own. It is vague
while its ratio is open, and the baseline itself is measured again with every such cell. Any other cell is
known by its p50, to the target of its plan.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from agent.wire.bounded import MAX_BLOCKS
from agent.wire.measurement import Measurement
from orchestrator.results.records import CellRecord, ComparedCell, Figures, stated_count, void_reason
from orchestrator.results.speedups import Baselines, SpeedUp, counts, paired_speedup, stored_ratio
from runtime.common.verdict import FAR, Grade, grade, half_of, verdict


@dataclass(frozen=True, slots=True)
class Graded:
    """The grade of a figure with its half width and allowance, both logarithms; `half` None: no interval.

    `reason`: the gravest one why it is void; of a fair or noisy one what is known to have kept it from being
    good, empty where nothing is.
    """

    grade: Grade
    half: float | None
    allowance: float
    reason: str = ""

    @property
    def known_to(self) -> float | None:
        """H: how far the true value may be to either side; None without an interval."""
        return None if self.half is None else self.half + self.allowance


def p50_grade(cell: ComparedCell) -> Graded | None:
    """Grade the median of a cell; None where there is none that counts."""
    if cell.measurement is None or not counts(cell):
        return None
    return _graded(cell.measurement, void_reason(cell), by_ratio=False)


def grade_of(cell: ComparedCell) -> Graded | None:
    """Grade a cell by its stored ratio, else by its median; None where nothing of it counts."""
    if cell.measurement is None or not counts(cell):
        return None
    return _graded(cell.measurement, void_reason(cell))


def grade_of_result(m: Measurement) -> Graded | None:
    """Grade what was measured, as `grade_of` does, whether it counts or not."""
    return _graded(m, None if m.quality is None else next(iter(m.quality.void), None))


def _graded(m: Figures, void: str | None, *, by_ratio: bool = True) -> Graded | None:
    if by_ratio and m.ratio is not None:
        half, allowance = half_of(m.ratio.ci95), m.ratio.allowance
    # A void result has a grade even without a median.
    elif m.latency_ms.p50 is None and void is None:
        return None
    else:
        half, allowance = half_of(m.latency_ms.ci95), 0.0 if m.quality is None else m.quality.allowance
    doubt = "" if m.quality is None else next(iter(m.quality.doubts), "")
    found = grade(half, allowance, void=void is not None, doubted=bool(doubt))
    if void is not None or found == "good":
        return Graded(found, half, allowance, void or "")
    if doubt:
        return Graded(found, half, allowance, doubt)
    # The allowance is the larger part of H, so it is the reason; of a share s it is -ln(1 - s) (`Quality`).
    if allowance > (half or 0.0):
        return Graded(
            found, half, allowance, f"others took {-math.expm1(-allowance):.1%} of the time of the rounds"
        )
    return Graded(found, half, allowance, "" if m.quality is None else next(iter(m.quality.facts), ""))


@dataclass(frozen=True, slots=True)
class Vague:
    """A result that is not known well enough. `known_to`: how far the true value may be to either side, a
    logarithm; None: nothing is known of that. `blocks_needed`: how many in all would probably do.
    """

    cell: CellRecord
    known_to: float | None
    blocks_needed: int

    @property
    def seconds(self) -> float | None:
        """About how long the missing blocks take; None where the present ones do not tell."""
        m, last = self.cell.measurement, last_attempt(self.cell)
        if m is None or last is None or not m.blocks:
            return None
        seconds, blocks = last
        return seconds * (self.blocks_needed - len(m.blocks)) / blocks


def last_attempt(cell: CellRecord) -> tuple[float, int] | None:
    """Return the seconds of the attempt that measured a cell last, and how many of its blocks are of it; None
    where nothing tells.
    """
    m = cell.measurement
    took_ns = [a.duration_ns for a in cell.attempts if a.state == "done" and a.duration_ns]
    if m is None or not took_ns:
        return None
    # A block has one process, and those of earlier attempts are not counted, unlike their blocks.
    blocks = (
        stated_count(m.settings, "processes")
        or len(m.blocks)
        or (0 if m.quality is None else m.quality.blocks)
    )
    return (took_ns[-1] / 1e9, blocks) if blocks else None


@dataclass(frozen=True, slots=True)
class Beyond:
    """A vague result that more blocks cannot help, and why."""

    cell: CellRecord
    why: str


Found: TypeAlias = Vague | Beyond
Known: TypeAlias = Literal["known"]


def vague_cells(
    cells: Sequence[CellRecord],
    baseline: str | None,
    target: float | None = None,
    wanted: Collection[str] = (),
) -> tuple[tuple[Vague, ...], tuple[Beyond, ...]]:
    """Return the results to which blocks should be added, the vaguest first, and those that would not gain.

    `target`: a half width to which every figure is to be known, whatever its verdict; None: ratios are to be
    decided, and figures without a baseline to be known to the target of their plan. `wanted`: ids of the
    cells that alone are considered, each of which is vague to whoever asks.
    """
    found = list(_found(cells, baseline, target, wanted))
    vague = [one for one in found if isinstance(one, Vague)]
    vague.sort(key=lambda one: -math.inf if one.known_to is None else -one.known_to)
    return tuple(vague), tuple(one for one in found if isinstance(one, Beyond))


def seen_once(cells: Sequence[CellRecord], baseline: str | None) -> tuple[CellRecord, ...]:
    """Return the cells with a verdict that blocks of another time could change: those of one attempt, whose
    interval is not all beyond `FAR`.

    A machine has states that last longer than an attempt and slow one arm more than the other.
    """
    baselines = Baselines.among(baseline, cells)
    return tuple(cell for cell in cells if _rests_on_one_attempt(cell, baselines.of(cell)))


def _rests_on_one_attempt(cell: CellRecord, baseline: CellRecord | None) -> bool:
    ratio = stored_ratio(cell)
    if ratio is None or sum(attempt.state == "done" for attempt in cell.attempts) != 1:
        return False
    found = paired_speedup(ratio, cell, baseline)
    if found.verdict not in ("faster", "slower", "same"):
        return False
    return abs(math.log(found.ratio)) - (found.half or 0.0) <= math.log(FAR)


def _found(
    cells: Sequence[CellRecord], baseline: str | None, target: float | None, wanted: Collection[str]
) -> Iterable[Found]:
    baselines = Baselines.among(baseline, cells)
    for cell in cells:
        graded = grade_of(cell)
        if graded is None or cell.measurement is None or cell.plan is None:
            continue
        of_baseline = stored_ratio(cell) is None and baselines.delegate == cell.delegate
        # With `wanted` those alone; else all but the baseline, which is measured again with every other cell.
        if cell.cell_id not in wanted if wanted else of_baseline:
            continue
        if graded.grade == "void":
            yield Beyond(cell, f"void: {graded.reason}")
            continue
        aim = target if target is not None else cell.plan.target
        needed = _needed(cell, baselines.of(cell), target, aim)
        if needed == "known" and not wanted:
            continue
        blocks = len(cell.measurement.blocks)
        if needed == "known":
            # Known well enough, and asked for all the same: as many blocks again.
            needed = 2 * blocks
        if needed is None:
            taken = f"others took {-math.expm1(-graded.allowance):.1%} of the time of its rounds"
            yield Beyond(cell, f"no number of blocks is enough: {taken}")
        elif not blocks:
            yield Beyond(cell, "an older release measured it, and kept no blocks")
        elif blocks >= MAX_BLOCKS:
            yield Beyond(cell, f"it has {blocks} blocks, the most that a result may have")
        else:
            yield Vague(cell, graded.known_to, min(max(needed, blocks + 1), MAX_BLOCKS))


def _needed(
    cell: CellRecord, baseline: CellRecord | None, target: float | None, aim: float
) -> int | Known | None:
    """Return the number of blocks that would do; None: no number would."""
    graded, ratio = grade_of(cell), stored_ratio(cell)
    known_to = None if graded is None else graded.known_to
    coarse = known_to is None or known_to > aim
    if ratio is not None:
        found = paired_speedup(ratio, cell, baseline)
        # A decided verdict is enough, unless a half width was asked for that is not reached.
        if target is None or not coarse:
            if found.verdict != "open":
                return "known"
            return (found.blocks_needed or MAX_BLOCKS) if _can_be_decided(found) else None
    if not coarse:
        return "known"
    allowance = 0.0 if graded is None else graded.allowance
    if allowance >= aim:
        return None
    if graded is None or graded.half is None or cell.measurement is None:
        # Not to be computed: one block more than it has (`_found`).
        return 0
    # The half width falls with the root of the number of blocks.
    return math.ceil(len(cell.measurement.blocks) * (graded.half / (aim - allowance)) ** 2)


def _can_be_decided(found: SpeedUp) -> bool:
    """Whether an open ratio would be decided if it were known exactly, anywhere in its present interval."""
    centre, half = math.log(found.ratio), found.half
    if half is None:
        return True
    # A ratio known exactly would most likely be faster or slower at an end of the interval, and the same at
    # the point nearest to no difference: no other point can decide what these three do not.
    nearest = min(max(0.0, centre - half), centre + half)
    return any(
        verdict(place, 0.0, found.allowance) != "open" for place in (centre - half, nearest, centre + half)
    )
