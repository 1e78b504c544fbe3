"""Builds the table of a model's page that sets accuracy on labelled data beside time, size and memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent.wire.labelled import LabelledScore
from agent.wire.plan import LOWER_IS_BETTER
from orchestrator.results import format as text
from orchestrator.results.metrics import P50
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import counted_latency
from orchestrator.site import links
from orchestrator.site.cell_view import column_name
from runtime.common.statistics import on_front


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


def _asked(cell: CellRecord) -> tuple[str, str] | None:
    data = None if cell.plan is None else cell.plan.labelled
    return None if data is None else (data.sha256, data.metric)


def _costs(cell: CellRecord, score: LabelledScore) -> tuple[float | None, ...]:
    assert cell.measurement is not None
    latency = counted_latency(cell)
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
        changed=0 if drop is None else drop.changed,
        changes=() if drop is None else [(c.file, c.before, c.after) for c in drop.changes],
    )
