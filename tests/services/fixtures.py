"""Fixtures of real services, for every test that asks for them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.services.network import Network
from tests.services.postgres import PostgresCluster
from tests.services.redis import RedisServer


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """Make a folder with a short path: the names of unix sockets are limited to 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="farm-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def redis_server(short_folder: Path) -> Iterator[RedisServer]:
    """Start a redis-server of this test alone, on a unix socket."""
    needs.redis_server()
    folder = Path(tempfile.mkdtemp(prefix="redis-", dir=short_folder))
    server = RedisServer(folder).start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def postgres(short_folder: Path) -> Iterator[PostgresCluster]:
    """One PostgreSQL for the session; leave it running. A database of your own: `postgres_url`."""
    cluster = PostgresCluster(short_folder / "postgres", needs.postgres_binaries()).create().start()
    yield cluster
    cluster.stop("immediate")


@pytest.fixture
def postgres_url(postgres: PostgresCluster) -> Iterator[str]:
    """URL of an empty database on a real PostgreSQL."""
    name = postgres.new_database()
    yield postgres.socket_url(name)
    postgres.drop_database(name)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """Make an empty network: `network.add("server")` is one machine."""
    needs.network_namespaces()
    made = Network(tmp_path)
    yield made
    made.close()
