"""A real PostgreSQL behind TLS: who it is, is checked as the URL says."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from orchestrator.errors import UnreachableError
from tests import needs
from tests.services.certificates import Authority
from tests.services.forks import run
from tests.services.postgres import PORT, PostgresCluster

ADDRESS = "127.83.0.1"
OTHER_ADDRESS = "127.83.0.2"


@dataclass(frozen=True)
class TlsPostgres:
    cluster: PostgresCluster
    authority: Authority
    another: Authority

    def url(self, database: str, address: str = ADDRESS, **options: object) -> str:
        said = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://{self.cluster.user}@{address}:{PORT}/{database}?{said}"


@pytest.fixture(scope="module")
def server(short_folder: Path) -> Iterator[TlsPostgres]:
    folder = short_folder / "pg-tls"
    folder.mkdir()
    authority, another = Authority(folder), Authority(folder, "another authority")
    pair = authority.issue(ADDRESS)
    settings = (
        "ssl = on", f"ssl_cert_file = '{pair.certificate}'", f"ssl_key_file = '{folder / 'server.key'}'",
    )  # fmt: skip
    cluster = PostgresCluster(
        folder, needs.postgres_binaries(), address=f"{ADDRESS},{OTHER_ADDRESS}", settings=settings
    )
    cluster.create()
    key = Path(shutil.copy(pair.key, folder / "server.key"))
    key.chmod(0o600)
    owner = cluster.data.stat()
    os.chown(key, owner.st_uid, owner.st_gid)
    rules = cluster.data / "pg_hba.conf"
    rules.write_text("local all all trust\nhostssl all all 127.0.0.0/8 trust\n")
    cluster.start()
    yield TlsPostgres(cluster, authority, another)
    cluster.stop("immediate")


@pytest.fixture
def name(server: TlsPostgres) -> Iterator[str]:
    made = server.cluster.new_database()
    yield made
    server.cluster.drop_database(made)


def test_a_farm_works_over_a_connection_whose_certificate_it_checks(server: TlsPostgres, name: str) -> None:
    url = server.url(name, sslmode="verify-full", sslrootcert=server.authority.path)
    database = Database.connect(url)
    migrate(database)
    with database.read() as session:
        row = session.execute(text("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")).scalar_one()
    database.close()
    assert row is True


@pytest.mark.parametrize(
    ("address", "mode", "trusted", "said"),
    [
        (ADDRESS, "verify-full", False, "certificate verify failed"),
        (ADDRESS, "verify-ca", False, "certificate verify failed"),
        (OTHER_ADDRESS, "verify-full", True, "does not match host name"),
        (ADDRESS, "disable", True, "no encryption"),
    ],
)
def test_another_authority_another_name_and_no_tls_are_refused_in_one_line(
    server: TlsPostgres, name: str, tmp_path: Path, address: str, mode: str, trusted: bool, said: str
) -> None:
    authority = server.authority if trusted else server.another
    url = server.url(name, address, sslmode=mode, sslrootcert=authority.path).replace("@", ":s3cret-word@")
    with pytest.raises(UnreachableError, match=said):
        migrate(Database.connect(url))
    environment = os.environ | {"FARM_HOME": str(tmp_path), "FARM_DATABASE_URL": url, "NO_COLOR": "1"}
    told = run("farm", "status", cwd=tmp_path, env=environment, timeout=60)
    lines = told.stderr.strip().splitlines()
    assert (told.returncode, len(lines), told.stdout) == (4, 1, ""), told.stderr
    assert said in lines[0]
    assert "s3cret-word" not in told.stderr


def test_a_name_that_is_not_the_certificates_is_borne_where_the_url_asks_for_the_authority_alone(
    server: TlsPostgres, name: str
) -> None:
    database = Database.connect(
        server.url(name, OTHER_ADDRESS, sslmode="verify-ca", sslrootcert=server.authority.path)
    )
    migrate(database)
    database.close()
