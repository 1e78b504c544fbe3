"""Builds the text that Prometheus scrapes; scrapes within a few seconds of each other share it."""

from __future__ import annotations

import threading
import time
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

from orchestrator.config.limits import StoreLimits
from orchestrator.db.engine.sessions import Database
from orchestrator.monitoring.counters import Counters
from orchestrator.monitoring.state_collector import StateCollector
from orchestrator.sources.store import Store

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
