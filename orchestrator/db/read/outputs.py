"""What the runner of an attempt under way has written so far."""

from __future__ import annotations

from dataclasses import dataclass

from sqlmodel import Session

from orchestrator.db import tables


@dataclass(frozen=True, slots=True)
class Output:
    """The last of what a runner wrote; `start` characters were before it."""

    start: int
    text: str

    @property
    def end(self) -> int:
        """How many characters the runner has written."""
        return self.start + len(self.text)


def of_attempt(session: Session, attempt_id: str) -> Output | None:
    """What an attempt's runner has written so far; None: nothing, or it is long over."""
    row = session.get(tables.Output, attempt_id)
    return None if row is None else Output(row.start, row.text)
