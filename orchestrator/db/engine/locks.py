"""PostgreSQL's advisory locks: their keys, and the one that a scheduler holds while it runs.

SQLite needs none of them: its file lock serialises writers, and `scheduling.lock` locks a file.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DatabaseError, SQLAlchemyError

SCHEDULER_LOCK: Final = 0x4641524D
"""Key of the lock that the one scheduling process of a lab holds: "FARM" in ASCII. The key is chosen and has
to stay: two versions of the farm with different keys could both schedule.
"""

WRITE_LOCK: Final = 0x46575254
""""FWRT": the lock that every write transaction takes first, as SQLite's do by nature. Without it two
transactions that hold each other's rows are a deadlock, and what one has read the other might change.
"""

MIGRATION_LOCK: Final = 0x46524D4D
""""FRMM": the lock under which the tables change, so that two processes migrate one after the other."""


@dataclass(slots=True)
class AdvisoryLock:
    """A lock that PostgreSQL frees when this connection ends for any reason."""

    connection: Connection

    @classmethod
    def acquire(cls, engine: Engine, key: int) -> "AdvisoryLock | None":
        """Take the lock on a connection of its own; None while another process has it."""
        # Autocommit: an open transaction would be ended by the idle timeout, and the lock with it.
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        if connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({key})").scalar():
            return cls(connection)
        connection.close()
        return None

    def is_held(self) -> bool:
        """Whether the connection that holds it is alive."""
        if self.connection.closed:
            return False
        try:
            return self.connection.exec_driver_sql("SELECT 1").scalar() == 1
        except DatabaseError:
            return False

    def release(self) -> None:
        """Free the lock and end the connection. A second call does nothing."""
        if self.connection.closed:
            return
        # The server sees the end of a connection some time later, and refuses the next holder until then. An
        # error is that of a connection that was lost, which SQLAlchemy refuses to use as well.
        with suppress(SQLAlchemyError):
            self.connection.exec_driver_sql("SELECT pg_advisory_unlock_all()")
        self.connection.invalidate()  # it must not return to the pool with the lock
        self.connection.close()
