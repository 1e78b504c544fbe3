"""The differences between SQLite and PostgreSQL: connections, transactions, checks, copies, error texts.

No other module asks which of the two it works with.
"""

import errno
import logging
import math
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Dialect, Engine, Executable, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DisconnectionError
from sqlmodel import Session, SQLModel

from orchestrator.db.engine.locks import WRITE_LOCK

BUSY_TIMEOUT_MS: Final = 30_000
"""How long SQLite waits for another program's lock, in milliseconds. Chosen: longer than any transaction of
the farm, short enough that a person at a terminal learns of a program that keeps the file locked.
"""

STATEMENT_TIMEOUT_MS: Final = 30_000
"""How long PostgreSQL works on one statement, its waiting for `WRITE_LOCK` included, in milliseconds. Chosen
as `BUSY_TIMEOUT_MS` is: the two engines give up at the same time.
"""

CONNECT_TIMEOUT_S: Final = 5
"""How long a connection to PostgreSQL may take, in seconds. Chosen: a server that is down is reported before
a person gives up, and one across a slow network is still reached.
"""

IDLE_TIMEOUT_MS: Final = 60_000
"""After how many milliseconds PostgreSQL ends a transaction that does nothing: a program that is stopped in
the middle of one holds locks that all others wait for. Larger: they wait longer; smaller than the pauses of a
transaction at work: it is ended by mistake.
"""

WRITE_OPTION: Final = "farm_write"
"""Execution option of a connection: its transaction is going to write."""

_KEEPALIVE: Final = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""TCP keep-alive of libpq, in seconds and probes: a server that vanished silently is noticed after
about 10 + 3 x 5 s, and not only at the next statement's timeout.
"""

_BEGIN_WRITING: Final = f"""SELECT pg_advisory_xact_lock({WRITE_LOCK}),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"""
"""How a write transaction begins on PostgreSQL. It touches few rows by key, so index lookups are forced: the
planner would scan a table that was rewritten a thousand times, because it takes it for a large one.
"""

_POOL_LOG: Final = "sqlalchemy.pool.impl.QueuePool"
"""Where SQLAlchemy's pool logs, with a traceback, that it could not reset a connection whose server ended."""

_USED_AT: Final = "farm_used_at"
"""Key in a pooled connection's record: when it was last used, by the monotonic clock."""

_IDLE_S: Final = 1.0
"""After how many seconds without use a pooled connection is tested before it is used. Chosen: the scheduler's
steady turns are spared the test's round trip; a connection that a restart of the server killed is replaced.
"""

_SQLITE_CHECKS: Final = (
    "PRAGMA integrity_check(20)",
    "SELECT 'row', rowid, 'of', \"table\", 'names a missing', parent FROM pragma_foreign_key_check LIMIT 20",
)
"""At most 20 faults of each kind are named: enough to see what is broken, few enough to read."""

_POSTGRESQL_CHECKS: Final = (
    "SELECT 'index', indexrelid::regclass, 'is invalid' FROM pg_index WHERE NOT indisvalid",
    "SELECT 'constraint', conname, 'is not validated' FROM pg_constraint WHERE NOT convalidated",
)


def is_postgresql(engine: Engine | Connection) -> bool:
    """Whether this is PostgreSQL; otherwise it is SQLite."""
    return engine.dialect.name == "postgresql"


def sqlite_engine(path: Path) -> Engine:
    """Create an engine for a file: WAL mode, durable commits, foreign keys."""
    engine = create_engine(URL.create("sqlite", database=str(path)))
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def postgresql_engine(url: URL) -> Engine:
    """Create an engine for a server, with time limits, which tests a connection after idle time."""
    limits = f"-c statement_timeout={STATEMENT_TIMEOUT_MS}"
    # In UTC, because psycopg returns a moment in the time zone of its session.
    options = f"{limits} -c idle_in_transaction_session_timeout={IDLE_TIMEOUT_MS} -c timezone=UTC"
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={
            "connect_timeout": CONNECT_TIMEOUT_S,
            "options": options,
            "application_name": "farm",
            **_KEEPALIVE,
        },
    )
    logging.getLogger(_POOL_LOG).addFilter(_without_traceback)
    event.listen(engine, "begin", _begin_postgresql)
    engine.dialect.supports_sane_rowcount = False  # what `pipelined` sends is answered later
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", partial(_test_after_rest, engine.dialect))
    return engine


def _without_traceback(record: logging.LogRecord) -> bool:
    """Let the pool say in one line that it dropped a connection: whoever used it gets the error itself."""
    if record.exc_info:
        cause = " ".join(str(record.exc_info[1]).split())
        record.msg, record.args = f"a connection to the database was dropped: {cause}", ()
        record.exc_info = None
    return True


