"""The tables, in terms that SQLite and PostgreSQL share."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, Session, SQLModel, select

from orchestrator.policy.lifecycle import LIVE_ATTEMPT, OPEN, AttemptState, CellState

# Alembic changes a constraint by its name; without this, those of SQLite would have none.
SQLModel.metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC. Naive values are refused: they are always a bug."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002  # SQLAlchemy's signature
        """Aware datetime -> UTC. Raises `ValueError` for a naive one."""
        if value is not None and value.tzinfo is None:
            raise ValueError(f"a moment without a time zone: {value!r}")
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002  # SQLAlchemy's signature
        """Return a stored moment as UTC, because SQLite drops the time zone."""
        if value is not None and value.tzinfo is None:
            return value.replace(tzinfo=UTC)
        return value


def _quoted(states: Iterable[CellState | AttemptState]) -> str:
    return ", ".join(f"'{state.value}'" for state in states)


AGENT_ACTIVE, AGENT_DRAINING, AGENT_REMOVED = "active", "draining", "removed"
_LIVE = sa.text(f"state IN ({_quoted(sorted(LIVE_ATTEMPT))})")
_LEADS = sa.text(f"state IN ({_quoted(sorted(LIVE_ATTEMPT))}) AND lead_attempt_id IS NULL")
_CARRIED = sa.text("lead_attempt_id IS NOT NULL")
_COUNTED = sa.text("counted")
_QUEUED = sa.text("state = 'queued'")
_UNENDED = sa.text("ended_at IS NULL")
_FAILED = sa.text("state = 'failed'")
_SHARED = sa.text("siblings IS NOT NULL")
MEASURE, HEALTH = "measure", "health"

IMPORTS = ":imported"
"""The agent of the devices of imported results: none can have that name, and no list shows it."""

IS_LIVE = sa.text(f"attempt.state IN ({_quoted(sorted(LIVE_ATTEMPT))})")
IS_OPEN = sa.text(f"cell.state IN ({_quoted(sorted(OPEN))})")
IS_QUEUED = sa.text("cell.state = 'queued'")
"""Conditions of queries, in the words of the partial indexes: a bound parameter would keep an engine from
using them.
"""


def count(
    session: Session, table: type[SQLModel], *where: sa.ColumnElement[bool] | sa.TextClause | bool
) -> int:
    """Return the number of a table's rows that meet all these conditions."""
    return session.exec(select(sa.func.count()).select_from(table).where(*where)).one()


