"""Since when an agent has results without a receipt, and which of its results were not stored."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Bring the tables from 0005 to 0006."""
    with op.batch_alter_table("agent") as batch:
        batch.add_column(sa.Column("undelivered_since", MOMENT, nullable=True))
        batch.add_column(sa.Column("dropped", sa.Integer(), nullable=False, server_default="0"))
        batch.add_column(sa.Column("dropped_at", MOMENT, nullable=True))
