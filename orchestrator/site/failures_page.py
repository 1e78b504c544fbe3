"""Groups what has no result by its cause: on which models, delegates and devices, and since when."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
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
    cells: tuple[View, ...]

    @property
    def anchor(self) -> str:
        """Its place on the page."""
        return links.cause_anchor(self.code, self.kind)


def failures_of(archive: Archive, own: Sequence[Series]) -> list[View]:
    """Return the series of a model whose newest attempt gave no counted result, each with its cause."""
    found = []
    for cell in (one.last for one in own):
        why = _why(cell)
        if why is not None:
            status, code, reason = why
            column = column_name(cell.delegate, cell.device)
            found.append(
                View(
                    cause=(status, code, kind_of(reason)),
                    reason=reason,
                    status=cell_status(cell),
                    model=cell.model,
                    device=cell.device,
                    column=column,
                    href=archive.address(cell),
                    text=f"{text.short_name(cell.model)} on {column}",
                    at=cell.finished_at,
                )
            )
    return found


def causes_of(failures: Iterable[View]) -> list[Cause]:
    """Return the causes, the one of most cells first; names and figures do not tell causes apart."""
    found: dict[tuple[str, ...], list[View]] = {}
    for one in failures:
        # A list, where the summary was read from a file.
        found.setdefault(tuple(one.cause), []).append(one)
    made = [
        Cause(status, code, kind, members[0].reason, tuple(members))
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
        status = "not measured again" if cell.kept else cell.status
        said = status, "" if reason is None else reason.code.value, "" if reason is None else reason.text
        return None if cell.again else said
    void = void_reason(cell)
    return None if void is None or cell.imported is not None else ("void", "void", void)


def failures_page(causes: Iterable[Cause]) -> dict[str, Any]:
    """Gather the page of failures."""
    return {
        "causes": [
            View(
                cause=cause,
                status=cause.cells[0].status,
                count=text.counted(len(cause.cells), "cell"),
                models=text.counted(len({cell.model for cell in cause.cells}), "model"),
                columns=sorted({cell.column for cell in cause.cells}),
                cells=[
                    View(href=one.href, text=one.text, at=one.at and datetime.fromisoformat(one.at))
                    for one in cause.cells[:_MOST_NAMED]
                ],
                more=max(0, len(cause.cells) - _MOST_NAMED),
            )
            for cause in causes
        ]
    }
