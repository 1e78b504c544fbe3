"""How the operator's command for a lost device went, by device."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0017 to 0018."""
    op.add_column("device", sa.Column("recoveries", sa.JSON(), nullable=True))
