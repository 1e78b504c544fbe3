from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.db.engine.sessions import Database
from tests.orchestrator.stocked import new_database
from tests.services.certificates import Authority
from tests.services.https_server import HttpsServer


@pytest.fixture
def database(tmp_path):
    opened = new_database(tmp_path)
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def any_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Yield a farm of either kind with nothing in it."""
    if request.param == "sqlite":
        opened = new_database(tmp_path)
    else:
        opened = Database.connect(request.getfixturevalue("migrated_postgres_url"), tmp_path)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Issues the certificates of a file's tests."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def one_server(authority: Authority) -> Iterator[HttpsServer]:
    """Start an HTTPS server for the tests of a file; see `server`."""
    opened = HttpsServer(authority.issue("localhost"))
    yield opened
    opened.close()


@pytest.fixture
def server(one_server: HttpsServer, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> HttpsServer:
    """Return an HTTPS server that this process trusts, without pages and without requests so far."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    for kept in (one_server.pages, one_server.asked, one_server.posted):
        kept.clear()
    return one_server
