"""The scheduler at 1,000 devices x 100,000 cells. Only the runner is fake: policy, SQL and messages are real.

    .venv/bin/python -m benchmarks.farm_scale                      (a private PostgreSQL, durable commits)
    .venv/bin/python -m benchmarks.farm_scale --database sqlite --devices 20 --cells 200 --paced 50

First a paced phase (`--rate` cells per second end). A result and the next assignment of its device are one
transaction; timed are the whole of it, from the message on, and its second part, from the result's being
written to the commit of the assignment, policy and SQL included. Then a flood, in which every device ends its
cell at once and the farm goes as fast as it can. `--out FILE` writes the figures as JSON. The marks: 5 ms at
the 99th percentile for the second part, 500 cells per second, memory within 10 % over the run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlmodel import Session

from agent.messages import AgentHello, Device, ForAgent, JobResult, JobSpec, decode_for_orchestrator, encode
from benchmarks.farm_simulator import fleet
from orchestrator.config import LabTimes
from orchestrator.db import campaigns, devices
from orchestrator.db.migrate import migrate
from orchestrator.db.session import Database
from orchestrator.dispatch.base import DispatchEvent, Heard
from orchestrator.manifest.campaign import Campaign, DelegateEntry, DeviceSelector, ModelEntry
from orchestrator.matrix import MAX_CELLS, expand
from orchestrator.planning import PastResults, plan_cells
from orchestrator.service import Service
from tests.services.postgres import PostgresCluster

REPOSITORY = Path(__file__).resolve().parents[1]
BATCH = 200
NOTHING = PastResults({}, {}, {})


@dataclass(frozen=True, slots=True)
class Spread:
    """Milliseconds."""

    p50: float
    p99: float
    longest: float
    count: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """Order statistics; zeros where nothing was seen."""
        if not seconds:
            return cls(0.0, 0.0, 0.0, 0)
        ordered = sorted(seconds)
        at = [ordered[min(len(ordered) - 1, int(q * len(ordered)))] * 1e3 for q in (0.5, 0.99)]
        return cls(round(at[0], 3), round(at[1], 3), round(ordered[-1] * 1e3, 3), len(ordered))


@dataclass
class SqlClock:
    """How long this process waited for the database."""

    seconds: float = 0.0
    statements: int = 0
    _since: float = 0.0

    def attach(self, database: Database) -> None:
        """Time every statement and commit of an engine."""
        engine = database.engine
        event.listen(engine, "before_cursor_execute", self._before)
        event.listen(engine, "after_cursor_execute", self._after)
        commit = engine.dialect.do_commit

        def timed(connection: Any) -> None:
            since = time.perf_counter()
            commit(connection)
            self.seconds += time.perf_counter() - since

        engine.dialect.do_commit = timed  # type: ignore[method-assign]  # the only place that sees a commit's end

    def _before(self, *_: object) -> None:
        self._since = time.perf_counter()

    def _after(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._since
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
            self.link.settimeout(max(0.0005, timeout_s))
            try:
                data = self.link.recv(1 << 18)
            except TimeoutError:
                return ()
            *lines, self.buffer = (self.buffer + data).split(b"\n")
            self.waiting = lines
        self.received_s = time.perf_counter()
        now, self.waiting = self.waiting[:BATCH], self.waiting[BATCH:]
        return [_heard(line) for line in now]

    def close(self, grace_s: float = 0.0) -> Sequence[DispatchEvent]:  # noqa: ARG002  # the protocol's form
        """Hang up."""
        self.link.close()
        return ()


def _heard(line: bytes) -> Heard:
    agent, _, text = line.partition(b" ")
    return Heard(agent.decode(), decode_for_orchestrator(text))


@dataclass(frozen=True, slots=True)
class Turn:
    """One transaction: when it was committed, its results, how long it took from the message on, how long
    from its results' being written on, and what of that was policy and its SQL.
    """

    at_s: float
    results: int
    begun: int
    seconds: float
    written_s: float
    picking_s: float


class TimedService(Service):
    """The scheduler, with a clock around its transactions."""

    turns: list[Turn]
    _picking_s = 0.0
    _written_at_s = 0.0
    _begun = 0

    def _commit(self, events: Sequence[DispatchEvent]) -> bool:
        since = self._dispatcher.received_s  # type: ignore[attr-defined]  # the simulator's dispatcher
        self._picking_s, self._begun = 0.0, 0
        news = super()._commit(events)
        count = sum(isinstance(e, Heard) and isinstance(e.message, JobResult) for e in events)
        now = time.perf_counter()
        written_s = now - self._written_at_s
        self.turns.append(Turn(now, count, self._begun, now - since, written_s, self._picking_s))
        return news

    def _fill(self, session: Session, device_ids: Sequence[str], now: datetime) -> list[tuple[str, JobSpec]]:
        since = self._written_at_s = time.perf_counter()
        jobs = super()._fill(session, device_ids, now)
        self._picking_s += time.perf_counter() - since
        self._begun += len(jobs)
        return jobs


def submit(database: Database, agents: dict[str, tuple[Device, ...]], cells: int, classes: int) -> int:
    """Campaigns of at most `MAX_CELLS` cells, `classes` of them for any tenth of the devices of a class."""
    present = tuple(device for found in agents.values() for device in found)
    ids = {device.device_id: device.environment_id for device in present}
    environments = {device.device_id: device.environment for device in present}
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
        planned = plan_cells(specs, environments, ids, NOTHING, campaign.reuse, datetime.now(UTC))
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
        binaries = Path(shutil.which("postgres") or newest_binaries()).resolve().parent
        settings = ("shared_buffers = 256MB", "max_wal_size = 4GB")
        cluster = PostgresCluster(folder / "pg", binaries, settings=settings).create().start()
        try:
            url = cluster.socket_url(cluster.new_database())
            yield Database.connect(url, folder), pgbench(binaries, cluster)
        finally:
            cluster.stop("fast")
        return
    yield Database.connect(folder / "farm.db" if kind == "sqlite" else kind, folder), {}


def newest_binaries() -> str:
    """The `postgres` of the newest PostgreSQL that Debian installed here."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise SystemExit("no PostgreSQL here; install it, or give --database sqlite or a URL")
    return str(found[-1])


