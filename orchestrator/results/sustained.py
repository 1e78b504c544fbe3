"""Says in words what a sustained pass found: whether a model becomes slower while it runs, and the clocks."""

from __future__ import annotations

from collections.abc import Iterator

from agent.wire.measurement import Sustained
from orchestrator.results import format as text
from orchestrator.results.records import CellRecord


def sustained_of(cell: CellRecord) -> Sustained | None:
    """The pass of a cell; None where it was not asked for, and of a wrong output."""
    return None if cell.measurement is None or cell.struck_out else cell.measurement.sustained


def sustained_lines(cell: CellRecord) -> Iterator[tuple[str, str]]:
    """Lines of a name and a text: the end over the start, the medians in order, the clocks or why none."""
    found = sustained_of(cell)
    if found is None:
        return
    if found.end_over_start is None:
        yield "sustained", f"none: {found.note}"
    else:
        first, last = (text.milliseconds(found.slices[place].p50_ms) for place in (0, -1))
        ratio = f"end over start {text.share(found.end_over_start)}"
        yield "sustained", f"{text.share(found.seconds)} s without a pause: {ratio} ({last} over {first} ms)"
    if found.slices:
        yield "", f"p50 of each part: {', '.join(text.milliseconds(s.p50_ms) for s in found.slices)} ms"
        clocks = [s.clock_mhz for s in found.slices if s.clock_mhz is not None]
        said = f"{', '.join(f'{mhz:.0f}' for mhz in clocks)} MHz" if clocks else f"none: {found.clock_note}"
        yield "", f"clock of each part: {said}"
