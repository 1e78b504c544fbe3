"""What blocks are added to a cell's result for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0021 to 0022."""
    op.add_column("cell", sa.Column("refines", sa.JSON(), nullable=True))
