"""What blocks are added to a cell's result for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0020 to 0021."""
    op.add_column("cell", sa.Column("refines", sa.JSON(), nullable=True))
