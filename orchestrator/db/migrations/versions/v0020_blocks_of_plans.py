"""Counts of blocks in the plans of cells, in place of those of processes and timed runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_GONE = ("processes", "min_runs", "max_runs", "min_seconds", "max_seconds")


def upgrade() -> None:
    """Bring the tables from 0019 to 0020: a cell that asked for so many processes asks for as many blocks."""
    cell = sa.table("cell", sa.column("cell_id", sa.String), sa.column("plan", sa.JSON))
    connection = op.get_bind()
    change = cell.update().where(cell.c.cell_id == sa.bindparam("id")).values(plan=sa.bindparam("counts"))
    changed = []
    for cell_id, plan in connection.execute(sa.select(cell.c.cell_id, cell.c.plan)):
        if "processes" in plan:
            kept = {name: value for name, value in plan.items() if name not in _GONE}
            blocks = {"min_blocks": plan["processes"], "max_blocks": plan["processes"]}
            changed.append({"id": cell_id, "counts": kept | blocks})
    if changed:
        connection.execute(change, changed)
