"""A scrape over HTTP as Prometheus sees it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx
from prometheus_client.parser import text_string_to_metric_families

from agent.wire.messages import ReasonCode, Status
from orchestrator.db.campaigns import farm_state
from orchestrator.db.campaigns.farm_state import BROKER_UP, SchedulerState
from orchestrator.db.devices import agents
from orchestrator.db.scheduling import ingest
from tests.orchestrator.asked import asked
from tests.orchestrator.stocked import cells, dispatch, result, stock
from tests.services.endpoint import READ_TOKEN, Endpoint


@dataclass(frozen=True)
class Series:
    """One series: its name, its labels, its value."""

    name: str
    labels: dict[str, str]
    value: float


def scrape(endpoint: Endpoint, token: str = READ_TOKEN) -> list[Series]:
    headers = {"authorization": f"Bearer {token}"}
    answer = httpx.get(f"{endpoint.url}/metrics", headers=headers, trust_env=False)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return series(answer.text)


def series(text: str) -> list[Series]:
    return [
        Series(sample.name, dict(sample.labels), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def value(found: list[Series], name: str, **labels: str) -> float:
    """Return the value of the one series of that name that has these labels."""
    (one,) = [one for one in found if one.name == name and labels.items() <= one.labels.items()]
    return one.value


def work(endpoint: Endpoint) -> None:
    """Let a farm have a file, three cells, of which one is done and one lost its device, and an agent with
    results that do not arrive.
    """
    endpoint.store.put(io.BytesIO(b"m" * 1000), "m")
    database = endpoint.database
    stock(database, asked(("a", "b", "c")))
    first, second, _ = cells(database)
    now = datetime.now(UTC)
    done = dispatch(database, first.cell_id)
    with database.write() as turn:
        ingest.apply(turn, result(done), now)
    failed = dispatch(database, second.cell_id)
    with database.write() as turn:
        ingest.apply(turn, result(failed, Status.FAILED, ReasonCode.DEVICE_LOST), now)
        agents.note_undelivered(turn, "embedded", now - timedelta(minutes=10))
        agents.note_dropped(turn, "embedded", now)
        farm_state.write_scheduler(turn, SchedulerState("h", 1, now, now, BROKER_UP, "", "s"))
