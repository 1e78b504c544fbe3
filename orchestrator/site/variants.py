"""Builds the table of a model's page that sets accuracy on labelled data beside time, size and memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace as View

from agent.wire.labelled import LabelledScore
from agent.wire.plan import LOWER_IS_BETTER
from orchestrator.results import format as text
from orchestrator.results.metrics import P50
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import counted_latency
from orchestrator.site import links
from orchestrator.site.axes import Scale, log_scale, percent, px
from orchestrator.site.cell_view import column_name
from runtime.common.statistics import on_front

_WIDTH, _HEIGHT = 1000, 170
"""Units across the drawing, which the page stretches, and its height in px: a dot of 4 px hides no other that
differs by a fortieth of the range."""

_ENDS = 20
"""Space at both ends across it in units: a dot stays inside."""

_LEAST_ROOM = 0.005
"""The least space above and below, in the figure: equal ones stand in the middle."""


@dataclass(frozen=True, slots=True)
class VariantRow:
    """A cell in the table: a dash stands for what was not measured; `score` has its full text. `changes`: the
    first of the answers that `changed`.
    """

    href: str
    model: str
    column: str
    score: str
    time: str
    size: str
    memory: str
    is_on_front: bool
    share: float
    p50: float | None
    changed: int
    changes: Sequence[tuple[str, str, str]]


def variant_rows(own: Sequence[CellRecord], cells: Iterable[CellRecord]) -> tuple[VariantRow, ...]:
    """Return the cells that were judged on the same labelled data as a model's `own`, by the same metric.

    Variants of one network are models of one campaign. Empty where the model has no labelled data.
    """
    asked = {_asked(cell) for cell in own} - {None}
    if not asked:
        return ()
    scored = [
        (cell, cell.measurement.labelled)
        for cell in cells
        if _asked(cell) in asked and cell.measurement is not None and cell.measurement.labelled is not None
    ]
    front = on_front([_costs(cell, score) for cell, score in scored])
    return tuple(_row(cell, score, found) for (cell, score), found in zip(scored, front, strict=True))


def front_plot(rows: Sequence[VariantRow]) -> View | None:
    """Place the rows by time, logarithmic, and by their figure on labelled data; None below two."""
    drawn = [(row, row.p50) for row in rows if row.p50]
    if len(drawn) < 2:
        return None
    across = log_scale([p50 for _, p50 in drawn], _ENDS, _WIDTH - _ENDS)
    shares = [row.share for row, _ in drawn]
    room = max(_LEAST_ROOM, 0.1 * (max(shares) - min(shares)))
    up = Scale(min(shares) - room, max(shares) + room, _HEIGHT, 0)
    return View(
        height=_HEIGHT,
        across=across.ticks(percent_of=_WIDTH),
        up=up.ticks(4),
        dots=[
            View(
                x=percent(across(p50), _WIDTH),
                y=px(up(row.share)),
                said=f"{text.short_name(row.model)}, {row.column}: {row.score}, {row.time}",
                is_on_front=row.is_on_front,
            )
            for row, p50 in drawn
        ],
    )


def _asked(cell: CellRecord) -> tuple[str, str] | None:
    data = None if cell.plan is None else cell.plan.labelled
    return None if data is None else (data.sha256, data.metric)


def _costs(cell: CellRecord, score: LabelledScore) -> tuple[float | None, ...]:
    assert cell.measurement is not None
    latency = counted_latency(cell)
    # `on_front` takes less for better, and most scores are better the higher they are.
    sign = 1.0 if score.metric in LOWER_IS_BETTER else -1.0
    time = None if latency is None else latency.p50
    return sign * score.share, time, float(cell.model_bytes), float(cell.measurement.memory_peak_bytes)


def _row(cell: CellRecord, score: LabelledScore, is_on_front: bool) -> VariantRow:
    assert cell.measurement is not None
    latency = counted_latency(cell)
    drop = score.drop
    return VariantRow(
        href=links.cell_page(cell.cell_id),
        model=cell.model,
        column=column_name(cell.delegate, cell.device),
        score=text.labelled(score),
        time=text.NOTHING if latency is None or latency.p50 is None else P50.full_text(cell),
        size=text.byte_count(cell.model_bytes),
        memory=text.byte_count(cell.measurement.memory_peak_bytes),
        is_on_front=is_on_front,
        share=score.share,
        p50=None if latency is None else latency.p50,
        changed=0 if drop is None else drop.changed,
        changes=() if drop is None else [(c.file, c.before, c.after) for c in drop.changes],
    )
