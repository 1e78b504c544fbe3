"""A lab whose agent shares no folder with its server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.orchestrator.endpoint.http_lab import HttpLab
from tests.services.redis import RedisServer


@pytest.fixture
def lab(tmp_path: Path, redis_server: RedisServer, postgres_url: str) -> Iterator[HttpLab]:
    made = HttpLab(tmp_path, redis_server, postgres_url)
    try:
        yield made.start()
    finally:
        made.close()
