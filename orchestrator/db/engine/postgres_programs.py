"""Runs PostgreSQL's own programs on the farm's database: a password is on no command line."""

import subprocess
import tempfile
from pathlib import Path
from typing import Final

from sqlalchemy import URL

from orchestrator.config.child_environment import absolute, find_program, for_postgresql
from orchestrator.errors import UnreachableError

_FILES_IN_URL: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir", "passfile")
"""Parameters of a PostgreSQL URL that name files."""


def dump(url: URL, target: Path) -> None:
    """Copy a database to a new file, in the custom format of `pg_dump`. Raises `UnreachableError`."""
    _run(
        "pg_dump",
        ["--format=custom", f"--file={target.absolute()}"],
        f"could not copy the database to {target}",
        url,
    )


def unpack(copy: Path, script: Path) -> None:
    """Write what `dump` copied as a script of SQL. Raises `UnreachableError`, also for another file."""
    words = ["--no-owner", "--no-privileges", f"--file={script.absolute()}", str(copy.absolute())]
    _run("pg_restore", words, f"could not read {copy}")


def replace_all(url: URL, tables: list[str], script: Path) -> None:
    """Put what a script makes in the place of these tables, in one transaction. Raises `UnreachableError`."""
    named = ", ".join(f'"{name}"' for name in tables)
    words = ["--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1"]
    # CASCADE, because the tables refer to one another.
    words += [f"--command=DROP TABLE {named} CASCADE"] if tables else []
    words.append(f"--file={script.absolute()}")
    _run("psql", words, "could not restore the database, which is as it was", url)


def _run(program: str, words: list[str], failed: str, url: URL | None = None) -> None:
    """Run a program, on a database where there is a `url`. Raises `UnreachableError`: what has `failed`."""
    found = find_program(program)
    if found is None:
        raise UnreachableError(
            f"{program} is not installed, which copies the database; install postgresql-client"
        )
    secret: dict[str, str] = {}
    if url is not None:
        plain, secret = _without_password(url, program)
        words = ["--no-password", *words, f"--dbname={plain}"]
    with tempfile.TemporaryDirectory(prefix="farm-pg-") as folder:
        done = subprocess.run(  # noqa: S603  # PostgreSQL's own program
            [found, *words],
            env=for_postgresql() | secret,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise UnreachableError(f"{program} {failed}: {said[-1]}")


def _without_password(url: URL, program: str) -> tuple[str, dict[str, str]]:
    """Split a URL into one that everybody may see, and the password as an environment variable."""
    query = {
        name: absolute(value) if name in _FILES_IN_URL and isinstance(value, str) else value
        for name, value in url.query.items()
    }
    # A URL may have it among its parameters too.
    password = query.pop("password", None) or url.password
    if "sslpassword" in query:
        raise UnreachableError(
            f"{program} would show the sslpassword of FARM_DATABASE_URL to every user of this machine; "
            "use a key without one, readable by its user alone"
        )
    plain = url.set(drivername="postgresql", password=None, query=query).render_as_string()
    return plain, {"PGPASSWORD": str(password)} if password else {}
