"""The comparison table: models x delegate@device. Values in, text out; printing is `output`'s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.results.format import interval, milliseconds, ratio
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import Baselines, speedup_ratio

STRUCK_OUT = "wrong output"
LONGEST_REASON = 180
"""Characters of a reason in the table."""
_LOPSIDED = 2.0
"""The interval is symmetric in the logarithm: beyond this high/low, half of it says nothing."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Headings and rows of the table; the first column is the model. A cell may have several lines."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def compare(cells: Sequence[CellRecord], baseline: str | None) -> Comparison:
    """Arrange cells by model and delegate@device, in the order in which they come.

    Cells of several levels get a column for each.
    """
    baselines = Baselines.among(baseline, cells)
    columns = list(dict.fromkeys((cell.delegate, cell.device, cell.level) for cell in cells))
    levels = {level for _, _, level in columns}
    placed = {(cell.model, cell.delegate, cell.device, cell.level): cell for cell in cells}
    rows = []
    for model in dict.fromkeys(cell.model for cell in cells):
        found = (placed.get((model, *column)) for column in columns)
        rows.append((model, *("" if c is None else "\n".join(cell_lines(c, baselines.of(c))) for c in found)))
    headings = (
        f"{delegate}@{device}" + (f" {level}" if len(levels) > 1 else "")
        for delegate, device, level in columns
    )
    return Comparison(("model", *headings), tuple(rows))


def cell_lines(cell: CellRecord, against: CellRecord | None) -> list[str]:
    """What one cell shows: latency and speed-up, delegation and verdict, or status and reason."""
    m = cell.measurement
    if cell.struck_out:
        return [STRUCK_OUT, _reason(cell)]
    if cell.status != "done" or m is None:
        return _ended(cell)
    lines = [" ".join(part for part in (latency(cell), speed_up(cell, against)) if part)]
    delegation = m.delegation
    facts = [] if delegation is None else [f"{delegation.delegated_ops}/{delegation.total_ops} ops"]
    facts.append("unjudged" if m.accuracy.verdict is None else m.accuracy.verdict)
    if m.labelled is not None:
        facts.append(f"{m.labelled.metric} {m.labelled.share:.4g}")
    lines.append(", ".join(facts))
    return lines


def latency(cell: CellRecord) -> str:
    """`3.21 ±0.07 ms`: median and half its 95% interval, or `3.21 ms [1.20, 8.61]` where that is wide and so
    lopsided; without an interval the median alone.
    """
    figures = None if cell.measurement is None else cell.measurement.latency_ms
    if figures is None or cell.struck_out:
        return ""
    if figures.p50 is None:
        return f"no p50: {figures.missing.get('p50', 'too few samples')}"
    if figures.ci95 is None:
        return f"{milliseconds(figures.p50)} ms"
    low, high = figures.ci95
    median = milliseconds(figures.p50)
    if high > _LOPSIDED * low:
        return f"{median} ms [{interval(figures.ci95)}]"
    digits = len(median.partition(".")[2])
    return f"{median} ±{(high - low) / 2:.{digits}f} ms"


def speed_up(cell: CellRecord, against: CellRecord | None) -> str:
    """`1.42x`: the baseline's median over this one's; more is faster. Empty for the baseline itself."""
    if against is None or against.cell_id == cell.cell_id:
        return ""
    value = speedup_ratio(cell, against)
    return "" if value is None else ratio(value)


def summary(cells: Iterable[CellRecord]) -> str:
    """`27 cells: 26 done, 1 unsupported; 9 reused`."""
    listed = list(cells)
    counts = Counter(STRUCK_OUT if cell.struck_out else cell.status for cell in listed)
    text = f"{len(listed)} cell{'' if len(listed) == 1 else 's'}: "
    text += ", ".join(f"{count} {status}" for status, count in counts.most_common())
    reused = sum(cell.reused_from is not None for cell in listed)
    return text + (f"; {reused} reused" if reused else "")


def all_well(cells: Iterable[CellRecord]) -> bool:
    """True where every cell is done with a right output, unsupported, or was excluded."""
    return all(
        not cell.struck_out and (cell.status in ("done", "unsupported") or _excluded(cell)) for cell in cells
    )


def _excluded(cell: CellRecord) -> bool:
    return cell.reason is not None and cell.reason.code == "excluded"


def _ended(cell: CellRecord) -> list[str]:
    if cell.reason is None:
        return [cell.status]
    reason = _reason(cell)
    return [reason] if cell.reason.code == cell.status else [cell.status, reason]


def _reason(cell: CellRecord) -> str:
    """Code and text; a long text is cut, with the command that shows all of it."""
    if cell.reason is None:
        return ""
    text = f"{cell.reason.code}: {cell.reason.text}"
    if len(text) <= LONGEST_REASON:
        return text
    return f"{text[:LONGEST_REASON].rstrip()}… (farm show {cell.cell_id[:10]})"