def _prepare_sqlite(connection: Any, _record: object) -> None:
    """Configure a connection: transactions by `_begin_sqlite`, durable commits, foreign keys checked."""
    # Python's driver would begin transactions by itself, and only before the first write.
    connection.isolation_level = None
    for pragma in (
        # First: the change to WAL may have to wait for another process.
        f"busy_timeout = {BUSY_TIMEOUT_MS}",
        "journal_mode = WAL",
        # In WAL mode, NORMAL may lose the last commits in a power cut.
        "synchronous = FULL",
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A read that turns into a write cannot wait for another writer (SQLITE_BUSY at once): a transaction that
    # is going to write takes the write lock at its beginning.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if _is_going_to_write(connection) else "BEGIN")


def _begin_postgresql(connection: Connection) -> None:
    if _is_going_to_write(connection):
        raw: Any = connection.connection.driver_connection
        with raw.pipeline():  # BEGIN and the lock are one round trip
            connection.exec_driver_sql(_BEGIN_WRITING)


def _is_going_to_write(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get(WRITE_OPTION, False))


def _note_use(_connection: object, record: Any) -> None:
    record.info[_USED_AT] = time.monotonic()


def _test_after_rest(dialect: Dialect, connection: Any, record: Any, _proxy: object) -> None:
    """Let the pool replace a connection that died while idle. One in steady use fails by itself."""
    # A connection that was just made has no such entry, and needs no test.
    if time.monotonic() - record.info.get(_USED_AT, math.inf) < _IDLE_S:
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise DisconnectionError from error


@contextmanager
def pipelined(session: Session) -> Iterator[None]:
    """Send the statements of this block, which only write, to PostgreSQL in one round trip.

    An error of one of them is raised by a later statement or at the end of the block, so no statement in it
    may need an answer, not even the key of a new row. SQLite needs no round trip: there nothing changes.
    """
    if not is_postgresql(session.connection()):
        yield
        return
    raw: Any = session.connection().connection.driver_connection
    try:
        with raw.pipeline():
            yield
    except Exception as error:
        # A refused statement skips the COMMIT behind it, which SQLAlchemy takes for done: it would give the
        # connection back in a failed transaction, and the next one over it would fail as well.
        if not raw.closed:
            raw.rollback()
        refused = _refusal(error)
        if refused is error:
            raise
        raise refused from refused.__cause__


def _refusal(error: BaseException) -> BaseException:
    """Return the error that began a failure.

    Where the answer to a refused statement comes before all others are sent, SQLAlchemy rolls back within the
    pipeline; that fails because the pipeline is aborted, and would hide what the database refused.
    """
    found: BaseException | None = error
    # By its name: on SQLite psycopg is not imported.
    while found is not None and type(getattr(found, "orig", found)).__name__ == "PipelineAborted":
        found = found.__context__
    return found or error


def note_growth(session: Session, *names: str) -> None:
    """Let PostgreSQL's planner analyse tables that have just grown.

    Autovacuum looks at large tables within a minute and at small ones never: the planner would then take a
    small table for larger than it is.
    """
    if is_postgresql(session.connection()):
        session.connection().exec_driver_sql(f"ANALYZE {', '.join(names)}")


def insert_missing(session: Session, table: type[SQLModel], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose key is missing, even if another transaction inserts them at this moment.

    Sort the rows by their key: two transactions that wait for each other's rows are a deadlock.
    """
    if not rows:
        return
    statement: Executable
    if is_postgresql(session.connection()):
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415  # each start on SQLite would load it

        statement = postgresql.insert(table).on_conflict_do_nothing()
    else:
        statement = sqlite.insert(table).on_conflict_do_nothing()
    session.connection().execute(statement, list(rows))


def integrity(connection: Connection) -> str:
    """Return `ok`, or the findings of SQLite's quick check; PostgreSQL only has to answer."""
    check = "SELECT 'ok'" if is_postgresql(connection) else "PRAGMA quick_check(1)"
    return str(connection.exec_driver_sql(check).scalar())


def faults(connection: Connection) -> list[str]:
    """Return the engine's descriptions of faults; on PostgreSQL, of its indexes and constraints."""
    checks = _POSTGRESQL_CHECKS if is_postgresql(connection) else _SQLITE_CHECKS
    rows = [row for check in checks for row in connection.exec_driver_sql(check)]
    return [text for row in rows if (text := " ".join(str(part) for part in row)) != "ok"]


def copy_sqlite(connection: Connection, target: Path) -> None:
    """Copy the database's present content to a new file. Raises `OSError` where that has no room."""
    raw: Any = connection.connection.driver_connection
    try:
        raw.execute("VACUUM INTO ?", (str(target),))
    except sqlite3.OperationalError as error:
        # The disk of the copy is full; `explain` would say that the database itself cannot grow.
        if "full" not in str(error):
            raise
        target.unlink(missing_ok=True)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target)) from error


def explain(engine: Engine, name: str, text: str) -> str:
    """Translate a driver's error into the farm's words, with the remedy. `name` is for people."""
    return _explain_postgresql(name, text) if is_postgresql(engine) else _explain_sqlite(name, text)


def _explain_sqlite(path: str, text: str) -> str:
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
    is_missing = "does not exist" in text
    if "password" in text or "authentication" in text or (is_missing and 'role "' in text):
        return f"the database {name} refuses this user: {first}; check FARM_DATABASE_URL"
    if is_missing and 'database "' in text:
        return f"the database {name} is not there: {first}; create it with: createdb"
    if is_missing:
        return f"the database {name} is incomplete: {first}; check FARM_DATABASE_URL, or restore a backup"
    return f"the database {name} cannot be reached: {first}; start PostgreSQL or check FARM_DATABASE_URL"
