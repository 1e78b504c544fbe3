"""What runners write while they run. Which store has the farm's files. Two indexes by device."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SHARED = sa.text("siblings IS NOT NULL")
FAILED = sa.text("state = 'failed'")


def upgrade() -> None:
    """Bring the tables from 0004 to 0005."""
    op.create_table(
        "output",
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.attempt_id"], name=op.f("fk_output_attempt_id_attempt")
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_output")),
    )
    with op.batch_alter_table("scheduler") as batch:
        batch.add_column(sa.Column("store", sa.String(), nullable=False, server_default=""))
    op.drop_index("ix_cell_siblings", table_name="cell")
    op.create_index(
        "ix_cell_siblings", "cell", ["device_id", "siblings"], sqlite_where=SHARED, postgresql_where=SHARED
    )
    op.create_index(
        "ix_attempt_failed", "attempt", ["device_id", "cell_id"], sqlite_where=FAILED, postgresql_where=FAILED
    )
