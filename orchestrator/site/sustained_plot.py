"""Draws a sustained pass: the median of each of its parts, in order."""

from __future__ import annotations

from typing import Final

from orchestrator.results.detail_lines import sustained_lines, sustained_of
from orchestrator.results.records import CellRecord
from orchestrator.site.axes import Scale, percent, px
from orchestrator.site.pages import Scatter, ScatterPanel, SustainedView

_WIDTH: Final = 1000
"""Width of the drawing in units, which the page stretches to its own width: ten units are one per cent."""

_HEIGHT: Final = 110
"""Height of the drawing in px. Chosen: a change of some per cent is seen, and it is smaller than that of the
samples, which says more."""

_ROOM: Final = 0.1
"""Space above and below the medians, as a share of the greatest or of their range: differences of a per mille
do not fill the axis."""


def sustained_view(cell: CellRecord) -> SustainedView | None:
    """Return the view of a cell's sustained pass; None if there was none."""
    found = sustained_of(cell)
    if found is None:
        return None
    facts = tuple((name or "its parts", said) for name, said in sustained_lines(cell))
    values = [part.p50_ms for part in found.slices]
    return SustainedView(facts, _plot(values) if len(values) > 1 else None)


def _plot(values: list[float]) -> Scatter:
    low, high = min(values), max(values)
    room = max(_ROOM * (high - low), _ROOM * high) or 1.0
    scale = Scale(low - room, high + room, _HEIGHT, 0)
    step = _WIDTH / len(values)
    path = "".join(f"M{px((i + 0.5) * step)} {px(scale(value))}h0" for i, value in enumerate(values))
    panel = ScatterPanel(
        label="",
        left=percent(0, _WIDTH),
        right=percent(_WIDTH, _WIDTH),
        warm_width=percent(0, _WIDTH),
        width=percent(_WIDTH, _WIDTH),
        warmup_path="",
        timed_path=path,
        above=(),
    )
    return Scatter(
        width=_WIDTH,
        height=_HEIGHT,
        ticks=scale.ticks(3),
        panels=(panel,),
        p50=px(scale(values[0])),
        few=True,
        caption="",
    )
