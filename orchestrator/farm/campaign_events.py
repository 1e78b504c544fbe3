"""A campaign as it is seen from any terminal: tails the database, whoever schedules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime

from sqlmodel import Session

from orchestrator.db.engine.session import Database
from orchestrator.db.read import records
from orchestrator.db.write import campaigns, devices, events
from orchestrator.results.events import EventKind, FarmEvent


class Feed:
    """Turns what happened since the last look into events. `since`: number of the last one known."""

    def __init__(self, database: Database, campaign_no: int, since: int) -> None:
        self._database = database
        self._campaign_no = campaign_no
        self._since = since
        self._phases: dict[str, str] = {}

    def emit(self, on_event: Callable[[FarmEvent], None]) -> bool:
        """Tell what is new; True while the campaign has cells that have not ended."""
        with self._database.read() as session:
            news, open_count = self._look(session)
        for event in news:
            on_event(event)
        return open_count > 0

    def _look(self, session: Session) -> tuple[list[FarmEvent], int]:
        open_count = campaigns.open_count(session, self._campaign_no)
        told: list[tuple[str, EventKind, str]] = []
        for row in events.since(session, self._campaign_no, self._since):
            told.append((row.cell_id, row.kind, row.text))
            self._since = row.no
        told += self._new_phases(session)
        if not told:
            return [], open_count
        cells = {c.cell_id: c for c in records.cells_by_id(session, list({name for name, _, _ in told}))}
        total = campaigns.total_count(session, self._campaign_no)
        eta_s = self._eta_s(session) if open_count else 0.0
        news = [
            FarmEvent(kind, cells[name], text, total - open_count, total, eta_s) for name, kind, text in told
        ]
        return news, open_count

    def _new_phases(self, session: Session) -> list[tuple[str, EventKind, str]]:
        now = dict(records.phases(session, self._campaign_no))
        told: list[tuple[str, EventKind, str]] = [
            (cell_id, "phase", text)
            for cell_id, text in now.items()
            if text and text != self._phases.get(cell_id)
        ]
        self._phases = now
        return told

    def _eta_s(self, session: Session) -> float:
        """The longest line of any exclusion group, in seconds."""
        lines: dict[str, float] = defaultdict(float)
        expected = campaigns.remaining_by_target(session, self._campaign_no, datetime.now(UTC))
        groups = devices.groups(session, list(expected))
        for target, seconds in expected.items():
            lines[groups.get(target, target)] += seconds
        return max(lines.values(), default=0.0)
