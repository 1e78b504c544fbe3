"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create them."""
    op.create_table(
        "agent",
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("protocol", sa.Integer(), nullable=False),
        sa.Column("missing", sa.JSON(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("agent_id", name=op.f("pk_agent")),
    )
    op.create_table(
        "campaign",
        sa.Column("no", sa.Integer(), nullable=False),
        sa.Column("campaign_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("submitted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("baseline_delegate", sa.String(), nullable=True),
        sa.Column("reuse", sa.String(), nullable=False),
        sa.Column("manifest_sha256", sa.String(), nullable=False),
        sa.Column("content", sa.String(), nullable=False),
        sa.Column("model_names", sa.JSON(), nullable=False),
        sa.Column("delegate_names", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("parked", sa.Boolean(), nullable=False),
        sa.Column("cancel_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("no", name=op.f("pk_campaign")),
        sa.UniqueConstraint("campaign_id", name=op.f("uq_campaign_campaign_id")),
    )
    op.create_index(op.f("ix_campaign_content"), "campaign", ["content"], unique=False)
    op.create_index(op.f("ix_campaign_name"), "campaign", ["name"], unique=False)
    op.create_index(op.f("ix_campaign_submitted_at"), "campaign", ["submitted_at"], unique=False)
    op.create_table(
        "environment",
        sa.Column("environment_id", sa.String(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("environment_id", name=op.f("pk_environment")),
    )
    op.create_table(
        "model",
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_model")),
    )
    op.create_table(
        "cell",
        sa.Column("cell_id", sa.String(), nullable=False),
        sa.Column("campaign_no", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("series", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("model_sha256", sa.String(), nullable=False),
        sa.Column("delegate", sa.String(), nullable=False),
        sa.Column("delegate_kind", sa.String(), nullable=False),
        sa.Column("delegate_options", sa.JSON(), nullable=False),
        sa.Column("target", sa.String(), nullable=False),
        sa.Column("level", sa.String(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("inputs", sa.JSON(), nullable=False),
        sa.Column("soft_limit_s", sa.Float(), nullable=False),
        sa.Column("expected_s", sa.Float(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason_code", sa.String(), nullable=True),
        sa.Column("reason_text", sa.Text(), nullable=True),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_asked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reused_from", sa.String(), nullable=True),
        sa.Column("shown_attempt_id", sa.String(), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'dispatched', 'running', 'done', 'failed', 'unsupported', 'cancelled')",
            name=op.f("ck_cell_state"),
        ),
        sa.ForeignKeyConstraint(["campaign_no"], ["campaign.no"], name=op.f("fk_cell_campaign_no_campaign")),
        sa.ForeignKeyConstraint(["model_sha256"], ["model.sha256"], name=op.f("fk_cell_model_sha256_model")),
        sa.PrimaryKeyConstraint("cell_id", name=op.f("pk_cell")),
        sa.UniqueConstraint("campaign_no", "key", name=op.f("uq_cell_campaign_no_key")),
    )
    op.create_index("ix_cell_campaign_state", "cell", ["campaign_no", "state"], unique=False)
    op.create_index("ix_cell_names", "cell", ["model", "delegate", "target"], unique=False)
    op.create_index(
        "ix_cell_pick", "cell", ["state", "target", "rank", "campaign_no", "position"], unique=False
    )
    op.create_index(op.f("ix_cell_shown_attempt_id"), "cell", ["shown_attempt_id"], unique=False)
    op.create_table(
        "device",
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("api", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("vendor", sa.String(), nullable=False),
        sa.Column("delegates", sa.JSON(), nullable=False),
        sa.Column("exclusion_group", sa.String(), nullable=False),
        sa.Column("environment_id", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("present", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agent.agent_id"], name=op.f("fk_device_agent_id_agent")),
        sa.ForeignKeyConstraint(
            ["environment_id"],
            ["environment.environment_id"],
            name=op.f("fk_device_environment_id_environment"),
        ),
        sa.PrimaryKeyConstraint("device_id", name=op.f("pk_device")),
    )
    op.create_index(op.f("ix_device_agent_id"), "device", ["agent_id"], unique=False)
    op.create_table(
        "attempt",
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("cell_id", sa.String(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("exclusion_group", sa.String(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason_code", sa.String(), nullable=True),
        sa.Column("reason_text", sa.Text(), nullable=True),
        sa.Column("phase", sa.String(), nullable=False),
        sa.Column("stop_asked", sa.Boolean(), nullable=False),
        sa.Column("dispatched_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('dispatched', 'running', 'done', 'failed', 'unsupported', 'cancelled')",
            name=op.f("ck_attempt_state"),
        ),
        sa.ForeignKeyConstraint(["cell_id"], ["cell.cell_id"], name=op.f("fk_attempt_cell_id_cell")),
        sa.ForeignKeyConstraint(
            ["device_id"], ["device.device_id"], name=op.f("fk_attempt_device_id_device")
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_attempt")),
        sa.UniqueConstraint("cell_id", "attempt_no", name=op.f("uq_attempt_cell_id_attempt_no")),
    )
    op.create_index(
        "uq_attempt_live_cell",
        "attempt",
        ["cell_id"],
        unique=True,
        sqlite_where=sa.text("state IN ('dispatched', 'running')"),
        postgresql_where=sa.text("state IN ('dispatched', 'running')"),
    )
    op.create_index(
        "uq_attempt_live_device",
        "attempt",
        ["device_id"],
        unique=True,
        sqlite_where=sa.text("state IN ('dispatched', 'running')"),
        postgresql_where=sa.text("state IN ('dispatched', 'running')"),
    )
    op.create_index(
        "uq_attempt_live_group",
        "attempt",
        ["exclusion_group"],
        unique=True,
        sqlite_where=sa.text("state IN ('dispatched', 'running')"),
        postgresql_where=sa.text("state IN ('dispatched', 'running')"),
    )
    op.create_table(
        "event",
        sa.Column("no", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("campaign_no", sa.Integer(), nullable=False),
        sa.Column("cell_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_no"], ["campaign.no"], name=op.f("fk_event_campaign_no_campaign")),
        sa.ForeignKeyConstraint(["cell_id"], ["cell.cell_id"], name=op.f("fk_event_cell_id_cell")),
        sa.PrimaryKeyConstraint("no", name=op.f("pk_event")),
    )
    op.create_index(op.f("ix_event_campaign_no"), "event", ["campaign_no"], unique=False)
    op.create_table(
        "result",
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("cell_id", sa.String(), nullable=False),
        sa.Column("device_id", sa.String(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("reason_code", sa.String(), nullable=False),
        sa.Column("reason_text", sa.Text(), nullable=False),
        sa.Column("measurement", sa.Text(), nullable=True),
        sa.Column("samples_sha256", sa.String(), nullable=True),
        sa.Column("environment_id", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("log_tail", sa.Text(), nullable=False),
        sa.Column("duration_ns", sa.BigInteger(), nullable=False),
        sa.Column("series", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("content", sa.String(), nullable=False),
        sa.Column("counted", sa.Boolean(), nullable=False),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.attempt_id"], name=op.f("fk_result_attempt_id_attempt")
        ),
        sa.ForeignKeyConstraint(["cell_id"], ["cell.cell_id"], name=op.f("fk_result_cell_id_cell")),
        sa.ForeignKeyConstraint(["device_id"], ["device.device_id"], name=op.f("fk_result_device_id_device")),
        sa.ForeignKeyConstraint(
            ["environment_id"],
            ["environment.environment_id"],
            name=op.f("fk_result_environment_id_environment"),
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_result")),
    )
    op.create_index(op.f("ix_result_cell_id"), "result", ["cell_id"], unique=False)
    op.create_index(
        "ix_result_fingerprint_received_at", "result", ["fingerprint", "received_at"], unique=False
    )
    op.create_index("ix_result_series_received_at", "result", ["series", "received_at"], unique=False)
    op.create_index(
        "uq_result_counted_cell",
        "result",
        ["cell_id"],
        unique=True,
        sqlite_where=sa.text("counted"),
        postgresql_where=sa.text("counted"),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_index(
        "uq_result_counted_cell",
        table_name="result",
        sqlite_where=sa.text("counted"),
        postgresql_where=sa.text("counted"),
    )
    op.drop_index("ix_result_series_received_at", table_name="result")
    op.drop_index("ix_result_fingerprint_received_at", table_name="result")
    op.drop_index(op.f("ix_result_cell_id"), table_name="result")
    op.drop_table("result")
    op.drop_index(op.f("ix_event_campaign_no"), table_name="event")
    op.drop_table("event")
    op.drop_index(
        "uq_attempt_live_group",
        table_name="attempt",
        sqlite_where=sa.text("state IN ('dispatched', 'running')"),
        postgresql_where=sa.text("state IN ('dispatched', 'running')"),
    )
    op.drop_index(
        "uq_attempt_live_device",
        table_name="attempt",
        sqlite_where=sa.text("state IN ('dispatched', 'running')"),
        postgresql_where=sa.text("state IN ('dispatched', 'running')"),
    )
    op.drop_index(
        "uq_attempt_live_cell",
        table_name="attempt",
        sqlite_where=sa.text("state IN ('dispatched', 'running')"),
        postgresql_where=sa.text("state IN ('dispatched', 'running')"),
    )
    op.drop_table("attempt")
    op.drop_index(op.f("ix_device_agent_id"), table_name="device")
    op.drop_table("device")
    op.drop_index(op.f("ix_cell_shown_attempt_id"), table_name="cell")
    op.drop_index("ix_cell_pick", table_name="cell")
    op.drop_index("ix_cell_names", table_name="cell")
    op.drop_index("ix_cell_campaign_state", table_name="cell")
    op.drop_table("cell")
    op.drop_table("model")
    op.drop_table("environment")
    op.drop_index(op.f("ix_campaign_submitted_at"), table_name="campaign")
    op.drop_index(op.f("ix_campaign_name"), table_name="campaign")
    op.drop_index(op.f("ix_campaign_content"), table_name="campaign")
    op.drop_table("campaign")
    op.drop_table("agent")
