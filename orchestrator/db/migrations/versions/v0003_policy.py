"""Scheduling policy: lines, shares, pauses, cool-down, quarantine."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)
QUEUED = sa.text("state = 'queued'")
UNENDED = sa.text("ended_at IS NULL")
SHARED = sa.text("siblings IS NOT NULL")


def columns() -> dict[str, list[sa.Column[Any]]]:
    """What each table gets."""
    return {
        "campaign": [
            sa.Column("priority", sa.Integer(), nullable=False, server_default="0"),
            sa.Column("paused_at", MOMENT, nullable=True),
            sa.Column("served_s", sa.Float(), nullable=False, server_default="0"),
            sa.Column("served_at", MOMENT, nullable=True),
            sa.Column("ended_at", MOMENT, nullable=True),
            sa.Column("purpose", sa.String(), nullable=False, server_default="measure"),
        ],
        "device": [
            sa.Column("cooldown_s", sa.Float(), nullable=False, server_default="0"),
            sa.Column("rests_until", MOMENT, nullable=True),
            sa.Column("quarantined_at", MOMENT, nullable=True),
            sa.Column("quarantine_text", sa.Text(), nullable=True),
            sa.Column("faulty_cells", sa.JSON(), nullable=False, server_default="[]"),
            sa.Column("health_failures", sa.Integer(), nullable=False, server_default="0"),
        ],
        "cell": [
            sa.Column("line", sa.String(), nullable=False, server_default=""),
            sa.Column("siblings", sa.String(), nullable=True),
            sa.Column("device_id", sa.String(), nullable=True),
            sa.Column("retried_after", sa.Integer(), nullable=False, server_default="0"),
        ],
    }


def upgrade() -> None:
    """Bring the tables from 0002 to 0003."""
    for table, added in columns().items():
        for column in added:
            op.add_column(table, column)
    op.create_table(
        "pool",
        sa.Column("line", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("line", name=op.f("pk_pool")),
    )
    op.execute("UPDATE cell SET line = target")
    op.execute(
        "UPDATE campaign SET ended_at = submitted_at WHERE NOT EXISTS (SELECT 1 FROM cell "
        "WHERE cell.campaign_no = campaign.no AND cell.state IN ('queued', 'dispatched', 'running'))"
    )
    op.drop_index("ix_cell_pick", table_name="cell")
    op.create_index(
        "ix_cell_pick", "cell", ["campaign_no", "line", "rank", "position"],
        sqlite_where=QUEUED, postgresql_where=QUEUED,
    )
    op.create_index(
        "ix_cell_siblings", "cell", ["siblings", "device_id"], sqlite_where=SHARED, postgresql_where=SHARED
    )
    op.create_index("ix_campaign_open", "campaign", ["no"], sqlite_where=UNENDED, postgresql_where=UNENDED)
