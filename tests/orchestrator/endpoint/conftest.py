"""A lab whose agent shares no folder with its server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.orchestrator.endpoint.http_lab import HttpLab, http_lab
from tests.services.postgres import PostgresCluster


@pytest.fixture
def lab(tmp_path: Path, short_folder: Path, postgres: PostgresCluster) -> Iterator[HttpLab]:
    needs.redis_server()
    with http_lab(tmp_path, short_folder, postgres) as made:
        yield made