class Campaign(SQLModel, table=True):
    """One submission. `content` digests the whole request, for an idempotent submit. `submitted_by`: a user
    of the endpoint, else ACCOUNT@HOST; empty where an older release stored it. `baseline_kind` and
    `baseline_options`: what its baseline is; without them nothing is measured by blocks.

    `parked`: no process waits for it now; until one does, the embedded scheduler ignores it.
    `paused_at`: a user wants nothing of it to start. `served_s`: device-seconds it was given so far, as fair
    share counts them, and `user_served_s` all campaigns of its submitter; `served_at`: when last. `ended_at`:
    when its last cell ended. `purpose`: measure, or health (the farm's own campaign, which requalifies
    devices and is shown nowhere).
    """

    __table_args__ = (
        sa.Index("ix_campaign_open", "no", sqlite_where=_UNENDED, postgresql_where=_UNENDED),
    )  # fmt: skip

    no: int | None = Field(default=None, primary_key=True)
    campaign_id: str = Field(unique=True)
    name: str = Field(index=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
    submitted_at: datetime = Field(sa_type=UtcDateTime, index=True)
    level: str
    baseline_delegate: str | None = None
    baseline_kind: str | None = None
    baseline_options: dict[str, Any] | None = Field(default=None, sa_type=sa.JSON)
    reuse: str
    manifest_sha256: str
    content: str = Field(index=True)
    model_names: list[str] = Field(sa_type=sa.JSON)
    delegate_names: list[str] = Field(sa_type=sa.JSON)
    labels: dict[str, str] = Field(sa_type=sa.JSON)
    parked: bool = False
    cancel_asked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    priority: int = 0
    paused_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    served_s: float = 0.0
    served_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    purpose: str = MEASURE
    submitted_by: str = Field(default="", sa_column_kwargs={"server_default": ""})
    user_served_s: float = Field(default=0.0, sa_column_kwargs={"server_default": "0"})


class Manifest(SQLModel, table=True):
    """The campaign file of a campaign as it was submitted, in a table of its own: a scheduler reads campaigns
    all the time. `chosen`: the part of it that was submitted, by options. `origins`: where each model comes
    from, by its id.
    """

    campaign_no: int = Field(primary_key=True, foreign_key="campaign.no")
    file: str
    document: str
    chosen: dict[str, Any] = Field(sa_type=sa.JSON)
    origins: dict[str, Any] = Field(sa_type=sa.JSON)


NO_FILE = ""
"""The sha256 of a cell's model that could not be fetched: no file of the store has it."""


class Model(SQLModel, table=True):
    """A model file of the store, or `NO_FILE`."""

    sha256: str = Field(primary_key=True)
    # An INTEGER of PostgreSQL has 32 bits, and a model may have 2 GiB.
    size_bytes: int = Field(sa_type=sa.BigInteger)
    added_at: datetime = Field(sa_type=UtcDateTime)


class Agent(SQLModel, table=True):
    """An agent as its last hello described it. `missing`: delegate kinds its host cannot offer, with reasons.

    `heard_at`: its last sign of life, by the server's clock. `state`: active | draining | removed.
    `refused`: why it gets no jobs though it is connected (another protocol version). `undelivered_since`:
    since when each heartbeat has named results without a receipt. `dropped`: how many of its results were not
    stored, the last one at `dropped_at`. `clock_ahead_s`: how much later its host's wall clock is than the
    server's.
    """

    agent_id: str = Field(primary_key=True)
    host: str
    version: str
    protocol: int
    missing: list[dict[str, str]] = Field(sa_type=sa.JSON)
    seen_at: datetime = Field(sa_type=UtcDateTime)
    heard_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    state: str = AGENT_ACTIVE
    refused: str | None = Field(default=None, sa_type=sa.Text)
    undelivered_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    dropped: int = 0
    dropped_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    clock_ahead_s: float | None = None


class Environment(SQLModel, table=True):
    """The conditions and versions that a result was measured with, by their digest."""

    environment_id: str = Field(primary_key=True)
    fields: dict[str, str] = Field(sa_type=sa.JSON)


class Device(SQLModel, table=True):
    """A device to measure on. `epoch` grows with every attempt: the fencing token.

    `present`: its agent's last hello named it. `rests_until`: until then it cools down. `quarantined_at`:
    since then it takes health checks only. `faulty_cells`: the cells that its faults ended since its last
    success; `health_failures`: health checks it failed in a row. `delegate_environments`: by delegate kind,
    the fields that its results have besides those of the device's environment. `noise`: a `DeviceNoise`.
    `reserved_by`: who alone gets new jobs there until `reserved_until`, named as in `Campaign.submitted_by`.
    `recoveries`: the runs of the operator's command for it, the newest last.
    """

    device_id: str = Field(primary_key=True)
    agent_id: str = Field(foreign_key="agent.agent_id", index=True)
    kind: str
    api: str
    name: str
    vendor: str
    delegates: list[str] = Field(sa_type=sa.JSON)
    exclusion_group: str
    environment_id: str = Field(foreign_key="environment.environment_id")
    facts: dict[str, str] = Field(sa_type=sa.JSON)
    labels: dict[str, str] = Field(sa_type=sa.JSON)
    epoch: int = 0
    present: bool = True
    cooldown_s: float = 0.0
    rests_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    quarantined_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    quarantine_text: str | None = Field(default=None, sa_type=sa.Text)
    faulty_cells: list[str] = Field(default_factory=list, sa_type=sa.JSON)
    health_failures: int = 0
    delegate_environments: dict[str, dict[str, str]] = Field(default_factory=dict, sa_type=sa.JSON)
    noise: dict[str, Any] | None = Field(default=None, sa_type=sa.JSON)
    reserved_by: str | None = None
    reserved_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    reserved_text: str | None = Field(default=None, sa_type=sa.Text)
    recoveries: list[dict[str, Any]] | None = Field(default=None, sa_type=sa.JSON)


class Pool(SQLModel, table=True):
    """A class of devices that cells waited for at some time. `line`: the text of the class, under which its
    cells wait (`Cell.line`): a device that becomes idle looks only at its own line and at those of these
    classes.
    """

    line: str = Field(primary_key=True)


class Cell(SQLModel, table=True):
    """One model x delegate x target x level of a campaign.

    `key` digests what the cell is; `target` is a device id, `any:SELECTOR#N` for any device of a class, or
    "-" where no device can take it. `line` names the queue that it waits in: a device id, or the text of a
    class with a delegate kind (`any:SELECTOR/KIND`). `siblings` joins the cells of a campaign that want
    different devices of one class; `device_id` is the one that it has, or that its result is of.
    `retried_after`: attempts up to this number were before a user's `retry` and do not count against the
    cell. `shown_attempt_id` is the result the cell shows: its own counted one, or the reused one of another
    cell; of a cell that has not ended, the one that stands until a new one replaces it. `reuse`: its model's
    rule; `retry`: a `RetryEntry`; `queue_limit_s`: how long it may wait for a device, now until
    `queue_until`. `refines`: a `Refining`, while blocks are added to the result that it shows.
    """

    __table_args__ = (
        sa.UniqueConstraint("campaign_no", "key"),
        sa.CheckConstraint(f"state IN ({_quoted(CellState)})", name="state"),
        # In the order of `queue.candidate_queries.in_order`, which walks it and sorts nothing.
        sa.Index("ix_cell_pick", "campaign_no", "line", "rank", "position",
              sqlite_where=_QUEUED, postgresql_where=_QUEUED),
        # For the question which siblings have a device (`queue.candidate_queries.fits`).
        sa.Index("ix_cell_siblings", "device_id", "siblings", sqlite_where=_SHARED, postgresql_where=_SHARED),
        sa.Index("ix_cell_names", "model", "delegate", "target"),
        sa.Index("ix_cell_campaign_state", "campaign_no", "state"),
        # For the look of every sweep whether a cell has waited too long.
        sa.Index("ix_cell_queue_until", "queue_until", sqlite_where=_QUEUED, postgresql_where=_QUEUED),
        # For the waiting cells of a model that are measured together with their baseline.
        sa.Index("ix_cell_waiting_model", "campaign_no", "model",
              sqlite_where=_QUEUED, postgresql_where=_QUEUED),
    )  # fmt: skip

    cell_id: str = Field(primary_key=True)
    campaign_no: int = Field(foreign_key="campaign.no")
    key: str
    series: str
    position: int
    rank: int = 0
    model: str
    model_sha256: str = Field(foreign_key="model.sha256")
    delegate: str
    delegate_kind: str
    delegate_options: dict[str, Any] = Field(sa_type=sa.JSON)
    target: str
    level: str
    plan: dict[str, Any] = Field(sa_type=sa.JSON)
    inputs: dict[str, Any] = Field(sa_type=sa.JSON)
    soft_limit_s: float
    expected_s: float = 0.0
    state: str
    reason_code: str | None = None
    reason_text: str | None = Field(default=None, sa_type=sa.Text)
    not_before: datetime | None = Field(default=None, sa_type=UtcDateTime)
    cancel_asked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    reused_from: str | None = None
    shown_attempt_id: str | None = Field(default=None, index=True)
    line: str
    siblings: str | None = None
    device_id: str | None = None
    retried_after: int = 0
    reuse: str | None = None
    retry: dict[str, Any] | None = Field(default=None, sa_type=sa.JSON)
    queue_limit_s: float | None = None
    queue_until: datetime | None = Field(default=None, sa_type=UtcDateTime)
    refines: dict[str, Any] | None = Field(default=None, sa_type=sa.JSON)


class Attempt(SQLModel, table=True):
    """One attempt at a cell on a device. Three partial unique indexes keep the invariant even where
    the scheduler is wrong: one live attempt per cell, and one that leads per device and exclusion group.

    `lead_attempt_id`: the attempt in whose message and lease this one is measured, in blocks with it;
    `baseline_device_id`: where one that leads has the baseline measured again for the ratio alone; `arms`:
    how many take turns, itself included. `exclusion_group`: what all of them keep busy. `heard_at`: when its
    last message arrived, by the server's clock.
    """

    __table_args__ = (
        sa.UniqueConstraint("cell_id", "attempt_no"),
        sa.CheckConstraint(f"state IN ({_quoted(AttemptState)})", name="state"),
        # For the question on which devices a cell has failed (`queue.candidate_queries.fits`).
        sa.Index("ix_attempt_failed", "device_id", "cell_id", sqlite_where=_FAILED, postgresql_where=_FAILED),
        sa.Index("uq_attempt_live_cell", "cell_id", unique=True, sqlite_where=_LIVE, postgresql_where=_LIVE),
        sa.Index(
            "uq_attempt_live_device", "device_id", unique=True, sqlite_where=_LEADS, postgresql_where=_LEADS
        ),
        sa.Index(
            "uq_attempt_live_group", "exclusion_group", unique=True,
            sqlite_where=_LEADS, postgresql_where=_LEADS,
        ),
        sa.Index("ix_attempt_carried", "lead_attempt_id", sqlite_where=_CARRIED, postgresql_where=_CARRIED),
    )  # fmt: skip

    attempt_id: str = Field(primary_key=True)
    cell_id: str = Field(foreign_key="cell.cell_id")
    attempt_no: int
    device_id: str = Field(foreign_key="device.device_id")
    exclusion_group: str
    epoch: int
    state: str
    reason_code: str | None = None
    reason_text: str | None = Field(default=None, sa_type=sa.Text)
    phase: str = ""
    stop_asked: bool = False
    lead_attempt_id: str | None = None
    baseline_device_id: str | None = None
    arms: int = 1
    dispatched_at: datetime = Field(sa_type=UtcDateTime)
    started_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    deadline_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    heard_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    ended_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class Result(SQLModel, table=True):
    """The result that an attempt delivered. `counted`: it decided its cell; every other one is evidence only.

    `late`: it arrived after its attempt had been given up, or with an old epoch. `content` digests the
    message, which distinguishes a repeated delivery from a contradicting one. `grade`: of its figures,
    None where there are none.
    """

    __table_args__ = (
        sa.Index("uq_result_counted_cell", "cell_id", unique=True, sqlite_where=_COUNTED,
              postgresql_where=_COUNTED),
        # For the newest earlier result of a cell that is planned, or about to start.
        sa.Index("ix_result_fingerprint_received_at", "fingerprint", "received_at"),
        sa.Index("ix_result_series_received_at", "series", "received_at"),
    )  # fmt: skip

    attempt_id: str = Field(primary_key=True, foreign_key="attempt.attempt_id")
    cell_id: str = Field(foreign_key="cell.cell_id", index=True)
    device_id: str = Field(foreign_key="device.device_id")
    epoch: int
    status: str
    reason_code: str
    reason_text: str = Field(sa_type=sa.Text)
    measurement: str | None = Field(default=None, sa_type=sa.Text)
    samples_sha256: str | None = None
    environment_id: str = Field(foreign_key="environment.environment_id")
    facts: dict[str, str] = Field(sa_type=sa.JSON)
    log_tail: str = Field(sa_type=sa.Text)
    duration_ns: int = Field(sa_type=sa.BigInteger)
    series: str
    fingerprint: str
    content: str
    counted: bool
    late: bool
    received_at: datetime = Field(sa_type=UtcDateTime)
    grade: str | None = None


class ReferenceClaim(SQLModel, table=True):
    """An agent's claim about a reference that it made: its file, or why it could not be made.

    `inputs` is the digest of what the job said of them. `trusted`: the agent was the farm's own child.
    """

    __tablename__ = "reference_claim"

    key: str = Field(primary_key=True)
    agent_id: str = Field(primary_key=True, foreign_key="agent.agent_id")
    model_sha256: str = Field(foreign_key="model.sha256", index=True)
    inputs: str
    kind: str
    maker: str
    sha256: str | None = None
    size_bytes: int = Field(default=0, sa_type=sa.BigInteger)
    failure: str = Field(default="", sa_type=sa.Text)
    limit_s: float = 0.0
    trusted: bool = False
    made_at: datetime = Field(sa_type=UtcDateTime)


class ForgottenReferences(SQLModel, table=True):
    """The number of times a user had a model's references forgotten; part of the keys of later references.

    It outlives the model's campaigns, because agents keep what they made.
    """

    __tablename__ = "forgotten_references"

    model_sha256: str = Field(primary_key=True)
    times: int


class Event(SQLModel, table=True):
    """An event of a cell; every terminal that watches a campaign reads them from this table."""

    # Write transactions take turns, so numbers become visible in their order: a reader that goes on after the
    # last one it saw misses none.
    no: int | None = Field(default=None, primary_key=True)
    at: datetime = Field(sa_type=UtcDateTime)
    campaign_no: int = Field(foreign_key="campaign.no", index=True)
    cell_id: str = Field(foreign_key="cell.cell_id", index=True)
    kind: str
    text: str = Field(sa_type=sa.Text)


class Output(SQLModel, table=True):
    """The end of the output of a running attempt's runner; `start` characters came before it."""

    attempt_id: str = Field(primary_key=True, foreign_key="attempt.attempt_id")
    start: int = Field(sa_type=sa.BigInteger)
    text: str = Field(sa_type=sa.Text)


class Outbox(SQLModel, table=True):
    """A job that the broker does not have yet: written with its attempt, deleted once it is sent."""

    attempt_id: str = Field(primary_key=True, foreign_key="attempt.attempt_id")
    agent_id: str
    queued_at: datetime = Field(sa_type=UtcDateTime)


class Scheduler(SQLModel, table=True):
    """The process that schedules, one row: which it is, its last heartbeat, and the state of its broker.

    `broker`: none | up | down | stopped; `broker_text` says why it is down. `store`: the store that
    has the farm's files.
    """

    no: int = Field(default=1, primary_key=True)
    host: str
    pid: int
    since_at: datetime = Field(sa_type=UtcDateTime)
    beat_at: datetime = Field(sa_type=UtcDateTime)
    broker: str
    broker_text: str = Field(sa_type=sa.Text)
    store: str = ""


class Invitation(SQLModel, table=True):
    """A one-time token of an agent that may enrol; `overlap_s`: how long its older credentials stay valid."""

    token_sha256: str = Field(primary_key=True)
    agent_id: str = Field(index=True)
    made_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)
    overlap_s: float = 0.0
    used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class Credential(SQLModel, table=True):
    """An agent's identity: its public key, and the hashes of its token and its broker password.

    `expires_at`: it was replaced and is valid until then. `newest_issued`: the latest time (seconds, by the
    agent's clock) in an envelope that it signed, so that older ones are known as such after a restart.
    """

    key_id: str = Field(primary_key=True)
    agent_id: str = Field(index=True)
    public_key: str
    token_sha256: str = Field(unique=True)
    password_sha256: str
    made_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    newest_issued: float = 0.0


class UserToken(SQLModel, table=True):
    """A user's token: its hash, and what it lets the user do (`policy.rights.Scope`).

    `expires_at`: it is valid until then; None: until it is revoked.
    """

    __tablename__ = "user_token"

    token_sha256: str = Field(primary_key=True)
    name: str = Field(index=True)
    scopes: list[str] = Field(sa_type=sa.JSON)
    made_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


metadata = SQLModel.metadata
