"""The rows that one transaction works on: locked and loaded many at a time, then found without a query.

Code that needs a row asks here. Where nobody loaded it before, it is loaded (and locked) now; so a
transaction over hundreds of messages takes a handful of statements, and one over a single message is correct
by the same code. What has to be said once per transaction is deferred to its end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from sqlalchemy import BindParameter, Delete, Update, bindparam, func, insert, inspect
from sqlmodel import Session, SQLModel, col, select

from orchestrator.db import tables

Row = TypeVar("Row", bound=SQLModel)

_ROWS, _HISTORY, _DEFERRED = "workset_rows", "workset_history", "workset_deferred"
_GATHERED = "workset_gathered"
_CHUNK = 500
_TRIES = (
    select(func.count())
    .where(col(tables.Attempt.cell_id) == tables.Cell.cell_id)
    .correlate(tables.Cell)
    .scalar_subquery()
)
_NAMES: Final[BindParameter[Any]] = bindparam("names", expanding=True)
_ATTEMPTS: Final[Any] = (
    select(tables.Attempt, tables.Cell, tables.Device, tables.Campaign)
    .add_columns(tables.Result, _TRIES)
    .join(tables.Cell, col(tables.Cell.cell_id) == tables.Attempt.cell_id)
    .join(tables.Device, col(tables.Device.device_id) == tables.Attempt.device_id)
    .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
    .outerjoin(tables.Result, col(tables.Result.attempt_id) == tables.Attempt.attempt_id)
    .where(col(tables.Attempt.attempt_id).in_(_NAMES))
    .order_by(col(tables.Attempt.attempt_id))
    .with_for_update(of=[tables.Attempt, tables.Cell, tables.Device])
)
_CELLS: Final = (
    select(tables.Cell, tables.Campaign, tables.Model, _TRIES)
    .join(tables.Campaign, col(tables.Campaign.no) == tables.Cell.campaign_no)
    .join(tables.Model, col(tables.Model.sha256) == tables.Cell.model_sha256)
    .where(col(tables.Cell.cell_id).in_(_NAMES))
    .order_by(col(tables.Cell.cell_id))
    .with_for_update(of=[tables.Cell])
)


def load(session: Session, model: type[Row], keys: Iterable[Any]) -> None:
    """Load rows and hold them for this transaction, in the order of their keys; what is not there is known,
    too.
    """
    kept = _kept(session)
    wanted = sorted({key for key in keys if (model, key) not in kept})
    (primary,) = inspect(model).primary_key
    for start in range(0, len(wanted), _CHUNK):
        chunk = wanted[start : start + _CHUNK]
        query = select(model).where(primary.in_(chunk)).order_by(primary).with_for_update()
        found = session.exec(query.execution_options(populate_existing=True)).all()
        by_key = {getattr(row, primary.key): row for row in found}
        kept.update({(model, key): by_key.get(key) for key in chunk})


def load_attempts(session: Session, attempt_ids: Iterable[str]) -> None:
    """Attempts with everything that their ends are about: attempt, cell and device are held; campaign, result
    and the attempts before them are known.
    """
    kept = _kept(session)
    wanted = sorted({name for name in attempt_ids if (tables.Attempt, name) not in kept})
    for start in range(0, len(wanted), _CHUNK):
        chunk = wanted[start : start + _CHUNK]
        kept.update({(model, name): None for model in (tables.Attempt, tables.Result) for name in chunk})
        found: Any = session.exec(_ATTEMPTS, params={"names": chunk})
        for attempt, cell, device, campaign, result, tries in found:
            kept[tables.Attempt, attempt.attempt_id] = attempt
            kept[tables.Result, attempt.attempt_id] = result
            _keep(session, cell, device, campaign)
            if tries == 1:
                _histories(session)[cell.cell_id] = [attempt]


def load_cells(session: Session, cell_ids: Iterable[str]) -> None:
    """Cells that are about to begin: each is held, its campaign, its model and its attempts are known."""
    wanted = sorted(set(cell_ids))
    for start in range(0, len(wanted), _CHUNK):
        found = session.exec(_CELLS, params={"names": wanted[start : start + _CHUNK]})
        for cell, campaign, model, tries in found:
            _keep(session, cell, campaign, model)
            if tries == 0:
                _histories(session).setdefault(cell.cell_id, [])
    load_history(session, wanted)


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
    known = _histories(session)
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
    found = _histories(session)[cell_id]
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
    session.connection().execute(insert(table).inline(), rows)


def write_only(session: Session, statement: Update | Delete, **values: object) -> None:
    """Change rows at the end of a transaction, where nobody looks at this session's copies of them again."""
    session.connection().execute(statement, values)


def settle(session: Session) -> None:
    """Write everything out, then do what was deferred."""
    session.flush()
    deferred = session.info.pop(_DEFERRED, {})
    for action in deferred.values():
        action(session)


def _keep(session: Session, *rows: SQLModel) -> None:
    for row in rows:
        (key,) = inspect(row).identity
        _kept(session)[type(row), key] = row


def _histories(session: Session) -> dict[str, list[tables.Attempt]]:
    known: dict[str, list[tables.Attempt]] = session.info.setdefault(_HISTORY, {})
    return known


def _kept(session: Session) -> dict[tuple[type[SQLModel], Any], Any]:
    kept: dict[tuple[type[SQLModel], Any], Any] = session.info.setdefault(_ROWS, {})
    return kept
