"""The scheduler at 1,000 devices x 100,000 cells. Only the runner is fake: policy, SQL and messages are real.

    .venv/bin/python -m benchmarks.farm_scale                      (a private PostgreSQL, durable commits)
    .venv/bin/python -m benchmarks.farm_scale --database sqlite --devices 20 --cells 200 --paced 50

First a paced phase: cells of 20 s, so that `--rate` of them end per second. Then a flood, in which every
device ends its cell at once and the farm goes as fast as it can. `--out FILE` writes the figures as JSON.

The farm commits a result and the next assignment of its device in one transaction, so from commit to commit
there is mostly nothing to measure. The report has three times, each of the paced phase and stricter than the
one before: from the commit of a result to the commit of the device's next assignment (the mark: 5 ms at the
99th percentile), from the result's being written to that commit, policy and SQL included, and from the
message on. Other marks: 500 cells per second in the flood, memory within 10 % over the run.
"""

import argparse
import json
import os
import platform
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import event

from agent.wire.messages import (
    AgentHello,
    Device,
    ForAgent,
    JobResult,
    JobSpec,
    decode_for_orchestrator,
    encode,
)
from benchmarks.farm_figures import Spread, postgres_binaries, report
from benchmarks.farm_simulator import fleet
from benchmarks.output import REPOSITORY, parser
from orchestrator.config.lab import LabTimes
from orchestrator.db.campaigns import campaigns
from orchestrator.db.devices import devices
from orchestrator.db.engine.sessions import Database
from orchestrator.db.engine.turn import Turn
from orchestrator.db.migrate import migrate
from orchestrator.dispatch.base import DispatchEvent, MessageReceived
from orchestrator.manifest.campaign import Campaign, DelegateEntry, DeviceSelector, ModelEntry
from orchestrator.policy.fingerprint import Environments
from orchestrator.policy.matrix import MAX_CELLS, expand
from orchestrator.policy.preview import PastResults, plan_cells
from orchestrator.scheduling.loop import SchedulerLoop
from tests.services.postgres import PostgresCluster

BATCH = 200
NOTHING = PastResults({}, {}, {})


