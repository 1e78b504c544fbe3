"""Queries the output of the runner of an attempt under way."""

from __future__ import annotations

from dataclasses import dataclass

from sqlmodel import Session

from orchestrator.db import tables


@dataclass(frozen=True, slots=True)
class Output:
    """The end of a runner's output; `start` characters came before it."""

    start: int
    text: str

    @property
    def end(self) -> int:
        """How many characters the runner has written."""
        return self.start + len(self.text)


def of_attempt(session: Session, attempt_id: str) -> Output | None:
    """The output of an attempt's runner so far; None: it wrote none, or it ended long ago."""
    row = session.get(tables.Output, attempt_id)
    return None if row is None else Output(row.start, row.text)
