"""The tables of the first release, from which upgrades start; a new database gets those of the code."""

revision = "0022"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Do nothing: a database of this revision has the tables of `tests/orchestrator/db/tables_of_0022.py`."""
