"""The trust verdict of each result, by which a disturbed one is found and not reused."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0007 to 0008."""
    with op.batch_alter_table("result") as batch:
        batch.add_column(sa.Column("trust", sa.String(), nullable=True))
