"""The lab: outbox, signs of life, and who schedules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Bring the tables from 0001 to 0002."""
    op.add_column("agent", sa.Column("heard_at", MOMENT, nullable=True))
    op.add_column("agent", sa.Column("state", sa.String(), nullable=False, server_default="active"))
    op.add_column("agent", sa.Column("refused", sa.Text(), nullable=True))
    op.add_column("attempt", sa.Column("heard_at", MOMENT, nullable=True))
    op.create_table(
        "outbox",
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("queued_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.attempt_id"], name=op.f("fk_outbox_attempt_id_attempt")
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_outbox")),
    )
    op.create_table(
        "scheduler",
        sa.Column("no", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("since_at", MOMENT, nullable=False),
        sa.Column("beat_at", MOMENT, nullable=False),
        sa.Column("broker", sa.String(), nullable=False),
        sa.Column("broker_text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("no", name=op.f("pk_scheduler")),
    )
