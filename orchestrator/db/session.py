"""Opening the database, and the two kinds of transaction. The only module that knows SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlmodel import Session

from orchestrator.errors import UnreachableError

BUSY_TIMEOUT_MS: Final = 30_000
_WRITE_OPTION: Final = "farm_write"


@dataclass(frozen=True, slots=True)
class Database:
    """One database. `read` sees a consistent snapshot; `write` holds the write lock from its first moment."""

    engine: Engine
    path: Path

    @classmethod
    def connect(cls, path: Path) -> Database:
        """SQLite in WAL mode. Creates an empty file where there is none."""
        engine = create_engine(URL.create("sqlite", database=str(path)))
        event.listen(engine, "connect", _prepare_connection)
        event.listen(engine, "begin", _begin)
        return cls(engine, path)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read transaction. Raises `UnreachableError` where the database cannot be read."""
        with self._mapped(), Session(self.engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A write transaction: committed at the end of the block, rolled back by an exception.

        `BEGIN IMMEDIATE`, because a read that turns into a write cannot wait for another writer.
        Keep it short and without any other I/O. Raises `UnreachableError`.
        """
        engine = self.engine.execution_options(**{_WRITE_OPTION: True})
        with self._mapped(), Session(engine) as session:
            yield session
            session.commit()

    def backup(self, target: Path) -> None:
        """Copy the database, consistent and compact, to a new file."""
        with self._mapped(), self.engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            raw.execute("VACUUM INTO ?", (str(target),))

    def integrity(self) -> str:
        """`ok`, or what SQLite's own check found."""
        with self._mapped(), self.engine.connect() as connection:
            return str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except OperationalError as error:
            raise UnreachableError(_explain(self.path, str(error.orig))) from error
        except DatabaseError as error:
            if type(error) is DatabaseError:
                raise UnreachableError(_explain(self.path, str(error.orig))) from error
            raise


def _prepare_connection(connection: Any, _record: object) -> None:
    """Transactions are ours (`_begin`), not the driver's; durable commits; foreign keys hold."""
    connection.isolation_level = None
    for pragma in (
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    write = connection.get_execution_options().get(_WRITE_OPTION, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _explain(path: Path, text: str) -> str:
    if "locked" in text or "busy" in text:
        return f"the database {path} was locked for {BUSY_TIMEOUT_MS // 1000} s by another program; try again"
    if "full" in text:
        return f"the database {path} cannot grow: the disk is full; free some space or set FARM_HOME"
    if "not a database" in text or "malformed" in text:
        return f"{path} is no intact database ({text}); restore a backup (farm.db.backup-*) or set FARM_HOME"
    return f"the database {path} cannot be used: {text}"
