"""The present view of database and runners, for scenarios that wait for something or look at one cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlmodel import col, select

from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import UnreachableError
from orchestrator.policy.lifecycle import ENDED
from tests.faults import truth


@dataclass
class View:
    """Reads `database` over a way that no fault of a scenario's network reaches; `states`: of all agents."""

    database: Database
    states: Callable[[], Iterable[Path]]

    def rows(self, query: Any) -> list[Any]:
        """Detached rows of a query. The first one after a restart of the database may find its connection
        dead.
        """
        try:
            return self._read(query)
        except UnreachableError:
            return self._read(query)

    def _read(self, query: Any) -> list[Any]:
        with self.database.read() as session:
            found = list(session.exec(query))
            session.expunge_all()
        return found

    def cells(self, campaign_id: str | None = None) -> list[tables.Cell]:
        """Cells as they stand, of one campaign or all."""
        query = select(tables.Cell).join(
            tables.Campaign, col(tables.Campaign.no) == col(tables.Cell.campaign_no)
        )
        if campaign_id is not None:
            query = query.where(tables.Campaign.campaign_id == campaign_id)
        return self.rows(query.order_by(col(tables.Cell.campaign_no), col(tables.Cell.position)))

    def open_cells(self) -> list[tables.Cell]:
        """Cells that have not ended."""
        return [cell for cell in self.cells() if cell.state not in ENDED]

    def attempts(self, cell_id: str | None = None) -> list[tables.Attempt]:
        """Return the attempts, of one cell or all, oldest first."""
        query = select(tables.Attempt).order_by(col(tables.Attempt.attempt_id))
        return self.rows(query if cell_id is None else query.where(tables.Attempt.cell_id == cell_id))

    def results(self) -> list[tables.Result]:
        return self.rows(select(tables.Result))

    def device_ids(self) -> set[str]:
        """Devices that are present."""
        return set(self.rows(select(tables.Device.device_id).where(col(tables.Device.present))))

    def counts(self) -> Counter[str]:
        """State -> cells."""
        return Counter(cell.state for cell in self.cells())

    def reasons(self) -> Counter[tuple[str, str | None]]:
        """(state, reason code) -> attempts."""
        return Counter((attempt.state, attempt.reason_code) for attempt in self.attempts())

    def facts(self) -> list[truth.Fact]:
        """Return the runners' own records."""
        return truth.facts(self.states())

    def starts(self) -> Counter[str]:
        """Cell id -> how often a runner started for it."""
        return Counter(fact.cell_id for fact in self.facts() if fact.event == "started")
