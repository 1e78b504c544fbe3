"""The device time that all running campaigns of a submitter were given together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0012 to 0013."""
    op.add_column("campaign", sa.Column("user_served_s", sa.Float(), nullable=False, server_default="0"))