def pgbench(binaries: Path, cluster: Any) -> dict[str, Any]:
    """What this machine's PostgreSQL does with its own benchmark, just before."""
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
    """Writing and syncing 8 KB."""
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
    theirs.close()
    service = TimedService(database, SocketDispatcher(ours), LabTimes())
    service.turns = []
    done, memory, sql_at_flood = 0, [], (0.0, 0.0)
    began, cpu = time.perf_counter(), time.process_time()
    seen = 0
    while done < total:
        service.listen(1.0)
        done += sum(turn.results for turn in service.turns[seen:])
        seen = len(service.turns)
        if done >= given.paced and not sql_at_flood[1]:
            sql_at_flood = (clock.seconds, time.perf_counter())
        memory.append((done, _rss_bytes()))
    ended, cpu_s = time.perf_counter(), time.process_time() - cpu
    service.stop()
    told = json.loads(simulator.communicate(timeout=60)[0])
    return _figures(service.turns, told, given, total, began, ended, cpu_s, clock, sql_at_flood, memory)


def _figures(
    turns: Sequence[Turn], told: dict[str, list[float]], given: argparse.Namespace, total: int, began: float,
    ended: float, cpu_s: float, clock: SqlClock, sql_at_flood: tuple[float, float],
    memory: Sequence[tuple[int, int]],
) -> dict[str, Any]:  # fmt: skip
    counted, paced = 0, []
    for turn in turns:
        if turn.results and counted >= given.devices:
            paced.append(turn)
        counted += turn.results
        if counted >= given.paced:
            break
    flood_s = max(1e-9, ended - sql_at_flood[1])
    settled = [size for done, size in memory if done >= total // 10] or [0]
    return {
        "paced": {
            "cells_per_s": given.rate,
            "result_received_to_next_assignment_committed_ms": asdict(
                Spread.of([turn.seconds for turn in paced for _ in range(turn.results)])
            ),
            "result_written_to_next_assignment_committed_ms": asdict(
                Spread.of([turn.written_s for turn in paced for _ in range(turn.results)])
            ),
            "of_that_policy_and_its_sql_ms": asdict(
                Spread.of([turn.picking_s / max(1, turn.begun) for turn in paced])
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--per-agent", type=int, default=1)
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=1, help="campaigns for any device of a class")
    parser.add_argument("--paced", type=int, default=6000, help="cells of the paced phase")
    parser.add_argument("--rate", type=float, default=100.0, help="cells per second of the paced phase")
    parser.add_argument("--database", default="postgresql", help="postgresql, sqlite, or a URL")
    parser.add_argument("--out", type=Path, help="where the figures go as JSON")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="farm-scale-"))
    try:
        figures = run(given, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps(figures, indent=1)
    if given.out is not None:
        given.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
