from __future__ import annotations

import pytest

from tests.orchestrator.stocked import new_database


@pytest.fixture
def database(tmp_path):
    opened = new_database(tmp_path)
    yield opened
    opened.close()
