"""Opening the database, and the two kinds of transaction. The only module that knows the engines apart."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DisconnectionError,
    InterfaceError,
    OperationalError,
)
from sqlmodel import Session, SQLModel

from orchestrator.db.engine.turn import settle
from orchestrator.errors import UnreachableError, UsageError

BUSY_TIMEOUT_MS: Final = 30_000
STATEMENT_TIMEOUT_MS: Final = 30_000
CONNECT_TIMEOUT_S: Final = 5
SCHEDULER_LOCK: Final = 0x4641524D
"""Key of the advisory lock (PostgreSQL) that the one scheduling process holds."""

WRITE_LOCK: Final = 0x46575254
"""Key of the advisory lock (PostgreSQL) that every write transaction takes first, as SQLite's do by nature:
two that held each other's rows would be a deadlock, and what one has read the other might change.
"""

IDLE_TIMEOUT_MS: Final = 60_000
"""A program that is stopped in the middle of a transaction loses it: others wait for its locks."""

_WRITE_OPTION: Final = "farm_write"
_BEGIN_WRITING: Final = f"""SELECT pg_advisory_xact_lock({WRITE_LOCK}),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"""
"""What a write transaction asks, it asks of a few rows by their keys: it is to seek them, even where the
planner takes a table that was rewritten a thousand times for a large one, and a large one for small.
"""

_USED_AT: Final = "farm_used_at"
_IDLE_S: Final = 1.0
_SQLITE_CHECKS: Final = (
    "PRAGMA integrity_check(20)",
    "SELECT 'row', rowid, 'of', \"table\", 'names a missing', parent FROM pragma_foreign_key_check LIMIT 20",
)
_POSTGRESQL_CHECKS: Final = (
    "SELECT 'index', indexrelid::regclass, 'is invalid' FROM pg_index WHERE NOT indisvalid",
    "SELECT 'constraint', conname, 'is not validated' FROM pg_constraint WHERE NOT convalidated",
)
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Database:
    """One database. `read` sees a consistent snapshot; a `write` holds the write lock from its first
    moment: writers take turns. `name` is for people and holds no password; `path` is the file of SQLite, and
    `backups` the folder that copies go to.
    """

    engine: Engine
    name: str
    backups: Path
    path: Path | None = None

    @classmethod
    def connect(cls, where: Path | str, backups: Path | None = None) -> Database:
        """A file (SQLite in WAL mode, created where there is none) or the URL of a PostgreSQL database.

        Nothing is opened yet. Raises `UsageError` for a URL that cannot be one.
        """
        if isinstance(where, Path):
            return cls._sqlite(where, backups)
        try:
            url = make_url(where)
        except ArgumentError as error:
            raise UsageError("FARM_DATABASE_URL is no URL; e.g. postgresql://farm@host/farm") from error
        if url.drivername.startswith("sqlite") and url.database:
            return cls._sqlite(Path(url.database).absolute(), backups)
        return cls._postgresql(url, backups or Path.cwd())

    @classmethod
    def _sqlite(cls, path: Path, backups: Path | None) -> Database:
        engine = create_engine(URL.create("sqlite", database=str(path)))
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin)
        return cls(engine, str(path), backups or path.parent, path)

    @classmethod
    def _postgresql(cls, url: URL, backups: Path) -> Database:
        patience = f"-c statement_timeout={STATEMENT_TIMEOUT_MS}"
        options = f"{patience} -c idle_in_transaction_session_timeout={IDLE_TIMEOUT_MS} -c timezone=UTC"
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_S,
                "options": options,
                "application_name": "farm",
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
            },
        )
        event.listen(engine, "begin", _take_turn)
        engine.dialect.supports_sane_rowcount = False  # what `together` sends is answered later
        event.listen(engine, "checkin", _note_use)
        event.listen(engine, "checkout", partial(_look_after_idling, engine.dialect))
        return cls(engine, f"{url.database} on {url.host or url.query.get('host', 'localhost')}", backups)

    @property
    def is_postgresql(self) -> bool:
        """The engine's kind."""
        return self.engine.dialect.name == "postgresql"

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A read transaction. Raises `UnreachableError` where the database cannot be read."""
        engine = self.engine
        if self.is_postgresql:
            engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with self._mapped(), Session(engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A write transaction: committed at the end of the block, rolled back by an exception.

        It begins when no other write is under way. Keep it short and without any other I/O. Raises
        `UnreachableError`.
        """
        engine = self.engine.execution_options(**{_WRITE_OPTION: True})
        with self._mapped(), engine.connect() as connection, Session(connection) as session:
            yield session
            with together(session):
                settle(session)
                session.commit()

    def backup(self, target: Path) -> None:
        """Copy the database, consistent, to a new file: SQLite's own form, or `pg_dump`'s custom one.

        Raises `UnreachableError`.
        """
        if self.is_postgresql:
            _dump(self.engine.url, target)
            return
        with self._mapped(), self.engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            raw.execute("VACUUM INTO ?", (str(target),))

    def integrity(self) -> str:
        """`ok`, or what SQLite's own check found; PostgreSQL is asked for an answer only."""
        check = "SELECT 'ok'" if self.is_postgresql else "PRAGMA quick_check(1)"
        with self._mapped(), self.engine.connect() as connection:
            return str(connection.exec_driver_sql(check).scalar())

    def faults(self) -> list[str]:
        """What is broken inside, in the engine's words. PostgreSQL is asked for its indexes and constraints.

        Raises `UnreachableError`.
        """
        checks = _POSTGRESQL_CHECKS if self.is_postgresql else _SQLITE_CHECKS
        with self._mapped(), self.engine.connect() as connection:
            rows = [row for check in checks for row in connection.exec_driver_sql(check)]
        return [text for row in rows if (text := " ".join(str(part) for part in row)) != "ok"]

    def hold_scheduler_lock(self) -> AdvisoryLock | None:
        """PostgreSQL: the lock that one scheduler in the whole lab has; None while another holds it.

        Raises `UnreachableError`.
        """
        with self._mapped():
            connection = self.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            held = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({SCHEDULER_LOCK})").scalar()
            if held:
                return AdvisoryLock(connection)
            connection.close()
            return None

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    @property
    def _driver_error(self) -> type[Exception]:
        """What the driver itself raises of a lost database, at the end of statements that go `together`."""
        driver: Any = self.engine.dialect.loaded_dbapi
        error: type[Exception] = driver.OperationalError
        return error

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """Errors in the farm's words. Ctrl-C and its like wait for the end: what a driver makes of an
        interrupt in the middle of a statement is nobody's to know.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        try:
            yield
        except (OperationalError, InterfaceError) as error:
            raise UnreachableError(_explain(self, str(error.orig))) from error
        except DatabaseError as error:
            if type(error) is DatabaseError:
                raise UnreachableError(_explain(self, str(error.orig))) from error
            raise
        except self._driver_error as error:
            raise UnreachableError(_explain(self, str(error))) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def together(session: Session) -> Iterator[None]:
    """Statements that only write: PostgreSQL gets them in one go, and answers all at the end of the block.

    What fails among them is raised there, or by a later statement of the block; nothing in it may ask, not
    even for the key of a new row. SQLite is no journey away.
    """
    raw: Any = session.connection().connection.driver_connection
    with raw.pipeline() if _of_postgresql(session) else nullcontext():
        yield


def _of_postgresql(session: Session) -> bool:
    return session.get_bind().dialect.name == "postgresql"


def note_growth(session: Session, *names: str) -> None:
    """Tell PostgreSQL's planner of tables that just grew: it looks at large ones within a minute, at
    small ones never, and takes them for larger than they are.
    """
    if _of_postgresql(session):
        session.connection().exec_driver_sql(f"ANALYZE {', '.join(names)}")


def insert_missing(session: Session, table: type[SQLModel], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose key nobody has inserted, be it this moment in another transaction.

    Sort them by their key: two transactions that wait for each other's rows would be a deadlock.
    """
    insert = postgresql.insert if _of_postgresql(session) else sqlite.insert
    if rows:
        session.connection().execute(insert(table).on_conflict_do_nothing(), list(rows))


