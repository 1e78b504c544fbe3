from __future__ import annotations

import pytest

from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate


@pytest.fixture(params=["sqlite", "postgresql"])
def any_database(request, tmp_path):
    """Open an empty farm of either kind."""
    where = request.getfixturevalue("postgres_url") if request.param == "postgresql" else tmp_path / "farm.db"
    opened = Database.connect(where, tmp_path)
    migrate(opened)
    yield opened
    opened.close()
