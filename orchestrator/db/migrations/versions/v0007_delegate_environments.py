"""What the results of each delegate on a device have in their environment besides the device's own fields."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Bring the tables from 0006 to 0007."""
    with op.batch_alter_table("device") as batch:
        batch.add_column(sa.Column("delegate_environments", sa.JSON(), nullable=False, server_default="{}"))
