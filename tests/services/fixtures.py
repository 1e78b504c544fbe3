"""Fixtures of real services, for every test that asks for them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from agent.devices import probe
from orchestrator.db.engine import dialects
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from orchestrator.dispatch import embedded
from tests import needs
from tests.services import known
from tests.services.forks import AGENTS
from tests.services.network import Network
from tests.services.postgres import PostgresCluster
from tests.services.redis import RedisServer


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """Make a folder with a short path: the names of unix sockets are limited to 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="farm-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def probe_answer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with what this host's probe answers, for agents that need not ask it: it takes a
    second.
    """
    answer = tmp_path_factory.mktemp("probe") / "answer.json"
    folder = known.shared_folder()
    answer.write_text((probe() if folder is None else known.probe_once(folder)).model_dump_json())
    return answer


@pytest.fixture(scope="session", autouse=True)
def statements_compiled_once() -> Iterator[None]:
    """Keep the text of every statement for all databases of this process, as a farm keeps it for its one:
    compiling them anew in each test took a third of the time of tests of the database.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialects, "sqlite_engine", _sharing(dialects.sqlite_engine))
        patch.setattr(dialects, "postgresql_engine", _sharing(dialects.postgresql_engine))
        yield


def _sharing(make: Callable[..., Engine]) -> Callable[..., Engine]:
    """Return `make`, whose engines share a dialect, by which SQLAlchemy finds a text, and the texts."""
    texts: dict[Any, Any] = {}
    first: list[Engine] = []

    def made(*args: Any) -> Engine:
        engine = make(*args)
        # A dialect knows its server once its engine has connected.
        if first and first[0].dialect.server_version_info is not None:
            engine.dialect = first[0].dialect
        else:
            first[:] = [engine]
        engine.update_execution_options(compiled_cache=texts)
        return engine

    return made


@pytest.fixture
def forked_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the farms that a test opens in this process start their agents as forks."""
    monkeypatch.setattr(embedded, "subprocess", AGENTS)


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
    # No test of the session's cluster cuts the power, and a process that dies loses nothing that was written.
    unsynced = ("fsync = off", "full_page_writes = off")
    cluster = PostgresCluster(short_folder / "postgres", needs.postgres_binaries(), settings=unsynced)
    yield cluster.create().start()
    cluster.stop("immediate")


@pytest.fixture
def postgres_url(postgres: PostgresCluster) -> Iterator[str]:
    """URL of an empty database on a real PostgreSQL."""
    name = postgres.new_database()
    yield postgres.socket_url(name)
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def migrated_template(postgres: PostgresCluster) -> str:
    """Return the name of a database with the farm's tables, to be copied: migrating takes much longer."""
    name = postgres.new_database()
    database = Database.connect(postgres.socket_url(name))
    migrate(database)
    database.close()
    return name


@pytest.fixture
def migrated_postgres_url(postgres: PostgresCluster, migrated_template: str) -> Iterator[str]:
    """URL of a database on a real PostgreSQL that has the farm's tables and no rows."""
    name = postgres.new_database(migrated_template)
    yield postgres.socket_url(name)
    postgres.drop_database(name)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """Make an empty network: `network.add("server")` is one machine."""
    needs.network_namespaces()
    made = Network(tmp_path)
    yield made
    made.close()
