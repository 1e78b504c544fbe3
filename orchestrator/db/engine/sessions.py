"""Opens the database, with its two kinds of transaction: `read`, a snapshot, and `write`, a turn."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, InterfaceError, OperationalError, SQLAlchemyError
from sqlmodel import Session

from orchestrator.db.engine import dialects, postgres_programs
from orchestrator.db.engine.locks import SCHEDULER_LOCK, AdvisoryLock
from orchestrator.db.engine.turn import Turn
from orchestrator.errors import UnreachableError, UsageError
from orchestrator.results.events import Fact

__all__ = ["Database", "RefusedError", "Session"]

RefusedError = SQLAlchemyError
"""Raised by a transaction whose statement the database does not accept: a broken constraint,
a value of the wrong type. The room's other errors are `UnreachableError`.
"""

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Database:
    """One database. `read` sees a consistent snapshot; a `write` holds the write lock from its first
    moment: writers take turns. `name` is for people and holds no password; `path` is the file of SQLite, and
    `backups` the folder that copies go to. `watchers` get the facts of each committed transaction.
    """

    engine: Engine
    name: str
    backups: Path
    path: Path | None = None
    watchers: list[Callable[[Fact], None]] = field(default_factory=list)

    @classmethod
    def connect(cls, where: Path | str, backups: Path | None = None) -> "Database":
        """Take a file (SQLite in WAL mode, created if missing) or the URL of a PostgreSQL database.

        Nothing is opened yet. Raises `UsageError` for a text that cannot be a URL.
        """
        if isinstance(where, Path):
            return cls._sqlite(where, backups)
        try:
            url = make_url(where)
        except ArgumentError as error:
            raise UsageError("FARM_DATABASE_URL is not a URL; e.g. postgresql://farm@host/farm") from error
        if url.drivername.startswith("sqlite") and url.database:
            return cls._sqlite(Path(url.database).absolute(), backups)
        # The folder of a local socket is a parameter of the URL.
        name = f"{url.database} on {url.host or url.query.get('host', 'localhost')}"
        return cls(dialects.postgresql_engine(url), name, backups or Path.cwd())

    @classmethod
    def _sqlite(cls, path: Path, backups: Path | None) -> "Database":
        return cls(dialects.sqlite_engine(path), str(path), backups or path.parent, path)

    @property
    def is_postgresql(self) -> bool:
        """Whether this is PostgreSQL, which several machines may share; otherwise it is a file of SQLite."""
        return dialects.is_postgresql(self.engine)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a read transaction. Raises `UnreachableError` if the database cannot be read."""
        engine = self.engine
        if self.is_postgresql:
            # One snapshot for all questions of the block, as SQLite's readers have by nature.
            engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with self._mapped(), Session(engine) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Turn]:
        """Open a write transaction: committed at the end of the block, rolled back by an exception.

        It begins when no other write is under way. Keep it short and without any other I/O. Raises
        `UnreachableError`, and `RefusedError` for what the database does not accept.
        """
        engine = self.engine.execution_options(**{dialects.WRITE_OPTION: True})
        with self._mapped(), engine.connect() as connection, Turn(connection) as turn:
            yield turn
            with dialects.pipelined(turn):  # everything written, and the commit, are one round trip
                turn.settle()
                turn.commit()
        for fact in turn.facts:
            for watcher in self.watchers:
                watcher(fact)

    def backup(self, target: Path) -> None:
        """Copy the database, consistent, to a new file: SQLite's own form, or `pg_dump`'s custom one.

        Raises `UnreachableError`.
        """
        if self.is_postgresql:
            postgres_programs.dump(self.engine.url, target)
            return
        with self._mapped(), self.engine.connect() as connection:
            dialects.copy_sqlite(connection, target)

    def integrity(self) -> str:
        """Return `ok`, or the findings of SQLite's quick check; PostgreSQL only has to answer."""
        with self._mapped(), self.engine.connect() as connection:
            return dialects.integrity(connection)

    def faults(self) -> list[str]:
        """Return the engine's descriptions of faults; on PostgreSQL, of its indexes and constraints.

        Raises `UnreachableError`.
        """
        with self._mapped(), self.engine.connect() as connection:
            return dialects.faults(connection)

    def hold_scheduler_lock(self) -> AdvisoryLock | None:
        """Take PostgreSQL's lock for the one scheduler of the lab; None while another process holds it.

        Raises `UnreachableError`.
        """
        with self._mapped():
            return AdvisoryLock.acquire(self.engine, SCHEDULER_LOCK)

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    @property
    def _driver(self) -> Any:
        return self.engine.dialect.loaded_dbapi

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """Raise errors in the farm's words, and delay Ctrl-C and similar signals until the end.

        An interrupt in the middle of a statement would leave the driver's connection in an unknown state.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        try:
            yield
        except (OperationalError, InterfaceError) as error:
            raise self._unreachable(error.orig) from error
        except DatabaseError as error:
            if type(error) is DatabaseError:  # its subclasses are about a statement, not about the database
                raise self._unreachable(error.orig) from error
            raise
        except self._driver.OperationalError as error:
            raise self._unreachable(error) from error
        except (self._driver.Error, OverflowError) as error:  # SQLite: a whole number of more than 64 bits
            raise RefusedError(str(error)) from error
        finally:
            # Restored, not unblocked: the endpoint's threads block these signals for good.
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _unreachable(self, error: BaseException | None) -> UnreachableError:
        return UnreachableError(dialects.explain(self.engine, self.name, str(error)))
