"""Who submitted each campaign."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0010 to 0011."""
    op.add_column("campaign", sa.Column("submitted_by", sa.String(), nullable=False, server_default=""))