@dataclass(slots=True)
class AdvisoryLock:
    """A lock that PostgreSQL frees when this connection ends, however it does."""

    connection: Connection

    def is_held(self) -> bool:
        """Whether the connection that holds it is alive."""
        if self.connection.closed:
            return False
        try:
            return self.connection.exec_driver_sql("SELECT 1").scalar() == 1
        except DatabaseError:
            return False

    def release(self) -> None:
        """End the connection: it does not go back to the pool with the lock. Again: nothing happens."""
        if self.connection.closed:
            return
        self.connection.invalidate()
        self.connection.close()


def _note_use(_connection: object, record: Any) -> None:
    record.info[_USED_AT] = time.monotonic()


def _look_after_idling(dialect: Dialect, connection: Any, record: Any, _proxy: object) -> None:
    """A connection that lay idle may be dead: the pool replaces it. One in steady use tells by itself."""
    if time.monotonic() - record.info.get(_USED_AT, math.inf) < _IDLE_S:
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise DisconnectionError from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
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
    """A read that turns into a write could not wait for another writer: a write is one from the start."""
    write = connection.get_execution_options().get(_WRITE_OPTION, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _take_turn(connection: Connection) -> None:
    if connection.get_execution_options().get(_WRITE_OPTION, False):
        raw: Any = connection.connection.driver_connection
        with raw.pipeline():
            connection.exec_driver_sql(_BEGIN_WRITING)


def _dump(url: URL, target: Path) -> None:
    program = shutil.which("pg_dump")
    if program is None:
        raise UnreachableError(
            "pg_dump is not installed, so the database cannot be copied; install postgresql-client"
        )
    plain = url.set(drivername="postgresql", password=None).render_as_string()
    environment = dict(os.environ)
    if url.password:
        environment["PGPASSWORD"] = url.password
    done = subprocess.run(  # noqa: S603  # PostgreSQL's own program
        [program, "--format=custom", f"--file={target}", "--no-password", plain],
        env=environment,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise UnreachableError(f"pg_dump could not copy the database to {target}: {said[-1]}")


def _explain(database: Database, text: str) -> str:
    return (
        _explain_postgresql(database.name, text)
        if database.is_postgresql
        else _explain_sqlite(database, text)
    )


def _explain_sqlite(database: Database, text: str) -> str:
    path = database.name
    if "locked" in text or "busy" in text:
        return f"the database {path} was locked for {BUSY_TIMEOUT_MS // 1000} s by another program; try again"
    if "full" in text:
        return f"the database {path} cannot grow: the disk is full; free some space or set FARM_HOME"
    if "not a database" in text or "malformed" in text:
        return f"{path} is no intact database ({text}); restore a backup (farm.db.backup-*) or set FARM_HOME"
    return f"the database {path} cannot be used: {text}"


def _explain_postgresql(name: str, text: str) -> str:
    first = " ".join(text.strip().split("\n")[0].split())
    if "statement timeout" in text:
        return f"the database {name} did not answer within {STATEMENT_TIMEOUT_MS // 1000} s; see its log"
    if "No space left" in text or "could not extend" in text:
        return f"the database {name} cannot grow: its disk is full; free some space there"
    if "password" in text or "authentication" in text:
        return f"the database {name} refuses this user: {first}; check FARM_DATABASE_URL"
    if "does not exist" in text:
        return f"the database {name} is not there: {first}; create it with: createdb"
    return f"the database {name} cannot be reached: {first}; start PostgreSQL or check FARM_DATABASE_URL"
