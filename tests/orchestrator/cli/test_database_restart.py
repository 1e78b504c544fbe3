"""Who watches a campaign of a lab outlasts a restart of its database, and says so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.wire.messages import AgentHello
from orchestrator.db.campaigns import farm_state
from orchestrator.db.campaigns.farm_state import BROKER_UP, SchedulerState
from orchestrator.db.devices import devices
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from tests import needs
from tests.orchestrator.asked import CPU
from tests.orchestrator.cli.models import unary_model
from tests.services.forks import Program
from tests.services.postgres import PostgresCluster
from tests.services.processes import Server

CAMPAIGN = """\
version: 1
campaign: line
models:
  - {id: small, source: small.tflite}
delegates:
  cpu: {kind: cpu, threads: 1}
devices:
  - {name: "*cpu*"}
"""
LOOKS = 10
"""More than a command asks before it begins to watch, in moments that a look every 20 ms can tell apart."""
AWAY, BACK = "the database does not answer; waiting", "the database answers again"


@pytest.fixture
def cluster(short_folder: Path) -> Iterator[PostgresCluster]:
    """Start a server that this test may stop."""
    made = PostgresCluster(short_folder / "restarted", needs.postgres_binaries()).create().start()
    yield made
    made.stop("immediate")


@pytest.mark.slow
def test_submit_watch_and_logs_wait_for_a_database_that_restarts(shell, cluster, monkeypatch) -> None:
    url = cluster.socket_url(cluster.new_database())
    join(url)
    monkeypatch.setenv("FARM_DATABASE_URL", url)
    monkeypatch.setenv("FARM_BROKER_URL", "redis://127.0.0.1:1/0")
    shell.write("small.tflite", unary_model())
    shell.write("models.yaml", CAMPAIGN)

    def begin(*arguments: str) -> Server:
        return Program("farm", arguments, shell.folder / f"{arguments[0]}.log", shell.environment)

    submitting = begin("submit", str(shell.folder / "models.yaml"))
    submitting.until(lambda: "1 to run" in submitting.tail(), "the campaign is stored")
    cell = shell.farm("status", "line", "--json").json()["cells"][0]["cell"]
    watchers = [submitting, begin("status", "--watch", "line"), begin("show", "--logs", "-f", cell)]
    asked: dict[int, set[datetime]] = defaultdict(set)
    watchers[1].until(lambda: looks(cluster, asked) >= 3, "all three look again and again")

    cluster.stop("fast")
    for watcher in watchers:
        watcher.until(lambda w=watcher: AWAY in w.tail(), "it says that it waits")
    cluster.start()
    for watcher in watchers:
        watcher.until(lambda w=watcher: BACK in w.tail(), "it goes on")
    assert shell.farm("cancel", "line").code == 0
    assert [watcher.end() for watcher in watchers] == [1, 1, 0]
    assert [watcher.tail().count(AWAY) for watcher in watchers] == [1, 1, 1]


def looks(cluster: PostgresCluster, asked: dict[int, set[datetime]]) -> int:
    """Count the processes that have been seen with enough queries to show that they repeat them."""
    with cluster.connect("postgres") as connection:
        query = "SELECT pid, query_start FROM pg_stat_activity WHERE application_name = 'farm'"
        for pid, at in connection.execute(query):
            asked[pid].add(at)
    return sum(len(times) >= LOOKS for times in asked.values())


def join(url: str) -> None:
    """Join an agent with one CPU to this lab, and a scheduler that sends heartbeats."""
    database, now = Database.connect(url), datetime.now(UTC)
    migrate(database)
    device = CPU.model_copy(update={"device_id": "rack-1.host-cpu"})
    with database.write() as turn:
        hello = AgentHello(agent_id="rack-1", host="rack-1", version="0", devices=(device,))
        devices.record_hello(turn, hello, now, sole=False)
        farm_state.write_scheduler(turn, SchedulerState("lab", 1, now, now, BROKER_UP, "", ""))
    database.close()
