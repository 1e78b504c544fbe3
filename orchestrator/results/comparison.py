"""Turns records into the text of the comparison table, models x delegate@device; the CLI lays it out."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agent.wire.measurement import Measurement
from orchestrator.results import metrics
from orchestrator.results.format import counted, half_width, percent, ratio, ratio_interval
from orchestrator.results.grading import grade_of
from orchestrator.results.metric import Metric
from orchestrator.results.metrics import CI95, P50, leading
from orchestrator.results.records import WRONG_OUTPUT, CellRecord
from orchestrator.results.speedups import Baselines, speedup, stored_ratio
from orchestrator.results.wording import SIGNS, WORDS, grade_text

AGAIN = "↻"
"""Stands before why an earlier result is shown."""
_UNCERTAIN = "≈"
_LOPSIDED = 2.0
"""High over low of an interval above which both ends are written instead of `±` half of it. Intervals are
symmetric in the logarithm: at 2 the upper half is 1.4 times the lower, and one number for both misleads."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The table: a row for each of `models`; `columns` are headings, `cells[row][column]` lines of text."""

    columns: tuple[str, ...]
    models: tuple[str, ...]
    cells: tuple[tuple[tuple[str, ...], ...], ...]


def reason_text(cell: CellRecord) -> str:
    """Code and text of why a cell has no result; empty where it has one."""
    if cell.reason is None:
        return ""
    is_inaccurate = cell.struck_out and cell.struck_as != WRONG_OUTPUT
    return cell.reason.text if is_inaccurate else f"{cell.reason.code}: {cell.reason.text}"


def compare(
    cells: Sequence[CellRecord],
    baseline: str | None,
    reason: Callable[[CellRecord], str] = reason_text,
    metric: Metric = P50,
) -> Comparison:
    """Arrange cells by model and delegate@device, in their given order.

    Cells of several levels get a column for each. `reason` writes why a cell has no result; `metric` is the
    figure that each cell shows.
    """
    baselines = Baselines.among(baseline, cells)
    columns = list(dict.fromkeys((cell.delegate, cell.device, cell.level) for cell in cells))
    levels = {level for _, _, level in columns}
    placed = {(cell.model, cell.delegate, cell.device, cell.level): cell for cell in cells}
    models = tuple(dict.fromkeys(cell.model for cell in cells))
    rows = []
    for model in models:
        found = (placed.get((model, *column)) for column in columns)
        rows.append(tuple(() if c is None else cell_lines(c, baselines.of(c), reason, metric) for c in found))
    headings = (
        f"{delegate}@{device}"
        + (f" {level}" if len(levels) > 1 else "")
        + unequal_threads(c for c in cells if (c.delegate, c.device, c.level) == (delegate, device, level))
        for delegate, device, level in columns
    )
    return Comparison(tuple(headings), models, tuple(rows))


def cell_lines(
    cell: CellRecord,
    against: CellRecord | None,
    reason: Callable[[CellRecord], str] = reason_text,
    metric: Metric = P50,
) -> tuple[str, ...]:
    """Return the lines of one cell: figure and speed-up, delegation and verdict, grade; or status and reason.

    The speed-up is a ratio of medians and stands beside no other figure.
    """
    m = cell.measurement
    if cell.struck_out:
        return cell.struck_as, reason(cell)
    if cell.status != "done" or m is None:
        return _ended(cell, reason)
    delegation = m.delegation
    facts = [] if delegation is None else [f"{delegation.delegated_ops}/{delegation.total_ops} ops"]
    facts.append(accuracy_text(m))
    facts += [metric.table(m) for metric in metrics.METRICS if metric.table is not None]
    first = metric.full_text(cell)
    if metric is P50:
        first = " ".join(part for part in (latency(cell), speed_up(cell, against)) if part)
    graded = grade_of(cell)
    kept = (f"{AGAIN} {cell.kept}",) if cell.kept else ()
    lines = (first, ", ".join(filter(None, facts)), *kept)
    return lines if graded is None else (*lines, grade_text(graded))


def accuracy_text(m: Measurement) -> str:
    """Write `pass 0.3 %`, the verdict on the outputs and their error over its bound."""
    margin = m.accuracy.margin
    verdict = m.accuracy.verdict or "not judged"
    return verdict if margin is None else f"{verdict} {percent(margin)}"


def latency(cell: CellRecord) -> str:
    """Write `3.21 ±0.07 ms`, the median and half its 95 % interval.

    Where the interval is wide, both its ends and a sign in front: `≈ 3.21 ms [1.20 - 8.61]`; where there is
    none, the median alone; `mean 3.21 ms` where another tool told no median.
    """
    if cell.measurement is None or cell.struck_out:
        return ""
    p50, interval = P50.read(cell), CI95.read(cell)
    if p50 is None:
        lead = leading(cell)
        if lead is not P50:
            return f"{lead.label} {lead.full_text(cell)}"
        return f"no {P50.label}: {P50.why_none(cell.measurement)}"
    median = P50.text(p50)
    if interval is None:
        return f"{median} {P50.unit}"
    low, high = interval
    if high > _LOPSIDED * low:
        return f"{_UNCERTAIN} {median} {P50.unit} [{CI95.text(interval)}]"
    return f"{median} ±{half_width(interval, median)} {P50.unit}"


def speed_up(cell: CellRecord, against: CellRecord | None) -> str:
    """Write `▲ 1.42x [1.38 - 1.46]`, the paired ratio over the baseline with verdict and interval; empty for
    the baseline itself. A ratio of two medians is `1.42x unpaired`.
    """
    found = speedup(cell, against)
    if found is None:
        return ""
    if not found.paired:
        return f"{ratio(found.ratio)} {WORDS['unpaired']}"
    interval = "" if found.ci95 is None else f" [{ratio_interval(found.ci95)}]"
    return f"{SIGNS[found.verdict]} {ratio(found.ratio)}{interval}".strip()


def unequal_threads(cells: Iterable[CellRecord]) -> str:
    """Write ` (threads: 4 against 1 here)` for cells whose baseline ran with another number; else nothing."""
    # The agent appends ` (threads: …)` where the numbers differ: the note follows the first blank.
    notes = (found.against.partition(" ")[2] for cell in cells if (found := stored_ratio(cell)) is not None)
    return "".join(f" {note}" for note in dict.fromkeys(filter(None, notes)))


def summary(cells: Iterable[CellRecord]) -> str:
    """Count cells by their end: `27 cells: 26 done, 1 unsupported; 9 reused`."""
    listed = list(cells)
    counts = Counter(cell.struck_as if cell.struck_out else cell.status for cell in listed)
    text = f"{counted(len(listed), 'cell')}: "
    text += ", ".join(f"{count} {status}" for status, count in counts.most_common())
    again = sum(cell.again is not None for cell in listed)
    reused = sum(cell.reused_from is not None and not cell.kept for cell in listed)
    told = ((again, "measuring again"), (reused, "reused"))
    return text + "".join(f"; {count} {word}" for count, word in told if count)


def all_well(cells: Iterable[CellRecord]) -> bool:
    """Whether every cell is done with a right output, is unsupported, or was excluded.

    An earlier result that a new measurement failed to replace is none of these.
    """
    return all(
        not cell.struck_out and not cell.kept and (cell.status in ("done", "unsupported") or cell.excluded)
        for cell in cells
    )


def _ended(cell: CellRecord, reason: Callable[[CellRecord], str]) -> tuple[str, ...]:
    if cell.reason is None:
        return (cell.status,)
    return (reason(cell),) if cell.reason.code == cell.status else (cell.status, reason(cell))
