"""Writes the ten-line summary of a cell with which `farm show` begins."""

from __future__ import annotations

from collections.abc import Iterator

from agent.wire.measurement import Measurement
from orchestrator.results import format as text
from orchestrator.results import wording
from orchestrator.results.answer.entries import missing
from orchestrator.results.comparison import accuracy_text
from orchestrator.results.fallbacks import grouped
from orchestrator.results.grading import grade_of, p50_grade
from orchestrator.results.metrics import P50, PEAK_MEMORY
from orchestrator.results.reasons import first_line
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import paired_speedup, stored_ratio

_LONGEST = 200
"""Characters of a reason or rule in the ten lines; `--all` has it whole."""

_AGAINST = {"faster": "faster than", "slower": "slower than", "same": "the same as", "open": "open against"}
"""What a verdict says of a delegate and the baseline that follows."""


def brief(cell: CellRecord) -> list[tuple[str, str]]:
    """Return ten pairs of a name and a text; of a cell without a figure those that it has."""
    return [(name, said) for name, said in _lines(cell) if said]


def brief_text(cell: CellRecord) -> str:
    """Write the ten lines, and how to see the rest."""
    return "\n".join(f"{name:<10}  {said}" for name, said in brief(cell))


def _lines(cell: CellRecord) -> Iterator[tuple[str, str]]:
    m = cell.measurement
    yield "model", f"{cell.model}  (cell {cell.cell_id}, {cell.level}, {cell.campaign})"
    options = "".join(f", {key}={value}" for key, value in cell.delegate_options.items())
    where = cell.device if not cell.device_name else f"{cell.device_name} ({cell.device})"
    yield "delegate", f"{cell.delegate}{options}  on {where}"
    yield "verdict", _verdict(cell)
    if m is None:
        return
    if missing(cell) is None:
        graded, own = grade_of(cell), p50_grade(cell)
        yield "p50", _median(cell)
        more = (
            "" if own is None or stored_ratio(cell) is None else f"; the p50 alone {wording.short_grade(own)}"
        )
        yield "grade", "" if graded is None else f"{wording.grade_text(graded)}{more}"
    about = first_line(m.accuracy.rule or m.accuracy.note, _LONGEST)
    yield "accuracy", f"{accuracy_text(m)}  {about}".rstrip()
    yield "delegation", _delegation(m)
    if not cell.struck_out:
        yield "start", _start(m)
    yield "memory", PEAK_MEMORY.full_text(cell)
    yield "measured", wording.measured_text(m)


def _verdict(cell: CellRecord) -> str:
    """Return the ratio over the baseline; else the state, or why there is no figure."""
    lacks, stored = missing(cell), stored_ratio(cell)
    if lacks is not None:
        return first_line(f"{lacks.word}: {lacks.reason}" if lacks.reason else lacks.word, _LONGEST)
    if stored is None:
        return f"{cell.status}; no ratio: it is the baseline, or was measured without one"
    found = paired_speedup(stored, cell)
    interval = "" if stored.ci95 is None else f", 95 % interval {text.ratio_interval(stored.ci95)}"
    more = f"; {decided}" if (decided := wording.decides(found)) else ""
    against = f"{_AGAINST.get(found.verdict, wording.WORDS[found.verdict])} {found.against}"
    return f"{wording.SIGNS[found.verdict]} {wording.ratio_text(found)} {against}{interval}{more}"


def _median(cell: CellRecord) -> str:
    times = cell.measurement.latency_ms if cell.measurement is not None else None
    interval = None if times is None else times.ci95
    return P50.full_text(cell) + ("" if interval is None else f"  95 % interval {text.interval(interval)}")


def _delegation(m: Measurement) -> str:
    if m.delegation is None:
        return "the delegate takes the whole model"
    d = m.delegation
    counts = f"{d.status}: {d.delegated_ops} of {d.total_ops} operators in {d.partitions} partition(s)"
    groups = grouped(d.fallbacks)
    if not groups:
        return counts
    more = f" (and {len(groups) - 1} more: --all)" if len(groups) > 1 else ""
    return f"{counts}; on the CPU {first_line(f'{groups[0].named}: {groups[0].reason}', _LONGEST)}{more}"


def _start(m: Measurement) -> str:
    times = m.latency_ms
    parts = (("cold", times.init), ("warm", times.init_warm), ("the first invoke", times.first))
    return ", ".join(f"{text.short_time(value)} {name}" for name, value in parts if value is not None)
