"""Reads a campaign's events from the database, so every terminal shows the same ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from orchestrator.config.clock import utc_now
from orchestrator.db.engine.sessions import Database, Session
from orchestrator.db.read import campaign_progress, devices, events, records
from orchestrator.results.events import EventKind, FarmEvent


class CampaignEvents:
    """Reads the events since the last call. `since`: the number of the last event that is known."""

    def __init__(self, database: Database, campaign_no: int, since: int) -> None:
        self._database = database
        self._campaign_no = campaign_no
        self._since = since
        self._phases: dict[str, str] = {}

    def emit(self, on_event: Callable[[FarmEvent], None]) -> bool:
        """Report new events; True while the campaign has cells that have not ended.

        Raises `UnreachableError`; the next call then reports what this one would have.
        """
        before = self._since, self._phases
        try:
            with self._database.read() as session:
                news, open_count = self._look(session)
        except BaseException:
            self._since, self._phases = before
            raise
        for event in news:
            on_event(event)
        return open_count > 0

    def _look(self, session: Session) -> tuple[list[FarmEvent], int]:
        open_count = campaign_progress.open_count(session, self._campaign_no)
        found: list[tuple[str, EventKind, str]] = []
        for row in events.of_campaign(session, self._campaign_no, self._since):
            found.append((row.cell_id, row.kind, row.text))
            self._since = row.no
        found += self._new_phases(session)
        if not found:
            return [], open_count
        cells = {c.cell_id: c for c in records.cells_by_id(session, list({name for name, _, _ in found}))}
        total = campaign_progress.total_count(session, self._campaign_no)
        eta_s = self._eta_s(session) if open_count else 0.0
        news = [
            FarmEvent(kind, cells[name], text, total - open_count, total, eta_s) for name, kind, text in found
        ]
        return news, open_count

    def _new_phases(self, session: Session) -> list[tuple[str, EventKind, str]]:
        now = dict(records.phases(session, self._campaign_no))
        found: list[tuple[str, EventKind, str]] = [
            (cell_id, "phase", text)
            for cell_id, text in now.items()
            if text and text != self._phases.get(cell_id)
        ]
        self._phases = now
        return found

    def _eta_s(self, session: Session) -> float:
        """Seconds until the busiest exclusion group, whose devices run one at a time, has finished."""
        queues: dict[str, float] = defaultdict(float)
        expected = campaign_progress.remaining_by_target(session, self._campaign_no, utc_now())
        groups = devices.groups(session, list(expected))
        for target, seconds in expected.items():
            queues[groups.get(target, target)] += seconds
        return max(queues.values(), default=0.0)