@dataclass
class SqlClock:
    """The time that this process waited for the database, and its last commit."""

    seconds: float = 0.0
    statements: int = 0
    committed_s: float = 0.0

    def attach(self, database: Database) -> None:
        """Time each wait: PostgreSQL's answers, SQLite's calls."""
        event.listen(database.engine, "before_cursor_execute", self._count)
        dialect = database.engine.dialect
        if database.is_postgresql:
            self._time(psycopg.Connection, "wait")
        else:
            self._time(dialect, "do_execute")
            self._time(dialect, "do_executemany")
            self._time(dialect, "do_commit")
        commit: Any = dialect.do_commit

        def noted(connection: Any) -> None:
            commit(connection)
            self.committed_s = time.perf_counter()

        setattr(dialect, "do_commit", noted)  # noqa: B010  # the only place that sees a commit's end

    def _time(self, owner: Any, name: str) -> None:
        waits = getattr(owner, name)

        def timed(*arguments: Any, **named: Any) -> Any:
            since = time.perf_counter()
            try:
                return waits(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - since

        setattr(owner, name, timed)

    def _count(self, *_: object) -> None:
        self.statements += 1


@dataclass
class SocketDispatcher:
    """The simulator's end of a socket pair; messages as they travel everywhere."""

    link: socket.socket
    received_s: float = 0.0
    buffer: bytes = b""
    waiting: list[bytes] = field(default_factory=list)
    sole_agent = False
    fault = ""

    def send(self, agent_id: str, message: ForAgent) -> None:
        """One line; the simulator always reads."""
        self.link.sendall(agent_id.encode() + b" " + encode(message))

    def events(self, timeout_s: float) -> Sequence[DispatchEvent]:
        """At most `BATCH` messages, as through the broker."""
        if not self.waiting:
            # Never 0: that makes a socket non-blocking, which raises another error than `TimeoutError`.
            self.link.settimeout(max(0.0005, timeout_s))
            try:
                data = self.link.recv(1 << 18)
            except TimeoutError:
                return ()
            *lines, self.buffer = (self.buffer + data).split(b"\n")
            self.waiting = lines
        self.received_s = time.perf_counter()
        now, self.waiting = self.waiting[:BATCH], self.waiting[BATCH:]
        return [_received(line) for line in now]

    def close(self, grace_s: float = 0.0) -> Sequence[DispatchEvent]:  # noqa: ARG002  # the protocol's form
        """Hang up."""
        self.link.close()
        return ()


def _received(line: bytes) -> MessageReceived:
    agent, _, text = line.partition(b" ")
    return MessageReceived(agent.decode(), decode_for_orchestrator(text))


@dataclass(frozen=True, slots=True)
class TimedTurn:
    """One transaction over messages: its results, and seconds until its commit.

    `since_message_s`: from the message on; `since_written_s`: from its results' being written on;
    `since_commits_s`: of each device that it gave a cell, from the commit of the device's last result on.
    """

    results: int
    since_message_s: float
    since_written_s: float
    since_commits_s: tuple[float, ...]


class TimedScheduler(SchedulerLoop):
    """The scheduler, with a clock around its transactions."""

    clock: SqlClock
    turns: list[TimedTurn]
    _written_at_s = 0.0

    def attach(self, clock: SqlClock) -> None:
        """Wrap the scheduler; `clock` is attached to the database."""
        self.clock, self.turns = clock, []
        self._ending: set[str] = set()
        self._ended_at_s: dict[str, float] = {}
        self._gaps: list[float] = []

    def _commit(self, events: Sequence[DispatchEvent]) -> bool:
        since = self._dispatcher.received_s  # type: ignore[attr-defined]  # the simulator's dispatcher
        ends = [
            e.message for e in events if isinstance(e, MessageReceived) and isinstance(e.message, JobResult)
        ]
        self._ending, self._written_at_s = {message.device_id for message in ends}, time.perf_counter()
        news = super()._commit(events)
        at_s = self.clock.committed_s
        self._ended_at_s |= dict.fromkeys(self._ending, at_s)
        self.turns.append(TimedTurn(len(ends), at_s - since, at_s - self._written_at_s, tuple(self._gaps)))
        self._gaps.clear()
        return news

    def _fill(self, turn: Turn, device_ids: Sequence[str], now: datetime) -> list[tuple[str, JobSpec]]:
        self._written_at_s = time.perf_counter()
        return super()._fill(turn, device_ids, now)

    def _publish(self, jobs: Iterable[tuple[str, JobSpec]]) -> None:
        """Publish the jobs; called when the assignments are committed, in a turn or in a sweep."""
        jobs = list(jobs)
        for _, job in jobs:
            if job.device_id in self._ending:
                # Its result and this assignment were committed in one transaction.
                self._gaps.append(0.0)
                self._ending.discard(job.device_id)
            elif (ended_s := self._ended_at_s.pop(job.device_id, None)) is not None:
                self._gaps.append(self.clock.committed_s - ended_s)
        super()._publish(jobs)


def submit(database: Database, agents: dict[str, tuple[Device, ...]], cells: int, classes: int) -> int:
    """Campaigns of at most `MAX_CELLS` cells, `classes` of them for any tenth of the devices of a class."""
    present = tuple(device for found in agents.values() for device in found)
    environments = Environments(present)
    for agent_id, own in agents.items():
        with database.write() as session:
            hello = AgentHello(agent_id=agent_id, host=agent_id, version="0", devices=own)
            devices.record_hello(session, hello, datetime.now(UTC), sole=False)
    made = number = 0
    while made < cells:
        any_of = max(1, len(present) // 10) if number < classes else None
        models = max(1, min(cells - made, MAX_CELLS) // (any_of or len(present)))
        campaign, files = _campaign(number, models, any_of)
        specs = expand(campaign, files, present)[: cells - made]
        planned = plan_cells(specs, environments, NOTHING, campaign.reuse, datetime.now(UTC))
        with database.write() as session:
            content = campaigns.content_of(campaign, planned, campaign.reuse)
            campaigns.add(session, campaign, planned, content, campaign.reuse, datetime.now(UTC))
        made, number = made + len(specs), number + 1
    return made


@dataclass(frozen=True, slots=True)
class _File:
    id: str
    sha256: str
    size_bytes: int = 4_000_000
    unreachable: str | None = None


def _campaign(number: int, models: int, any_of: int | None) -> tuple[Campaign, list[_File]]:
    names = [f"model-{number}-{i}" for i in range(models)]
    selectors = () if any_of is None else (DeviceSelector(kind="gpu", count=any_of),)
    campaign = Campaign(
        name=f"scale-{number}",
        level="quick",
        labels={},
        models=tuple(ModelEntry(name, f"{name}.tflite") for name in names),
        delegates=(DelegateEntry("gpu", "gpu", {"precision": "fp32"}),),
        devices=selectors,
        exclude=(),
        baseline_delegate=None,
        reuse="same-fingerprint",
        manifest_sha256=sha256(str(number).encode()).hexdigest(),
    )
    return campaign, [_File(name, sha256(name.encode()).hexdigest()) for name in names]


@contextmanager
def database_of(kind: str, folder: Path) -> Iterator[tuple[Database, dict[str, Any]]]:
    """`sqlite`, `postgresql` (a private one, with its figures) or the URL of a PostgreSQL."""
    if kind == "postgresql":
        binaries = postgres_binaries()
        settings = ("shared_buffers = 256MB", "max_wal_size = 4GB")
        cluster = PostgresCluster(folder / "pg", binaries, settings=settings).create().start()
        try:
            url = cluster.socket_url(cluster.new_database())
            yield Database.connect(url, folder), pgbench(binaries, cluster)
        finally:
            cluster.stop("fast")
        return
    yield Database.connect(folder / "farm.db" if kind == "sqlite" else kind, folder), {}


def pgbench(binaries: Path, cluster: Any) -> dict[str, Any]:
    """Return the results of this machine's PostgreSQL in its own benchmark, just before."""
    program = binaries / "pgbench"
    if not program.exists():
        return {"pgbench": "not installed"}
    place = ["-h", str(cluster.folder), "-U", cluster.user, "postgres"]
    subprocess.run([program, "-i", "-q", "-s", "10", *place], check=True, capture_output=True)
    told = subprocess.run(
        [program, "-c", "1", "-T", "5", *place], check=True, capture_output=True, text=True
    ).stdout
    words = {
        line.split("=")[0].strip(): line.split("=")[1].split()[0] for line in told.splitlines() if "=" in line
    }
    return {"pgbench_tps_1_client": float(words.get("tps", "0")),
            "pgbench_latency_ms": float(words.get("latency average", "0"))}  # fmt: skip


def fsync_ms(folder: Path, count: int = 100) -> Spread:
    """Time writing and syncing 8 KB, in ms."""
    taken = []
    with (folder / "fsync").open("wb", buffering=0) as out:
        for _ in range(count):
            since = time.perf_counter()
            out.write(bytes(8192))
            os.fsync(out.fileno())
            taken.append(time.perf_counter() - since)
    return Spread.of(taken)


def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One run; its figures."""
    with database_of(given.database, folder) as (database, machine):
        machine |= {
            "fsync_8k_ms": asdict(fsync_ms(folder)),
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
        }
        migrate(database)
        since = time.perf_counter()
        total = submit(database, fleet(given.devices, given.per_agent), given.cells, given.classes)
        submitted_s = time.perf_counter() - since
        figures = schedule(database, given, total)
        database.close()
    return {
        "devices": given.devices,
        "devices_per_agent": given.per_agent,
        "cells": total,
        "campaigns_for_classes": given.classes,
        "database": given.database.partition(":")[0],
        "submit_cells_per_s": round(total / submitted_s),
        **figures,
        "machine": machine,
    }


def schedule(database: Database, given: argparse.Namespace, total: int) -> dict[str, Any]:
    """Let the scheduler work until every cell has its result."""
    clock = SqlClock()
    clock.attach(database)
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    words = {"--fd": theirs.fileno(), "--devices": given.devices, "--per-agent": given.per_agent}
    words |= {"--paced": given.paced, "--rate": given.rate}
    options = [str(word) for pair in words.items() for word in pair]
    simulator = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.farm_simulator", *options],
        pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
    )  # fmt: skip
    # The simulator has a copy; only without this one does its end close the connection.
    theirs.close()
    scheduler = TimedScheduler(database, SocketDispatcher(ours), LabTimes())
    scheduler.attach(clock)
    done, memory, sql_at_flood = 0, [], (0.0, 0.0)
    began, cpu = time.perf_counter(), time.process_time()
    seen = 0
    while done < total:
        scheduler.listen(1.0)
        done += sum(turn.results for turn in scheduler.turns[seen:])
        seen = len(scheduler.turns)
        if done >= given.paced and not sql_at_flood[1]:
            sql_at_flood = (clock.seconds, time.perf_counter())
        memory.append((done, _rss_bytes()))
    ended, cpu_s = time.perf_counter(), time.process_time() - cpu
    scheduler.stop()
    told = json.loads(simulator.communicate(timeout=60)[0])
    return _figures(scheduler.turns, told, given, total, began, ended, cpu_s, clock, sql_at_flood, memory)


def _figures(
    turns: Sequence[TimedTurn], told: dict[str, list[float]], given: argparse.Namespace, total: int,
    began: float, ended: float, cpu_s: float, clock: SqlClock, sql_at_flood: tuple[float, float],
    memory: Sequence[tuple[int, int]],
) -> dict[str, Any]:  # fmt: skip
    counted, paced = 0, []
    for turn in turns:
        counted += turn.results
        # Without a cell of each device at either end, where the load sets in, and where the flood begins.
        if given.devices <= counted < given.paced - given.devices:
            paced.append(turn)
    flood_s = max(1e-9, ended - sql_at_flood[1])
    settled = [size for done, size in memory if done >= total // 10] or [0]
    return {
        "paced": {
            "cells_per_s": given.rate,
            "result_committed_to_next_assignment_committed_ms": asdict(
                Spread.of([gap for turn in paced for gap in turn.since_commits_s])
            ),
            "result_written_to_next_assignment_committed_ms": asdict(
                Spread.of([turn.since_written_s for turn in paced for _ in range(turn.results)])
            ),
            "result_received_to_next_assignment_committed_ms": asdict(
                Spread.of([turn.since_message_s for turn in paced for _ in range(turn.results)])
            ),
            "results_per_transaction": round(
                sum(turn.results for turn in paced) / max(1, sum(turn.results > 0 for turn in paced)), 2
            ),
            "result_sent_to_next_job_received_ms": asdict(Spread.of(told["paced"])),
        },
        "flood": {
            "cells_per_s": round((total - given.paced) / flood_s, 1),
            "sql_share": round((clock.seconds - sql_at_flood[0]) / flood_s, 3),
            "result_sent_to_next_job_received_ms": asdict(Spread.of(told["flooded"])),
        },
        "statements_per_cell": round(clock.statements / total, 1),
        "sql_share": round(clock.seconds / (ended - began), 3),
        "memory_mib": {
            "at_a_tenth": round(settled[0] / 2**20, 1),
            "largest_after": round(max(settled) / 2**20, 1),
            "growth": round(max(settled) / max(1, settled[0]) - 1, 3),
        },
        "seconds": round(ended - began, 1),
        "scheduler_cpu_ms_per_cell": round(cpu_s * 1e3 / total, 3),
    }


def _rss_bytes() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> int:
    """Run, print, write."""
    options = parser(__doc__)
    options.add_argument("--devices", type=int, default=1000)
    options.add_argument("--per-agent", type=int, default=1)
    options.add_argument("--cells", type=int, default=100_000)
    options.add_argument("--classes", type=int, default=1, help="campaigns for any device of a class")
    options.add_argument("--paced", type=int, default=5000, help="cells of the paced phase")
    options.add_argument("--rate", type=float, default=50.0, help="cells per second of the paced phase")
    options.add_argument("--database", default="postgresql", help="postgresql, sqlite, or a URL")
    given = options.parse_args()
    return report(lambda folder: run(given, folder), given.out)


if __name__ == "__main__":
    sys.exit(main())
