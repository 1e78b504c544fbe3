"""The rows that one transaction works on: locked and loaded many at a time, then found without a query.

Code that needs a row asks here. Where nobody loaded it before, it is loaded (and locked) now; so a
transaction over hundreds of messages takes a handful of statements, and one over a single message is correct
by the same code. What has to be said once per transaction is deferred to its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sqlalchemy import insert, inspect
from sqlmodel import Session, SQLModel, col, select

from orchestrator.db import tables

Row = TypeVar("Row", bound=SQLModel)

_ROWS, _HISTORY, _DEFERRED = "workset_rows", "workset_history", "workset_deferred"
_GATHERED = "workset_gathered"
_CHUNK = 500


def load(session: Session, model: type[Row], keys: Iterable[Any], *, lock: bool = True) -> None:
    """Load rows and, with `lock`, hold them for this transaction, in the order of their keys; what is not
    there is known, too.
    """
    kept = _kept(session)
    wanted = sorted({key for key in keys if (model, key) not in kept})
    (primary,) = inspect(model).primary_key
    for start in range(0, len(wanted), _CHUNK):
        chunk = wanted[start : start + _CHUNK]
        query = select(model).where(primary.in_(chunk)).order_by(primary)
        if lock:
            query = query.with_for_update()
        found = session.exec(query.execution_options(populate_existing=True)).all()
        by_key = {getattr(row, primary.key): row for row in found}
        kept.update({(model, key): by_key.get(key) for key in chunk})


def get(session: Session, model: type[Row], key: Any, *, lock: bool = False) -> Row | None:
    """A row, or None. `lock`: for as long as the transaction lasts, if it was not loaded before."""
    kept = _kept(session)
    if (model, key) not in kept:
        kept[model, key] = session.get(model, key, with_for_update=True if lock else None)
    found: Row | None = kept[model, key]
    return found


def get_one(session: Session, model: type[Row], key: Any, *, lock: bool = False) -> Row:
    """A row that must be there. Raises `LookupError`."""
    found = get(session, model, key, lock=lock)
    if found is None:
        raise LookupError(f"no {model.__name__} {key!r}")
    return found


def put(session: Session, model: type[Row], key: Any, row: Row) -> None:
    """Add a new row; who asks for it later in this transaction finds it."""
    session.add(row)
    _kept(session)[model, key] = row


def load_history(session: Session, cell_ids: Iterable[str]) -> None:
    """Every attempt at these cells."""
    known: dict[str, list[tables.Attempt]] = session.info.setdefault(_HISTORY, {})
    wanted = sorted({cell_id for cell_id in cell_ids if cell_id not in known})
    for start in range(0, len(wanted), _CHUNK):
        chunk = wanted[start : start + _CHUNK]
        grouped: dict[str, list[tables.Attempt]] = defaultdict(list)
        for row in session.exec(select(tables.Attempt).where(col(tables.Attempt.cell_id).in_(chunk))):
            grouped[row.cell_id].append(row)
        known.update({cell_id: grouped[cell_id] for cell_id in chunk})


def history(session: Session, cell_id: str) -> list[tables.Attempt]:
    """Every attempt at a cell, oldest first; the list takes new ones."""
    load_history(session, [cell_id])
    found: list[tables.Attempt] = session.info[_HISTORY][cell_id]
    found.sort(key=lambda row: row.attempt_no)
    return found


def defer(session: Session, key: tuple[str, Any], action: Callable[[Session], None]) -> None:
    """Do something at the end of the transaction, once per key; the last one said is done."""
    session.info.setdefault(_DEFERRED, {})[key] = action


def gather(session: Session, table: type[SQLModel], rows: Iterable[dict[str, Any]]) -> None:
    """Insert these rows of a table that nobody looks at in this transaction, all at its end."""
    waiting: list[dict[str, Any]] = session.info.setdefault((_GATHERED, table), [])
    waiting.extend(rows)
    if waiting:
        defer(session, (_GATHERED, table), lambda session: _insert(session, table))


def _insert(session: Session, table: type[SQLModel]) -> None:
    rows = session.info.pop((_GATHERED, table))
    session.connection().execute(insert(table), rows)


def settle(session: Session) -> None:
    """Write everything out, then do what was deferred."""
    session.flush()
    deferred = session.info.pop(_DEFERRED, {})
    for action in deferred.values():
        action(session)


def _kept(session: Session) -> dict[tuple[type[SQLModel], Any], Any]:
    kept: dict[tuple[type[SQLModel], Any], Any] = session.info.setdefault(_ROWS, {})
    return kept
