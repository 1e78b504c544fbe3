"""How far the wall clock of an agent's host is from the server's."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0018 to 0019."""
    op.add_column("agent", sa.Column("clock_ahead_s", sa.Float(), nullable=True))
