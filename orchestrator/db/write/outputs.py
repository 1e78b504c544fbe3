"""What the runners of attempts under way have written so far: the end of it, as long as they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete
from sqlmodel import Session, col, select

from agent.wire.messages import RunnerOutput
from orchestrator.db import tables
from orchestrator.db.engine import turn

KEPT_CHARACTERS: Final = 16 * 1024
"""Of one attempt. The end of what it wrote in all comes with its result."""


@dataclass(frozen=True, slots=True)
class Output:
    """The last of what a runner wrote; `start` characters were before it."""

    start: int
    text: str

    @property
    def end(self) -> int:
        """How many characters the runner has written."""
        return self.start + len(self.text)


def append(session: Session, piece: RunnerOutput) -> None:
    """Take in a piece. What is known already, or of an attempt that is over, is ignored."""
    attempt = turn.get(session, tables.Attempt, piece.attempt_id, lock=True)
    if attempt is None or attempt.epoch != piece.epoch or attempt.state not in tables.LIVE_WORDS:
        return
    row = session.get(tables.Output, piece.attempt_id)
    if row is None:
        _forget_ended(session)
        row = tables.Output(attempt_id=piece.attempt_id, start=piece.start, text="")
    known = row.start + len(row.text)
    text = piece.text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if piece.start + len(text) <= known:
        return
    if piece.start > known:
        row.start, row.text = piece.start, text
    else:
        row.text += text[known - piece.start :]
    row.start += max(0, len(row.text) - KEPT_CHARACTERS)
    row.text = row.text[-KEPT_CHARACTERS:]
    session.add(row)


def of_attempt(session: Session, attempt_id: str) -> Output | None:
    """What an attempt's runner has written so far; None: nothing, or it is long over."""
    row = session.get(tables.Output, attempt_id)
    return None if row is None else Output(row.start, row.text)


def _forget_ended(session: Session) -> None:
    """The end of what an ended attempt wrote is in its result."""
    live = select(tables.Attempt.attempt_id).where(tables.IS_LIVE)
    session.connection().execute(delete(tables.Output).where(col(tables.Output.attempt_id).not_in(live)))
