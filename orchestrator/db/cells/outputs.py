"""Keeps the end of the output of running attempts' runners, for as long as they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete
from sqlmodel import Session, col, select

from agent.wire.messages import RunnerOutput
from orchestrator.db import tables
from orchestrator.db.engine.turn import Turn
from orchestrator.policy.lifecycle import LIVE_ATTEMPT


@dataclass(frozen=True, slots=True)
class Output:
    """The end of a runner's output; `start` characters came before it."""

    start: int
    text: str

    @property
    def end(self) -> int:
        """Number of characters that the runner has written."""
        return self.start + len(self.text)


def of_attempt(session: Session, attempt_id: str) -> Output | None:
    """Return the output of an attempt's runner so far; None if it wrote none, or ended long ago."""
    row = session.get(tables.Output, attempt_id)
    return None if row is None else Output(row.start, row.text)


KEPT_CHARACTERS: Final = 16 * 1024
"""How many characters of one attempt are kept. Chosen: some screens of a terminal for `farm logs`; larger
ones are written anew with every piece. The end of a runner's whole output comes with its result.
"""


def append(turn: Turn, piece: RunnerOutput) -> None:
    """Add a piece. One that is known already, or of an attempt that has ended, is ignored."""
    attempt = turn.find_attempt(piece.attempt_id)
    if attempt is None or attempt.epoch != piece.epoch or attempt.state not in LIVE_ATTEMPT:
        return
    row = turn.get(tables.Output, piece.attempt_id)
    if row is None:
        _forget_ended(turn)  # here, where one is added: no other sweep is needed to keep the table small
        row = tables.Output(attempt_id=piece.attempt_id, start=piece.start, text="")
    known = row.start + len(row.text)  # pieces may be repeated, overlap, or leave a gap
    # PostgreSQL stores no NUL in a text.
    text = piece.text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if piece.start + len(text) <= known:
        return
    if piece.start > known:
        row.start, row.text = piece.start, text
    else:
        row.text += text[known - piece.start :]
    row.start += max(0, len(row.text) - KEPT_CHARACTERS)
    row.text = row.text[-KEPT_CHARACTERS:]
    turn.add(row)


def _forget_ended(turn: Turn) -> None:
    """Delete the output of ended attempts: the end of what they wrote is in their results."""
    live = select(tables.Attempt.attempt_id).where(tables.IS_LIVE)
    turn.connection().execute(delete(tables.Output).where(col(tables.Output.attempt_id).not_in(live)))
