"""The noise of each device, from an A/A series."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0011 to 0012."""
    op.add_column("device", sa.Column("noise", sa.JSON(), nullable=True))
