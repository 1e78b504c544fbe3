"""Who has reserved each device, until when, and what for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0013 to 0014."""
    op.add_column("device", sa.Column("reserved_by", sa.String(), nullable=True))
    op.add_column("device", sa.Column("reserved_until", sa.DateTime(timezone=True), nullable=True))
    op.add_column("device", sa.Column("reserved_text", sa.Text(), nullable=True))
