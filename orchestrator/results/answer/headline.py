"""The words around the table: above, who is fastest, by how much and on how many, and what a first start
costs; below, the signs that occur, what is open and how it is decided, and the footnotes.

A sentence is a sequence of clauses; where a line is too short for all of them, the last ones are left out.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Final, TypeAlias

from orchestrator.results import format as text
from orchestrator.results.answer import entries
from orchestrator.results.answer.entries import ON_CPU, Placed, Title, missing, threads
from orchestrator.results.grading import grade_of, last_attempt, p50_grade
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import SpeedUp, mean_speedup
from orchestrator.results.wording import SIGNS, Footnotes

_NOT_OF_A_NAME: Final = re.compile(r"\((?:R|TM)\)| Processor$")
"""What processors add to their names, for which the first line has no room."""


def title_of(cells: Sequence[CellRecord]) -> Title:
    """Say whose results these are; a cell is right where its output was judged and its figure counts."""
    campaigns = list(dict.fromkeys(cell.campaign for cell in cells))
    models, levels = {cell.model for cell in cells}, dict.fromkeys(cell.level for cell in cells)
    judged = (c.measurement for c in cells if missing(c) is None)
    right = sum(m is not None and m.accuracy.verdict == "pass" for m in judged)
    about = (text.counted(len(models), "model"), _devices(cells), " + ".join(levels), _moment(cells))
    name = campaigns[0] if len(campaigns) == 1 else text.counted(len(campaigns), "campaign")
    return Title(name, tuple(filter(None, about)), f"{right}/{len(cells)} right")


def _devices(cells: Sequence[CellRecord]) -> str:
    """Name the machine's processor where all cells ran on it, else count the devices; with the threads."""
    names = {cell.device_name.removesuffix(ON_CPU) for cell in cells if cell.device != "-"}
    device = _NOT_OF_A_NAME.sub("", "".join(names)) if len(names) == 1 else text.counted(len(names), "device")
    counted = {threads(cell) for cell in cells} - {""}
    return f"{device}, {text.counted(int(counted.pop()), 'thread')}" if len(counted) == 1 else device


def _moment(cells: Sequence[CellRecord]) -> str:
    """When the last of the cells ended, in UTC; the year is in the other forms of the results."""
    ends = [cell.finished_at for cell in cells if cell.finished_at is not None]
    if not ends:
        return ""
    last = max(ends).astimezone(UTC)
    return f"{last.day} {last:%b %H:%M}"


Sentence: TypeAlias = tuple[str, ...]
Ratios: TypeAlias = Sequence[SpeedUp | None]
"""The ratios of a delegate, one for each of its models; None where it has none."""

_PHRASES: Final[Mapping[str, tuple[str, str]]] = {
    "faster": ("beats {} on", "wins on"),
    "slower": ("loses to {} on", "loses on"),
    "same": ("equals {} on", "equal on"),
    "open": ("is open against {} on", "open on"),
    "unpaired": ("is unpaired with {} on", "unpaired on"),
    "none": ("has no ratio over {} on", "no ratio on"),
}
"""How each verdict is said where the baseline is named, and where it was named before."""

_SLOW_START_MS: Final = 100.0
"""A first start in ms below which it is not told how much sooner a later one is: nobody waits for it."""

_SOONER: Final = 2.0
"""How many times as soon a later start must be to be told."""


def verdicts(baseline: str, delegates: Mapping[str, Ratios]) -> Sentence:
    """Say how each delegate does against the baseline: of those with the most models, the fastest first."""
    order = sorted(delegates, key=lambda name: (-len(delegates[name]), -_mean(delegates[name])))
    clauses: list[str] = []
    for name in order:
        own = list(_clauses(delegates[name], "" if clauses else baseline))
        if not own:
            continue
        lead = f"; {name} " if clauses else f"{name} "
        # On a short line the clauses of the first delegate go one by one, those of any other one together.
        clauses += [lead + own[0], *own[1:]] if not clauses else [lead + "".join(own)]
    return tuple(clauses)


