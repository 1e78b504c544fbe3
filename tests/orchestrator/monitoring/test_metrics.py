"""The contents of `/metrics`: counters, the state in the database, and the readers that may see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from agent.wire.messages import PROTOCOL_VERSION
from orchestrator.config.limits import StoreLimits
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import HEAD
from orchestrator.db.scheduling import ingest
from orchestrator.monitoring.counters import IdleGaps
from orchestrator.monitoring.metrics_page import MetricsPage
from orchestrator.results.events import AttemptBegun, AttemptEnded
from orchestrator.sources.store import Store
from tests.orchestrator.monitoring.scraped import scrape, series, value, work
from tests.orchestrator.stocked import cells, dispatch, result, stock
from tests.services.endpoint import READ_TOKEN, SUBMIT_TOKEN, TOKEN, Endpoint


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    opened = Endpoint(tmp_path, StoreLimits(store_bytes=10_000))
    yield opened
    opened.close()


def test_a_scrape_shows_queue_devices_agents_attempts_verdicts_store_and_versions(endpoint: Endpoint) -> None:
    work(endpoint)
    found = scrape(endpoint)

    assert {state: value(found, "farm_cells", state=state) for state in ("queued", "running", "paused")} == {
        "queued": 2, "running": 0, "paused": 0,
    }  # fmt: skip
    assert value(found, "farm_attempts_total", reason="completed") == 1
    assert value(found, "farm_attempts_total", reason="device_lost") == 1
    assert value(found, "farm_attempts_total", reason="timeout") == 0
    assert value(found, "farm_result_grades_total", grade="noisy") == 1
    assert value(found, "farm_accuracy_verdicts_total", verdict="pass") == 1
    assert value(found, "farm_idle_gap_seconds_count") == 1
    assert value(found, "farm_devices", state="idle") == 2
    assert value(found, "farm_device_state", device="host-cpu") == 1
    assert value(found, "farm_agents", state="working") == 1
    assert value(found, "farm_agent_silence_seconds", agent="embedded") < 60
    assert 600 <= value(found, "farm_agent_undelivered_seconds", agent="embedded") < 700
    assert value(found, "farm_agent_dropped_results_total", agent="embedded") == 1
    assert value(found, "farm_broker_up") == 1
    assert value(found, "farm_scheduler_silence_seconds") < 60
    assert value(found, "farm_store_bytes") >= 1000
    assert value(found, "farm_store_budget_bytes") == 10_000
    assert value(found, "farm_database_up") == 1
    (build,) = [one for one in found if one.name == "farm_build_info"]
    assert (build.labels["schema"], build.labels["protocol"]) == (HEAD, str(PROTOCOL_VERSION))
    assert build.labels["runtime"]


def test_readers_alone_get_the_metrics(endpoint: Endpoint) -> None:
    given = {}
    for token in ("", "invented", TOKEN, SUBMIT_TOKEN, READ_TOKEN):
        headers = {"authorization": f"Bearer {token}"} if token else {}
        given[token] = httpx.get(f"{endpoint.url}/metrics", headers=headers, trust_env=False).status_code
    assert given == {"": 401, "invented": 401, TOKEN: 401, SUBMIT_TOKEN: 401, READ_TOKEN: 200}


def test_what_is_rolled_back_is_not_counted(endpoint: Endpoint) -> None:
    stock(endpoint.database)
    (cell,) = cells(endpoint.database)
    job = dispatch(endpoint.database, cell.cell_id)
    with suppress(RuntimeError), endpoint.database.write() as turn:
        ingest.apply(turn, result(job), datetime.now(UTC))
        raise RuntimeError
    assert value(scrape(endpoint), "farm_attempts_total", reason="completed") == 0


def test_without_the_database_a_scrape_says_so_and_has_the_counters(tmp_path: Path) -> None:
    (tmp_path / "farm.db").write_text("this is no database at all, and long enough to have been one")
    database = Database.connect(tmp_path / "farm.db")
    page = MetricsPage(database, Store(tmp_path / "store"), StoreLimits(), suspect_s=60.0)
    found = series(page.text().decode())
    database.close()
    assert value(found, "farm_database_up") == 0
    assert value(found, "farm_attempts_total", reason="completed") == 0
    assert not [one for one in found if one.name == "farm_cells"]


def test_a_gap_begins_when_silicon_and_cell_are_both_free() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def at(seconds: float) -> datetime:
        return start + timedelta(seconds=seconds)

    gaps = IdleGaps()
    assert gaps.begin(AttemptBegun("rack/host", at(0), at(1))) is None, "nothing has ended here yet"
    gaps.end(AttemptEnded("rack/host/gpu-0", "completed", at(10)))
    gaps.end(AttemptEnded("rack/host/gpu-1", "completed", at(20)))
    assert gaps.begin(AttemptBegun("rack/host/gpu-0", at(0), at(12))) == 2, "the other GPU is another silicon"
    assert gaps.begin(AttemptBegun("rack/host", at(0), at(23))) == 3, "the CPU waits for both"
    assert gaps.begin(AttemptBegun("rack/host", at(22), at(23))) == 1, "there was no cell before"
    assert gaps.begin(AttemptBegun("rack-2/host", at(0), at(23))) is None
