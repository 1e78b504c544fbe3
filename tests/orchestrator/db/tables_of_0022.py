"""The tables of the first release, as a database of revision 0022 has them: what upgrades start from."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

MOMENT = sa.DateTime(timezone=True)


def required(name: str, type_: Any = sa.String, *more: Any, **options: Any) -> sa.Column[Any]:
    """Return a column that has a value in every row. `type_`: a foreign key stands for its column's type."""
    return sa.Column(name, type_, *more, nullable=False, **options)


def optional(name: str, type_: Any = sa.String, **options: Any) -> sa.Column[Any]:
    """Return a column that may be empty."""
    return sa.Column(name, type_, nullable=True, **options)


def where(condition: str) -> dict[str, Any]:
    """Return the options of an index over the rows that meet the condition, for either engine."""
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


QUEUED = where("state = 'queued'")
LIVE = where("state IN ('dispatched', 'running')")
LEADS = where("state IN ('dispatched', 'running') AND lead_attempt_id IS NULL")

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
sa.Table(
    "agent",
    metadata,
    required("agent_id", primary_key=True),
    required("host"),
    required("version"),
    required("protocol", sa.Integer),
    required("missing", sa.JSON),
    required("seen_at", MOMENT),
    optional("heard_at", MOMENT),
    required("state", server_default="active"),
    optional("refused", sa.Text),
    optional("undelivered_since", MOMENT),
    required("dropped", sa.Integer, server_default="0"),
    optional("dropped_at", MOMENT),
    optional("clock_ahead_s", sa.Float),
)
sa.Table(
    "campaign",
    metadata,
    required("no", sa.Integer, primary_key=True),
    required("campaign_id", unique=True),
    required("name", index=True),
    required("created_at", MOMENT),
    required("submitted_at", MOMENT, index=True),
    required("level"),
    optional("baseline_delegate"),
    required("reuse"),
    required("manifest_sha256"),
    required("content", index=True),
    required("model_names", sa.JSON),
    required("delegate_names", sa.JSON),
    required("labels", sa.JSON),
    required("parked", sa.Boolean),
    optional("cancel_asked_at", MOMENT),
    required("priority", sa.Integer, server_default="0"),
    optional("paused_at", MOMENT),
    required("served_s", sa.Float, server_default="0"),
    optional("served_at", MOMENT),
    optional("ended_at", MOMENT),
    required("purpose", server_default="measure"),
    optional("baseline_kind"),
    optional("baseline_options", sa.JSON),
    required("submitted_by", server_default=""),
    required("user_served_s", sa.Float, server_default="0"),
    sa.Index("ix_campaign_open", "no", **where("ended_at IS NULL")),
)
sa.Table(
    "credential",
    metadata,
    required("key_id", primary_key=True),
    required("agent_id", index=True),
    required("public_key"),
    required("token_sha256", unique=True),
    required("password_sha256"),
    required("made_at", MOMENT),
    optional("expires_at", MOMENT),
    optional("revoked_at", MOMENT),
    required("newest_issued", sa.Float),
)
sa.Table(
    "environment",
    metadata,
    required("environment_id", primary_key=True),
    required("fields", sa.JSON),
)
sa.Table(
    "forgotten_references",
    metadata,
    required("model_sha256", primary_key=True),
    required("times", sa.Integer),
)
sa.Table(
    "invitation",
    metadata,
    required("token_sha256", primary_key=True),
    required("agent_id", index=True),
    required("made_at", MOMENT),
    required("expires_at", MOMENT),
    required("overlap_s", sa.Float),
    optional("used_at", MOMENT),
)
sa.Table(
    "model",
    metadata,
    required("sha256", primary_key=True),
    required("size_bytes", sa.BigInteger),
    required("added_at", MOMENT),
)
sa.Table(
    "pool",
    metadata,
    required("line", primary_key=True),
)
sa.Table(
    "scheduler",
    metadata,
    required("no", sa.Integer, primary_key=True),
    required("host"),
    required("pid", sa.Integer),
    required("since_at", MOMENT),
    required("beat_at", MOMENT),
    required("broker"),
    required("broker_text", sa.Text),
    required("store", server_default=""),
)
sa.Table(
    "user_token",
    metadata,
    required("token_sha256", primary_key=True),
    required("name", index=True),
    required("scopes", sa.JSON),
    required("made_at", MOMENT),
    optional("expires_at", MOMENT),
    optional("revoked_at", MOMENT),
)
sa.Table(
    "cell",
    metadata,
    required("cell_id", primary_key=True),
    required("campaign_no", sa.ForeignKey("campaign.no")),
    required("key"),
    required("series"),
    required("position", sa.Integer),
    required("rank", sa.Integer),
    required("model"),
    required("model_sha256", sa.ForeignKey("model.sha256")),
    required("delegate"),
    required("delegate_kind"),
    required("delegate_options", sa.JSON),
    required("target"),
    required("level"),
    required("plan", sa.JSON),
    required("inputs", sa.JSON),
    required("soft_limit_s", sa.Float),
    required("expected_s", sa.Float),
    required("state"),
    optional("reason_code"),
    optional("reason_text", sa.Text),
    optional("not_before", MOMENT),
    optional("cancel_asked_at", MOMENT),
    optional("ended_at", MOMENT),
    optional("reused_from"),
    optional("shown_attempt_id", index=True),
    required("line", server_default=""),
    optional("siblings"),
    optional("device_id"),
    required("retried_after", sa.Integer, server_default="0"),
    optional("reuse"),
    optional("retry", sa.JSON),
    optional("queue_limit_s", sa.Float),
    optional("queue_until", MOMENT),
    optional("refines", sa.JSON),
    sa.UniqueConstraint("campaign_no", "key"),
    sa.CheckConstraint(
        "state IN ('queued', 'dispatched', 'running', 'done', 'failed', 'unsupported', 'cancelled')",
        name="state",
    ),
    sa.Index("ix_cell_campaign_state", "campaign_no", "state"),
    sa.Index("ix_cell_names", "model", "delegate", "target"),
    sa.Index("ix_cell_pick", "campaign_no", "line", "rank", "position", **QUEUED),
    sa.Index("ix_cell_queue_until", "queue_until", **QUEUED),
    sa.Index("ix_cell_siblings", "device_id", "siblings", **where("siblings IS NOT NULL")),
    sa.Index("ix_cell_waiting_model", "campaign_no", "model", **QUEUED),
)
sa.Table(
    "device",
    metadata,
    required("device_id", primary_key=True),
    required("agent_id", sa.ForeignKey("agent.agent_id"), index=True),
    required("kind"),
    required("api"),
    required("name"),
    required("vendor"),
    required("delegates", sa.JSON),
    required("exclusion_group"),
    required("environment_id", sa.ForeignKey("environment.environment_id")),
    required("facts", sa.JSON),
    required("labels", sa.JSON),
    required("epoch", sa.Integer),
    required("present", sa.Boolean),
    required("cooldown_s", sa.Float, server_default="0"),
    optional("rests_until", MOMENT),
    optional("quarantined_at", MOMENT),
    optional("quarantine_text", sa.Text),
    required("faulty_cells", sa.JSON, server_default="[]"),
    required("health_failures", sa.Integer, server_default="0"),
    required("delegate_environments", sa.JSON, server_default="{}"),
    optional("noise", sa.JSON),
    optional("reserved_by"),
    optional("reserved_until", MOMENT),
    optional("reserved_text", sa.Text),
    optional("recoveries", sa.JSON),
)
sa.Table(
    "manifest",
    metadata,
    required("campaign_no", sa.ForeignKey("campaign.no"), primary_key=True),
    required("file"),
    required("document"),
    required("chosen", sa.JSON),
    required("origins", sa.JSON),
)
sa.Table(
    "reference_claim",
    metadata,
    required("key", primary_key=True),
    required("agent_id", sa.ForeignKey("agent.agent_id"), primary_key=True),
    required("model_sha256", sa.ForeignKey("model.sha256"), index=True),
    required("inputs"),
    required("kind"),
    required("maker"),
    optional("sha256"),
    required("size_bytes", sa.BigInteger),
    required("failure", sa.Text),
    required("limit_s", sa.Float),
    required("trusted", sa.Boolean),
    required("made_at", MOMENT),
)
sa.Table(
    "attempt",
    metadata,
    required("attempt_id", primary_key=True),
    required("cell_id", sa.ForeignKey("cell.cell_id")),
    required("attempt_no", sa.Integer),
    required("device_id", sa.ForeignKey("device.device_id")),
    required("exclusion_group"),
    required("epoch", sa.Integer),
    required("state"),
    optional("reason_code"),
    optional("reason_text", sa.Text),
    required("phase"),
    required("stop_asked", sa.Boolean),
    required("dispatched_at", MOMENT),
    optional("started_at", MOMENT),
    optional("deadline_at", MOMENT),
    optional("ended_at", MOMENT),
    optional("heard_at", MOMENT),
    optional("lead_attempt_id"),
    optional("baseline_device_id"),
    required("arms", sa.Integer, server_default="1"),
    sa.UniqueConstraint("cell_id", "attempt_no"),
    sa.CheckConstraint(
        "state IN ('dispatched', 'running', 'done', 'failed', 'unsupported', 'cancelled')", name="state"
    ),
    sa.Index("ix_attempt_carried", "lead_attempt_id", **where("lead_attempt_id IS NOT NULL")),
    sa.Index("ix_attempt_failed", "device_id", "cell_id", **where("state = 'failed'")),
    sa.Index("uq_attempt_live_cell", "cell_id", unique=True, **LIVE),
    sa.Index("uq_attempt_live_device", "device_id", unique=True, **LEADS),
    sa.Index("uq_attempt_live_group", "exclusion_group", unique=True, **LEADS),
)
sa.Table(
    "event",
    metadata,
    required("no", sa.Integer, primary_key=True),
    required("at", MOMENT),
    required("campaign_no", sa.ForeignKey("campaign.no"), index=True),
    required("cell_id", sa.ForeignKey("cell.cell_id"), index=True),
    required("kind"),
    required("text", sa.Text),
)
sa.Table(
    "outbox",
    metadata,
    required("attempt_id", sa.ForeignKey("attempt.attempt_id"), primary_key=True),
    required("agent_id"),
    required("queued_at", MOMENT),
)
sa.Table(
    "output",
    metadata,
    required("attempt_id", sa.ForeignKey("attempt.attempt_id"), primary_key=True),
    required("start", sa.BigInteger),
    required("text", sa.Text),
)
sa.Table(
    "result",
    metadata,
    required("attempt_id", sa.ForeignKey("attempt.attempt_id"), primary_key=True),
    required("cell_id", sa.ForeignKey("cell.cell_id"), index=True),
    required("device_id", sa.ForeignKey("device.device_id")),
    required("epoch", sa.Integer),
    required("status"),
    required("reason_code"),
    required("reason_text", sa.Text),
    optional("measurement", sa.Text),
    optional("samples_sha256"),
    required("environment_id", sa.ForeignKey("environment.environment_id")),
    required("facts", sa.JSON),
    required("log_tail", sa.Text),
    required("duration_ns", sa.BigInteger),
    required("series"),
    required("fingerprint"),
    required("content"),
    required("counted", sa.Boolean),
    required("late", sa.Boolean),
    required("received_at", MOMENT),
    optional("grade"),
    sa.Index("ix_result_fingerprint_received_at", "fingerprint", "received_at"),
    sa.Index("ix_result_series_received_at", "series", "received_at"),
    sa.Index("uq_result_counted_cell", "cell_id", unique=True, **where("counted")),
)


def create(connection: sa.Connection) -> None:
    """Make a database of the first release."""
    metadata.create_all(connection, checkfirst=False)
    connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('0022')")