def _mean(ratios: Ratios) -> float:
    mean = mean_speedup([one for one in ratios if one is not None])
    return 0.0 if mean is None else mean.ratio


def _clauses(ratios: Ratios, baseline: str) -> Iterator[str]:
    """Say it of one delegate; `baseline` is empty where it was named before."""
    named, first = baseline, True
    by_verdict: dict[str, list[float]] = {verdict: [] for verdict in _PHRASES}
    for one in ratios:
        if one is None or one.verdict == "void":
            # It is counted alone: factors are told of faster and slower ones.
            by_verdict["none"].append(1.0)
        else:
            # Above 1 for a slower one, too: `loses to` tells the direction.
            by_verdict[one.verdict].append(max(one.ratio, 1.0 / one.ratio))
    for verdict, factors in by_verdict.items():
        if factors:
            count = f"{len(factors)} of {len(ratios)}" if first else str(len(factors))
            size = _size(factors) if verdict in ("faster", "slower") else ""
            phrase = _PHRASES[verdict][0 if named else 1].format(named)
            yield f"{'' if first else ', '}{phrase} {count}{size}"
            named, first = "", False


def _size(factors: Sequence[float]) -> str:
    """Write `(1.8x)` for one factor, else `(up to 1.8x)`."""
    return f" ({'up to ' if len(factors) > 1 else ''}{text.known(max(factors), None)}x)"


def fastest(p50s: Mapping[str, Sequence[float | None]]) -> Sentence:
    """Say which delegate has the least median on how many models, where there is no baseline to judge by."""
    rows = [[one for one in row if one is not None] for row in zip(*p50s.values(), strict=True)]
    measured = sum(bool(row) for row in rows)
    if not measured:
        return ("Nothing was measured",)
    if len(p50s) == 1:
        values = [value for row in rows for value in row]
        return (f"{next(iter(p50s))}: p50 of {_range(values)}", "; one delegate, no ratio")
    least = [min(row) if row else None for row in rows]
    wins = {
        name: sum(own is not None and own == best for own, best in zip(values, least, strict=True))
        for name, values in p50s.items()
    }
    said = [f"{name} on {count}" for name, count in sorted(wins.items(), key=lambda item: -item[1]) if count]
    return (
        f"Least p50: {said[0]} of {measured}",
        *(f", {one}" for one in said[1:]),
        "; no baseline, so no verdict",
    )


def first_starts(inits: Mapping[str, Sequence[tuple[float, float | None]]]) -> Sentence:
    """Say what the first start of each delegate costs, and what a later one does where that is much less.

    `inits` has the cold and the warm init of each model in ms. The dearest delegate comes first.
    """
    said: list[str] = []
    for _, name in sorted((-max(cold for cold, _ in pairs), name) for name, pairs in inits.items() if pairs):
        cold = [pair[0] for pair in inits[name]]
        warm = [pair[1] for pair in inits[name] if pair[1] is not None]
        later = ""
        if warm and max(cold) >= max(_SLOW_START_MS, _SOONER * max(warm)):
            later = f" (later {_range(warm)})"
        said.append(f"{', ' if said else 'First start: '}{name} {_range(cold)}{later}")
    return tuple(said)


def _range(values_ms: Sequence[float]) -> str:
    """Write `4.1-10 s` or `30 ms-4.1 s`."""
    low, high = text.short_time(min(values_ms)), text.short_time(max(values_ms))
    if low == high:
        return low
    unit = low.lstrip("0123456789.")
    same = high.lstrip("0123456789.") == unit
    return f"{low.removesuffix(unit) if same else low}-{high}"


REFINE: Final = "farm refine {}"
"""The command that measures on what is open; takes a campaign."""

MOST_NOTES: Final = 6
"""Footnotes below a table, the worst ones. Chosen: more of them push the table off a screen of 24 lines."""


