"""Groups what has no result by its cause: on which models, delegates and devices, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace as View
from typing import Any

from orchestrator.policy.lifecycle import OPEN
from orchestrator.results import format as text
from orchestrator.results.records import ComparedCell, void_reason
from orchestrator.results.wording import has_no_result, kind_of
from orchestrator.site import links
from orchestrator.site.archive import Archive
from orchestrator.site.cell_view import cell_status, column_name
from orchestrator.site.series import Series

_MOST_NAMED = 200
"""Cells of a cause that are named, the first; the others are counted. A driver that is missing fails every
model of a campaign."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Cells whose newest attempt ended alike. `reason`: that of the first of them."""

    status: str
    code: str
    kind: str
    reason: str
    cells: tuple[ComparedCell, ...]

    @property
    def anchor(self) -> str:
        """Its place on the page."""
        return links.cause_anchor(self.code, self.kind)


def causes_of(history: Mapping[str, Sequence[Series]]) -> list[Cause]:
    """Return the causes, the one of most cells first; names and figures do not tell causes apart."""
    found: dict[tuple[str, str, str], list[tuple[str, ComparedCell]]] = {}
    for cell in (series.last for many in history.values() for series in many):
        why = _why(cell)
        if why is not None:
            status, code, reason = why
            found.setdefault((status, code, kind_of(reason)), []).append((reason, cell))
    made = [
        Cause(status, code, kind, members[0][0], tuple(cell for _, cell in members))
        for (status, code, kind), members in found.items()
    ]
    return sorted(made, key=lambda cause: -len(cause.cells))


def _why(cell: ComparedCell) -> tuple[str, str, str] | None:
    """Return status, code and reason of a cell without a result; None where it has one, or waits for it."""
    if cell.status in OPEN:
        return None
    if cell.struck_out:
        return "wrong", "wrong_output", "" if cell.reason is None else cell.reason.text
    if has_no_result(cell) or cell.kept:
        reason = cell.reason
        said = cell.status, "" if reason is None else reason.code.value, "" if reason is None else reason.text
        return None if cell.again else said
    void = void_reason(cell)
    return None if void is None or cell.imported is not None else ("void", "void", void)


def failures_page(archive: Archive, causes: Iterable[Cause]) -> dict[str, Any]:
    """Gather the page of failures."""
    return {
        "causes": [
            View(
                cause=cause,
                status=cell_status(cause.cells[0]),
                count=text.counted(len(cause.cells), "cell"),
                models=text.counted(len({cell.model for cell in cause.cells}), "model"),
                columns=sorted({column_name(cell.delegate, cell.device) for cell in cause.cells}),
                cells=[
                    View(
                        href=archive.address(cell.cell_id),
                        text=f"{text.short_name(cell.model)} on {column_name(cell.delegate, cell.device)}",
                        at=cell.finished_at,
                    )
                    for cell in cause.cells[:_MOST_NAMED]
                ],
                more=max(0, len(cause.cells) - _MOST_NAMED),
            )
            for cause in causes
        ]
    }
