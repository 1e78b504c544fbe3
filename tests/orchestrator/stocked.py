"""A database with a campaign in it, and results as an agent would send them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlmodel import select

from agent.wire.measurement import Accuracy, Latency, Measurement
from agent.wire.messages import (
    AgentHello,
    Device,
    JobResult,
    JobSpec,
    MissingDelegate,
    Reason,
    ReasonCode,
    Status,
)
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns
from orchestrator.db.cells import attempts
from orchestrator.db.devices import devices
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from orchestrator.db.results.past import past_results
from orchestrator.manifest.campaign import Campaign
from orchestrator.policy.assign import Assignment
from orchestrator.policy.fingerprint import Environments
from orchestrator.policy.matrix import expand
from orchestrator.policy.preview import PlannedCell, plan_cells
from tests.orchestrator.asked import CPU, POCL, asked, model_files


def new_database(folder: Path) -> Database:
    """Return a farm's database with its tables and no rows."""
    path = folder / "farm.db"
    path.touch(0o600)
    path.write_bytes(_migrated())
    return Database.connect(path)


@cache
def _migrated() -> bytes:
    """Return the file of a database with the farm's tables, which takes much less time to copy than to
    migrate.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "farm.db"
        database = Database.connect(path)
        migrate(database)
        database.close()
        return path.read_bytes()


def report_devices(
    database: Database, present: Sequence[Device] = (CPU, POCL), missing: Sequence[MissingDelegate] = ()
) -> None:
    hello = AgentHello(
        agent_id="embedded", host="h", version="0", devices=tuple(present), missing=tuple(missing)
    )
    with database.write() as session:
        devices.record_hello(session, hello, datetime.now(UTC), sole=True)


def planned(
    database: Database, campaign: Campaign, present: Sequence[Device] = (CPU, POCL), *, force: bool = False
) -> list[PlannedCell]:
    specs = expand(campaign, model_files(*(m.id for m in campaign.models)), present)
    environments = Environments(present)
    with database.read() as session:
        past = past_results(session, specs, environments)
    reuse = "never" if force else campaign.reuse
    return list(plan_cells(specs, environments, past, reuse, datetime.now(UTC)))


def stock(
    database: Database, campaign: Campaign | None = None, present: Sequence[Device] = (CPU, POCL)
) -> str:
    """Store a campaign as `farm.submit` does; returns its id."""
    campaign = campaign or asked()
    report_devices(database, present)
    plan = planned(database, campaign, present)
    with database.write() as session:
        content = campaigns.content_of(campaign, plan, campaign.reuse)
        return campaigns.add(session, campaign, plan, content, campaign.reuse, datetime.now(UTC))


def cells(database: Database) -> list[tables.Cell]:
    with database.read() as session:
        rows = session.exec(select(tables.Cell).order_by(tables.Cell.campaign_no, tables.Cell.position))
        found = list(rows)
        session.expunge_all()
        return found


def dispatch(
    database: Database, cell_id: str, device_id: str | None = None, *, start: bool = True
) -> JobSpec:
    """Give a cell to a device, else its target; `start`: the runner starts too."""
    now = datetime.now(UTC)
    with database.write() as session:
        cell = session.get_one(tables.Cell, cell_id)
        job = attempts.begin(session, Assignment(cell_id, device_id or cell.target), now)
        if start:
            assert attempts.start(session, job.attempt_id, job.epoch, now)
    return job


def result(
    job: JobSpec,
    status: Status = Status.DONE,
    code: ReasonCode = ReasonCode.RUNNER_ERROR,
    *,
    environment: dict[str, str] | None = None,
    p50: float = 1.0,
) -> JobResult:
    reason = None if status is Status.DONE else Reason(code=code, text=f"because of {code.value}")
    return JobResult(
        attempt_id=job.attempt_id,
        epoch=job.epoch,
        cell_id=job.cell_id,
        device_id=job.device_id,
        status=status,
        reason=reason,
        measurement=measured(p50) if status is Status.DONE else None,
        environment=environment or {},
        duration_ns=12_000_000_000,
    )


def measured(p50: float | None = 1.0, verdict: str = "pass") -> Measurement:
    return Measurement(
        latency_ms=Latency(
            init=3.0, init_warm=2.0, first=2.0, p50=p50, p90=None, p99=None, mean=p50,
            ci95=None if p50 is None else (p50 * 0.9, p50 * 1.1),
            missing={} if p50 else {"p50": "needs 11 samples"},
        ),
        samples=30,
        memory_peak_bytes=1000,
        accuracy=Accuracy(reference="r", max_abs=0, rel_l2=0, cosine=1, verdict=verdict),
        delegation=None,
        settings={},
        samples_sha256="5" * 64,
    )  # fmt: skip