def legend(cells: Sequence[CellRecord], placed: Placed) -> Iterator[str]:
    """Explain the signs that occur, one part each, and say how what is open can be decided."""
    shown = [cell for cell in cells if entries.missing(cell) is None]
    ratios = {cell.cell_id: one for cell in shown if (one := placed.ratios[cell.cell_id]) is not None}
    verdicts = {one.verdict for one in ratios.values()}
    if sure := "".join(SIGNS[one] for one in ("faster", "slower") if one in verdicts):
        yield f"{sure} sure (95 %)"
    if "same" in verdicts:
        yield f"{SIGNS['same']} the same"
    yield from _cautions(shown, unpaired="unpaired" in verdicts)
    if "open" in verdicts:
        yield _open(shown, {key: one for key, one in ratios.items() if one.verdict == "open"})


def _cautions(shown: Sequence[CellRecord], *, unpaired: bool) -> Iterator[str]:
    if unpaired:
        yield f"{SIGNS['unpaired']} unpaired, no verdict"
    graded = [one for cell in shown for one in (grade_of(cell), p50_grade(cell)) if one is not None]
    if any(one.grade == "noisy" for one in graded):
        yield f"{entries.NOISY} noisy"
    measured = [cell.measurement for cell in shown if cell.measurement is not None]
    if any(cell.imported is not None for cell in shown):
        yield f"{entries.IMPORTED} measured by another tool, not compared"
    if any(c.measurement is None or c.measurement.accuracy.verdict is None for c in shown if not c.imported):
        yield f"{entries.NOT_JUDGED} output not judged"
    if any(m.delegation is not None and m.delegation.status != "full" for m in measured):
        yield f"{entries.PARTLY} partly on the CPU"
    if any(cell.again for cell in shown):
        yield f"{entries.AGAIN} being measured again"
    if reused := sum(cell.reused_from is not None for cell in shown):
        yield f"{reused} reused"


def _open(shown: Sequence[CellRecord], left: Mapping[str, SpeedUp]) -> str:
    """Say how many ratios are open, and which command decides them in how many minutes."""
    said = f"{SIGNS['open']} open: {len(left)}"
    if all(one.stays_open for one in left.values()):
        return f"{said}, {' or '.join(sorted({one.stays_open for one in left.values()}))}"
    campaigns = {cell.campaign for cell in shown if cell.cell_id in left}
    if len(campaigns) > 1:
        return said
    minutes = _minutes(shown, left)
    command = REFINE.format(shlex.quote(campaigns.pop()))
    return f"{said} (`{command}`{'' if minutes is None else f', ~{minutes} min'})"


def _minutes(shown: Sequence[CellRecord], left: Mapping[str, SpeedUp]) -> int | None:
    """Estimate how long it takes to decide what is open: the blocks that are missing, times what one takes.

    The arms of a block are the cells of one model and level. None where no attempt says how long it took.
    """
    seconds = 0.0
    for row in {(cell.model, cell.level) for cell in shown if cell.cell_id in left}:
        arms = [cell for cell in shown if (cell.model, cell.level) == row]
        found = [left[cell.cell_id] for cell in arms if cell.cell_id in left]
        missing = max((one.blocks_needed or 0) - one.blocks for one in found)
        # The cold processes take the time of one block more.
        took = [one for cell in arms if (one := last_attempt(cell)) is not None]
        block_s = sum(arm_s / (1 + blocks) for arm_s, blocks in took)
        seconds += max(missing, 0) * block_s
    return max(1, round(seconds / 60)) if seconds else None


def noted(notes: Footnotes) -> Iterator[str]:
    """Write the worst footnotes, each with the first line of its reason."""
    listed = notes.listed()
    for mark, reason in listed[:MOST_NOTES]:
        yield f"[{mark}] {reason.strip().partition(chr(10))[0]}"
    if len(listed) > MOST_NOTES:
        yield f"{len(listed) - MOST_NOTES} more reasons: -v"
