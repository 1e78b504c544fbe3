"""Builds the text that Prometheus scrapes; scrapes within a few seconds of each other share it."""

import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from agent.wire.messages import PROTOCOL_VERSION
from orchestrator.config.clock import utc_now
from orchestrator.config.limits import StoreLimits, used_bytes
from orchestrator.db import tables
from orchestrator.db.campaigns import farm_state
from orchestrator.db.devices.agents import AgentState
from orchestrator.db.devices.states import DEVICE_STATES, DeviceState
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import HEAD
from orchestrator.errors import UnreachableError
from orchestrator.monitoring.counters import Counters
from orchestrator.sources.store import Store

STORE_EVERY_S: Final = 300.0
"""Seconds between two measurements of the store. Chosen: every file of it is looked at, which takes a second
for some hundred thousand; smaller costs the server more, larger shows a store that fills later.
"""

_AGENT_STATES: Final = ("working", "silent", "refused", "draining", "removed")

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class StateCollector(Collector):
    """Reads the database once for each collection, and the store now and then. One collection at a time."""

    database: Database
    store: Path
    limits: StoreLimits
    suspect_s: float
    _store_bytes: int = 0
    _store_due_s: float = field(default=0.0)

    def collect(self) -> Iterator[Metric]:
        """Every metric; where the database does not answer, only that and what needs no database."""
        versions = {"runtime": version("delegate-farm"), "schema": HEAD, "protocol": str(PROTOCOL_VERSION)}
        yield InfoMetricFamily("farm_build", "The versions that run.", versions)
        yield from self._of_store()
        try:
            with self.database.read() as session:
                state = farm_state.read(session, utc_now(), self.suspect_s)
        except UnreachableError as error:
            log.warning("metrics without the database: %s", error)
            yield GaugeMetricFamily("farm_database_up", _DATABASE_UP, 0)
            return
        yield GaugeMetricFamily("farm_database_up", _DATABASE_UP, 1)
        yield _by_state("farm_cells", "Open cells; suspect and paused ones are among them.", state.cells)
        yield from _of_devices(state.devices)
        yield from _of_agents(state.agents, state.at, self.suspect_s)
        yield from _of_scheduler(state)

    def _of_store(self) -> Iterator[Metric]:
        if time.monotonic() >= self._store_due_s:
            self._store_bytes = used_bytes(self.store)
            self._store_due_s = time.monotonic() + STORE_EVERY_S
        yield GaugeMetricFamily("farm_store_bytes", "Bytes of models and samples.", self._store_bytes)
        if self.limits.store_bytes is not None:
            text = "Bytes of the store above which submissions are refused."
            yield GaugeMetricFamily("farm_store_budget_bytes", text, self.limits.store_bytes)
        # A store into which nothing was put has no folder yet: its disk is that of the nearest one above.
        there = next(folder for folder in (self.store, *self.store.parents) if folder.exists())
        disk = shutil.disk_usage(there)
        yield GaugeMetricFamily("farm_store_free_bytes", "Bytes free on the store's file system.", disk.free)
        floor = self.limits.floor_bytes(disk.total)
        yield GaugeMetricFamily("farm_store_floor_bytes", "Bytes there that are kept free.", floor)


_DATABASE_UP: Final = "Whether the database answers."


def _by_state(name: str, text: str, counts: Mapping[str, int]) -> Metric:
    found = GaugeMetricFamily(name, text, labels=["state"])
    for state, count in counts.items():
        found.add_metric([state], count)
    return found


def _of_devices(devices: Sequence[DeviceState]) -> Iterator[Metric]:
    counts = Counter(device.state for device in devices)
    # States of no device too, as 0: a series that ends is not seen to fall.
    yield _by_state("farm_devices", "Devices by state.", {state: counts[state] for state in DEVICE_STATES})
    text = "1 for the present state of each device."
    each = GaugeMetricFamily("farm_device_state", text, labels=["device", "agent", "state"])
    for device in devices:
        each.add_metric([device.device_id, device.agent_id, device.state], 1)
    yield each


def _of_agents(agents: Sequence[AgentState], at: datetime, suspect_s: float) -> Iterator[Metric]:
    counts = Counter(_standing(agent, at, suspect_s) for agent in agents)
    yield _by_state("farm_agents", "Agents by standing.", {state: counts[state] for state in _AGENT_STATES})
    present = [agent for agent in agents if agent.state != tables.AGENT_REMOVED]

    def each(name: str, text: str, value: Callable[[AgentState], float]) -> Metric:
        found = GaugeMetricFamily(name, text, labels=["agent"])
        for agent in present:
            found.add_metric([agent.agent_id], value(agent))
        return found

    yield each(
        "farm_agent_silence_seconds", "Since the agent's last message.", lambda a: _since(a.heard_at, at)
    )
    text = "Since when the agent has had results without a receipt; 0: it has none."
    yield each("farm_agent_undelivered_seconds", text, lambda a: _since(a.undelivered_since, at, never=0.0))
    text = "Results of the agent that the farm did not store."
    dropped = CounterMetricFamily("farm_agent_dropped_results", text, labels=["agent"])
    for agent in present:
        dropped.add_metric([agent.agent_id], agent.dropped)
    yield dropped


def _standing(agent: AgentState, at: datetime, suspect_s: float) -> str:
    if agent.state == tables.AGENT_REMOVED:
        return "removed"
    if agent.refused:
        return "refused"
    if _since(agent.heard_at, at) > suspect_s:
        return "silent"
    return "working" if agent.state == tables.AGENT_ACTIVE else "draining"


def _since(then: datetime | None, at: datetime, *, never: float = float("inf")) -> float:
    # By default, never is longer ago than any limit.
    return never if then is None else max(0.0, (at - then).total_seconds())


def _of_scheduler(state: farm_state.FarmState) -> Iterator[Metric]:
    found: farm_state.SchedulerState | None = state.scheduler
    if found is None:
        return
    silence_s = _since(found.beat_at, state.at)
    yield GaugeMetricFamily(
        "farm_scheduler_silence_seconds", "Since the scheduler's last heartbeat.", silence_s
    )
    up = found.broker == farm_state.BROKER_UP
    yield GaugeMetricFamily("farm_broker_up", "Whether the broker answered at that heartbeat.", up)


KEPT_S: Final = 5.0
"""Seconds for which a text is given out again. Chosen: far below the usual interval of a scrape (15 s to a
minute), so that a figure is never much older than it looks; it bounds what many readers cost.
"""


MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format, which every release of it reads."""


class MetricsPage:
    """`counters` are fed by the process that schedules; the rest is read when somebody asks."""

    def __init__(self, database: Database, store: Store, limits: StoreLimits, suspect_s: float) -> None:
        """Nothing is read yet. `suspect_s`: see `LabTimes`."""
        self._registry = CollectorRegistry()
        self.counters = Counters(self._registry)
        self._registry.register(StateCollector(database, store.root, limits, suspect_s))
        ProcessCollector(registry=self._registry)
        self._lock = threading.Lock()
        self._text, self._until_s = b"", 0.0

    def text(self) -> bytes:
        """Return the metrics, as `MEDIA_TYPE`. Any thread may call; it may block."""
        # One thread reads, and the others take what it found: scrapers that pile up do not pile up queries.
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._text = generate_latest(self._registry)
                self._until_s = time.monotonic() + KEPT_S
            return self._text
