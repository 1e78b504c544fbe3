"""Attempts that are measured together by blocks, and what a campaign's baseline is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

QUEUED = sa.text("state = 'queued'")
LEADS = sa.text("state IN ('dispatched', 'running') AND lead_attempt_id IS NULL")
CARRIED = sa.text("lead_attempt_id IS NOT NULL")


def upgrade() -> None:
    """Bring the tables from 0008 to 0009."""
    with op.batch_alter_table("campaign") as batch:
        batch.add_column(sa.Column("baseline_kind", sa.String(), nullable=True))
        batch.add_column(sa.Column("baseline_options", sa.JSON(), nullable=True))
    for name in ("device", "group"):
        op.drop_index(f"uq_attempt_live_{name}", table_name="attempt")
    op.add_column("attempt", sa.Column("lead_attempt_id", sa.String(), nullable=True))
    op.add_column("attempt", sa.Column("baseline_device_id", sa.String(), nullable=True))
    op.add_column("attempt", sa.Column("arms", sa.Integer(), nullable=False, server_default="1"))
    for name, column in (("device", "device_id"), ("group", "exclusion_group")):
        op.create_index(
            f"uq_attempt_live_{name}", "attempt", [column], unique=True,
            sqlite_where=LEADS, postgresql_where=LEADS,
        )  # fmt: skip
    op.create_index(
        "ix_attempt_carried", "attempt", ["lead_attempt_id"], sqlite_where=CARRIED, postgresql_where=CARRIED
    )
    op.create_index(
        "ix_cell_waiting_model", "cell", ["campaign_no", "model"],
        sqlite_where=QUEUED, postgresql_where=QUEUED,
    )  # fmt: skip
