"""Copies of a database as `Database.backup` makes them: read, changed, and put in its place."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Final

from sqlalchemy import Update, inspect

from orchestrator.db.engine import postgres_programs
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import FarmError
from runtime.common.durable import put_in_place

Row = dict[str, str | None]

_COPY: Final = "COPY public.{table} ("
"""How the rows of a table begin in a script of `pg_restore`; fields are parted by tabs, NULL is `\\N`."""
_WAL_FILES: Final = ("-wal", "-shm")
"""What SQLite keeps beside a file, and would apply to any other of its name."""

_PATIENCE_S: Final = 5.0
"""Seconds that another process has to close the file: a command that ends, not one that stays."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy, unpacked: a file of SQLite, or a script of SQL."""

    database: Database
    unpacked: Path

    def rows(self, table: str) -> Iterator[Row]:
        """Yield the rows of a table as text by column. Raises `FarmError` for a file of SQLite without it."""
        return self._rows_of_script(table) if self.database.is_postgresql else self._rows_of_file(table)

    def change(self, statement: Update) -> None:
        """Change rows of the copy. Raises `FarmError` for a file of SQLite that cannot be changed so."""
        bound = statement.compile(self.database.engine, compile_kwargs={"literal_binds": True})
        if self.database.is_postgresql:
            with self.unpacked.open("a", encoding="utf-8") as script:
                # A script of `pg_restore` leaves no schema to look for tables in.
                script.write(f"SET search_path = public;\n{bound};\n")
            return
        with closing(sqlite3.connect(self.unpacked)) as opened, opened:
            try:
                opened.execute(str(bound))
            except sqlite3.DatabaseError as error:
                raise FarmError(f"the backup cannot be changed: {error}") from error

    def put_in_place(self, kept: Path) -> None:
        """Make it the database: wholly, or an error leaves the database as it was.

        SQLite's former file is `kept`. Raises `FarmError`, also where another process has the database open.
        """
        database = self.database
        if database.is_postgresql:
            tables = inspect(database.engine).get_table_names()
            postgres_programs.replace_all(database.engine.url, tables, self.unpacked)
            return
        assert database.path is not None
        # SQLite leaves WAL only where nobody else has the file open, this process included.
        database.close()
        if database.path.exists():
            _close_wal(database.path)
            # A link, not a rename: the database's name leads to a whole file at every moment.
            kept.hardlink_to(database.path)
        put_in_place(self.unpacked, database.path)

    def _rows_of_file(self, table: str) -> Iterator[Row]:
        with closing(sqlite3.connect(self.unpacked)) as opened:
            opened.row_factory = sqlite3.Row
            try:
                yield from map(dict, opened.execute(f'SELECT * FROM "{table}"'))  # noqa: S608  # ours
            except sqlite3.DatabaseError as error:
                raise FarmError(f"the backup's table {table} cannot be read: {error}") from error

    def _rows_of_script(self, table: str) -> Iterator[Row]:
        columns: list[str] | None = None
        with self.unpacked.open(encoding="utf-8") as lines:
            for line in lines:
                if columns is None:
                    if line.startswith(begin := _COPY.format(table=table)):
                        columns = line[len(begin) : line.index(")")].split(", ")
                    continue
                # A backslash and a dot end the rows of a table.
                if line == "\\.\n":
                    return
                fields = line.removesuffix("\n").split("\t")
                yield {name: None if f == "\\N" else f for name, f in zip(columns, fields, strict=True)}


@contextmanager
def unpacked(database: Database, copy: Path) -> Iterator[Copy]:
    """Unpack a copy of such a database beside it. Raises `FarmError` where it is none, or damaged."""
    # Beside the database: a rename works only within one file system.
    with TemporaryDirectory(prefix=".restore-", dir=database.path and database.path.parent) as folder:
        made = Copy(database, Path(folder, "copy"))
        try:
            if database.is_postgresql:
                postgres_programs.unpack(copy, made.unpacked)
            else:
                copyfile(copy, made.unpacked)
                # It keeps this mode as the database, which its user alone may read.
                made.unpacked.chmod(0o600)
                with closing(sqlite3.connect(made.unpacked)) as opened:
                    found = opened.execute("PRAGMA quick_check(1)").fetchone()[0]
                if found != "ok":
                    raise FarmError(f"{copy} is damaged: {found}")
        except OSError as error:
            raise FarmError(f"{copy} cannot be read: {error.strerror}") from error
        except sqlite3.DatabaseError as error:
            raise FarmError(f"{copy} is no backup of an SQLite database: {error}") from error
        yield made


def _close_wal(path: Path) -> None:
    """Write what SQLite keeps beside a file into it, and remove that; of a damaged file, just remove it."""
    try:
        with closing(sqlite3.connect(path, timeout=_PATIENCE_S)) as opened:
            opened.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        raise FarmError(f"{path} is in use by another process; end it, and try again") from error
    except sqlite3.DatabaseError:
        for end in _WAL_FILES:
            path.with_name(path.name + end).unlink(missing_ok=True)
