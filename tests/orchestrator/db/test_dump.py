"""A copy of a PostgreSQL database by the real `pg_dump`: no password in its arguments, no secret of ours."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest
from sqlalchemy import make_url

from orchestrator.db.engine.postgres_programs import dump
from orchestrator.errors import UnreachableError


@pytest.fixture
def recorded(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which `pg_dump` notes its arguments, environment and folder before it goes on."""
    real = shutil.which("pg_dump")
    if real is None:
        pytest.skip("needs pg_dump")
    folder = tmp_path / "bin"
    folder.mkdir()
    where = shlex.quote(str(folder))
    program = folder / "pg_dump"
    program.write_text(
        f"#!/bin/sh\nenv > {where}/environment\npwd > {where}/folder\n"
        f'printf "%s\\n" "$@" > {where}/arguments\nexec {shlex.quote(real)} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


@pytest.mark.parametrize("place", ["user", "query"])
def test_the_password_is_no_argument_and_the_farms_secrets_stay_here(
    recorded: Path, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    for name in ("FARM_DATABASE_URL", "FARM_BROKER_URL", "FARM_SUBMIT_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of-the-farm")
    monkeypatch.chdir(tmp_path)
    url = make_url(postgres_url)
    with_password = url.set(password="hunter2")
    if place == "query":
        with_password = url.update_query_dict({"password": "hunter2", "sslrootcert": "ca.pem"})
    dump(with_password, Path("copy.dump"))
    assert (tmp_path / "copy.dump").read_bytes().startswith(b"PGDMP")
    arguments = (recorded / "arguments").read_text()
    assert "hunter2" not in arguments
    environment = (recorded / "environment").read_text().splitlines()
    assert "PGPASSWORD=hunter2" in environment
    assert "of-the-farm" not in str(environment)
    assert not Path((recorded / "folder").read_text().strip()).exists(), "a folder of its own"
    if place == "query":
        assert f"{tmp_path}/ca.pem".replace("/", "%2F") in arguments


def test_the_password_of_a_key_is_refused_rather_than_shown(recorded: Path, postgres_url: str) -> None:
    url = make_url(postgres_url).update_query_dict({"sslpassword": "hunter2"})
    with pytest.raises(UnreachableError, match="to every user of this machine") as caught:
        dump(url, recorded / "copy.dump")
    assert "hunter2" not in str(caught.value)
    assert not (recorded / "arguments").exists()


def test_a_pg_dump_of_the_current_folder_is_not_run(
    recorded: Path, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recorded)
    monkeypatch.setenv("PATH", ".:/nowhere:")
    with pytest.raises(UnreachableError, match="pg_dump is not installed"):
        dump(make_url(postgres_url), tmp_path / "copy.dump")
    assert not (recorded / "arguments").exists()
