"""The number of series of a large lab grows with its devices, never with its cells."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import insert, select, text

from orchestrator.config.limits import StoreLimits
from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.monitoring import metrics_page
from orchestrator.monitoring.metrics_page import MetricsPage
from orchestrator.sources.store import Store
from tests.orchestrator.asked import asked
from tests.orchestrator.monitoring.scraped import series
from tests.orchestrator.stocked import stock

DEVICES = 1000
MOST_SERIES = 20_000
"""What a lab of `DEVICES` devices with 100,000 cells may have at most."""


def fill(database: Database, cells: int) -> None:
    """Give the farm one agent per device and one campaign for every hundred cells."""
    stock(database)
    metadata = tables.metadata.tables
    now = datetime.now(UTC)
    with database.write() as turn:
        connection = turn.connection()

        def copies(table: str, changes: list[dict[str, object]]) -> None:
            row = dict(connection.execute(select(metadata[table]).limit(1)).one()._mapping)
            connection.execute(insert(metadata[table]), [row | changed for changed in changes])

        racks = [f"rack-{k:04}" for k in range(DEVICES)]
        copies("agent", [{"agent_id": rack, "heard_at": now} for rack in racks])
        copies("device", [{"device_id": f"{rack}.gpu-0", "agent_id": rack} for rack in racks])
        campaigns = range(10, 10 + -(-cells // 100))
        copies("campaign", [{"no": k, "campaign_id": f"c{k}", "name": f"n{k}"} for k in campaigns])
        copies("cell", [
            {
                "cell_id": f"cell-{k}", "key": f"{k}", "campaign_no": 10 + k // 100, "model": f"m{k}",
                "state": ("queued", "done", "running")[k % 3], "target": f"{racks[k % DEVICES]}.gpu-0",
            }
            for k in range(cells)
        ])  # fmt: skip
        assert connection.execute(text("SELECT count(*) FROM cell")).scalar_one() == cells + 1


@pytest.mark.parametrize(
    "cells", [200, pytest.param(100_000, marks=pytest.mark.exhaustive)], ids=lambda count: f"{count} cells"
)
def test_a_thousand_devices_stay_below_the_bound_whatever_the_cells(database: Database, cells: int) -> None:
    fill(database, cells)
    page = MetricsPage(database, Store(database.backups / "store"), StoreLimits(), suspect_s=60.0)
    found = series(page.text().decode())
    assert sum(one.name == "farm_device_state" for one in found) >= DEVICES
    assert 3 * DEVICES < len(found) < MOST_SERIES // 2
    assert not {name for one in found for name in one.labels} & {"cell", "campaign", "model", "user"}


def test_they_are_asked_for_once_within_a_few_seconds(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_page, "KEPT_S", 3600.0)  # longer than a busy machine needs for the next lines
    stock(database, asked(("a", "b")))
    page = MetricsPage(database, Store(database.backups / "store"), StoreLimits(), suspect_s=60.0)
    before = page.text()
    stock(database, asked(("c",), name="another"))
    assert page.text() == before
    assert asked_anew(page) != before


def asked_anew(page: MetricsPage) -> bytes:
    page._until_s = 0.0
    return page.text()
