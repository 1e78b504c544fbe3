"""What a campaign file says of waiting, retries and reuse of single models."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

QUEUED = sa.text("state = 'queued'")


def upgrade() -> None:
    """Bring the tables from 0014 to 0015."""
    op.add_column("cell", sa.Column("reuse", sa.String(), nullable=True))
    op.add_column("cell", sa.Column("retry", sa.JSON(), nullable=True))
    op.add_column("cell", sa.Column("queue_limit_s", sa.Float(), nullable=True))
    op.add_column("cell", sa.Column("queue_until", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        op.f("ix_cell_queue_until"), "cell", ["queue_until"], sqlite_where=QUEUED, postgresql_where=QUEUED
    )
