"""One write transaction as a unit of work: the rows that it holds, and the writes that it defers to its end.

Rows are looked up by key. Code that works on many rows loads them before, many at a time; any other row is
loaded when it is looked up. So a transaction over hundreds of messages takes a handful of statements, and
the same code is correct for a single message.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlmodel import Session, SQLModel, col, select

from orchestrator.db import tables
from orchestrator.db.tables import Attempt, Campaign, Cell, Device, Environment, Model, Result
from orchestrator.results.events import Fact

Row = TypeVar("Row", bound=SQLModel)

_CHUNK: Final = 500
"""The most keys in one statement. Chosen: one statement for the usual turn, and far below the
32,766 parameters that SQLite takes.
"""

_TRIES: Final = (
    select(sa.func.count())
    .where(col(Attempt.cell_id) == Cell.cell_id)
    .correlate(tables.Cell)
    .scalar_subquery()
)
_NAMES: Final[sa.BindParameter[Any]] = sa.bindparam("names", expanding=True)

# Both statements lock in the order of their keys: two transactions then never wait for each other's rows.
# Made once: SQLAlchemy takes longer to build and compile such a statement than PostgreSQL to answer it.
_ATTEMPTS: Final[Any] = (
    select(Attempt, Cell, Device, Campaign)
    .add_columns(Result, _TRIES)
    .join(Cell, col(Cell.cell_id) == Attempt.cell_id)
    .join(Device, col(Device.device_id) == Attempt.device_id)
    .join(Campaign, col(Campaign.no) == Cell.campaign_no)
    .outerjoin(Result, col(Result.attempt_id) == Attempt.attempt_id)
    .where(col(Attempt.attempt_id).in_(_NAMES))
    .order_by(col(Attempt.attempt_id))
    .with_for_update(of=[Attempt, Cell, Device])
)
_CELLS: Final = (
    select(Cell, Campaign, Model, _TRIES)
    .join(Campaign, col(Campaign.no) == Cell.campaign_no)
    .join(Model, col(Model.sha256) == Cell.model_sha256)
    .where(col(Cell.cell_id).in_(_NAMES))
    .order_by(col(Cell.cell_id))
    .with_for_update(of=[Cell])
)


def _charge_statement() -> sa.Update:
    """Add in the database: a sum made here would need every turn to lock the campaign's row."""
    campaign = tables.metadata.tables["campaign"]
    return (
        sa.update(campaign)
        .where(campaign.c.no == sa.bindparam("number"))
        .values(
            served_s=campaign.c.served_s + sa.bindparam("seconds", type_=sa.Float),
            served_at=sa.func.coalesce(sa.bindparam("at", type_=tables.UtcDateTime), campaign.c.served_at),
        )
    )


def _charge_user_statement() -> sa.Update:
    """Build the statement that adds seconds to every unfinished campaign of the user who submitted one."""
    campaign = tables.metadata.tables["campaign"]
    own = campaign.alias("own")
    submitter = select(own.c.submitted_by).where(own.c.no == sa.bindparam("number")).scalar_subquery()
    return (
        sa.update(campaign)
        .where(campaign.c.ended_at.is_(None), campaign.c.submitted_by == submitter)
        .values(user_served_s=campaign.c.user_served_s + sa.bindparam("seconds", type_=sa.Float))
    )


_CHARGE: Final = _charge_statement()
_CHARGE_USER: Final = _charge_user_statement()


@dataclass(frozen=True, slots=True)
class AttemptRows:
    """The rows that the end of an attempt concerns. `environment`: the device's. `tries`: every attempt at
    its cell, oldest first. `blamed_cell_id`: the cell that a fault of the device is counted for, which is
    that of the first attempt of its runner.
    """

    attempt: Attempt
    cell: Cell
    device: Device
    environment: Environment
    campaign: Campaign
    result: Result | None
    tries: list[Attempt]
    blamed_cell_id: str


class Turn(Session):
    """A session that writes and keeps the rows that it has loaded.

    Attempts, cells and devices are locked when they are loaded, for as long as the transaction lasts;
    campaigns, models, results and environments are not locked.
    """

    def __init__(self, connection: sa.Connection) -> None:
        """Only `Database.write` makes turns."""
        super().__init__(connection)
        self._rows: dict[tuple[type[SQLModel], Any], Any] = {}
        self._history: dict[str, list[Attempt]] = {}
        self._inserts: dict[type[SQLModel], list[Mapping[str, Any]]] = defaultdict(list)
        self._charges: dict[int, tuple[float, datetime | None]] = {}
        self._at_end: dict[Hashable, Callable[[], None]] = {}
        self.facts: list[Fact] = []

    def attempt(self, attempt_id: str) -> Attempt:
        """Return an attempt that must exist. Raises `LookupError`."""
        return _required(self.find_attempt(attempt_id), "attempt", attempt_id)

    def find_attempt(self, attempt_id: str) -> Attempt | None:
        """Return an attempt, or None."""
        return self._find(Attempt, attempt_id, lock=True)

    def find_attempt_rows(self, attempt_id: str) -> AttemptRows | None:
        """Return an attempt with all that its end concerns, or None.

        Locked from here on: of two deliveries of one result, the second finds what the first has stored.
        """
        attempt = self.find_attempt(attempt_id)
        if attempt is None:
            return None
        cell, lead = self.cell(attempt.cell_id), attempt.lead_attempt_id
        device = self.device(attempt.device_id)
        return AttemptRows(
            attempt,
            cell,
            device,
            self.environment(device.environment_id),
            self.campaign(cell.campaign_no),
            self.find_result(attempt_id),
            self.history(cell.cell_id),
            cell.cell_id if lead is None else self.attempt(lead).cell_id,
        )

    def cell(self, cell_id: str) -> Cell:
        """Return a cell. Raises `LookupError`."""
        return _required(self._find(Cell, cell_id, lock=True), "cell", cell_id)

    def device(self, device_id: str) -> Device:
        """Return a device. Raises `LookupError`."""
        return _required(self._find(Device, device_id, lock=True), "device", device_id)

    def campaign(self, number: int) -> Campaign:
        """Return a campaign. Raises `LookupError`."""
        return _required(self._find(Campaign, number), "campaign", number)

    def model(self, sha256: str) -> Model:
        """Return a model. Raises `LookupError`."""
        return _required(self._find(Model, sha256), "model", sha256)

    def find_result(self, attempt_id: str) -> Result | None:
        """Return the result that an attempt delivered, or None."""
        return self._find(Result, attempt_id)

    def environment(self, environment_id: str) -> Environment:
        """Return an environment. Raises `LookupError`."""
        return _required(self.find_environment(environment_id), "environment", environment_id)

    def find_environment(self, environment_id: str) -> Environment | None:
        """Return an environment, or None."""
        return self._find(Environment, environment_id)

    def load_attempts(self, attempt_ids: Iterable[str]) -> None:
        """Load attempts with what ending them needs: cell, device, campaign, result, earlier attempts."""
        wanted = {name for name in attempt_ids if (Attempt, name) not in self._rows}
        for chunk in chunks(wanted):
            # Rows that the query does not find are remembered as missing, and not queried again.
            self._rows.update({(model, name): None for model in (Attempt, Result) for name in chunk})
            found: Any = self.exec(_ATTEMPTS, params={"names": chunk})
            for attempt, cell, device, campaign, result, tries in found:
                self._rows[Attempt, attempt.attempt_id] = attempt
                self._rows[Result, attempt.attempt_id] = result
                self._keep(cell, device, campaign)
                # It is its cell's only attempt: the history needs no query of its own.
                if tries == 1:
                    self._history[cell.cell_id] = [attempt]

    def load_cells(self, cell_ids: Iterable[str]) -> None:
        """Load cells that are about to start, each with its campaign, its model and its attempts."""
        wanted = set(cell_ids)
        for chunk in chunks(wanted):
            for cell, campaign, model, tries in self.exec(_CELLS, params={"names": chunk}):
                self._keep(cell, campaign, model)
                # Nothing to load; an attempt that this turn has added meanwhile stays.
                if tries == 0:
                    self._history.setdefault(cell.cell_id, [])
        self.load_history(wanted)

    def load_devices(self, device_ids: Iterable[str]) -> None:
        """Load devices, in the order of their ids."""
        wanted = {name for name in device_ids if (Device, name) not in self._rows}
        for chunk in chunks(wanted):
            query = select(Device).where(col(Device.device_id).in_(chunk)).order_by(col(Device.device_id))
            # A row that was read before it was locked may be old: the answer replaces the session's copy.
            locked = query.with_for_update().execution_options(populate_existing=True)
            found = {row.device_id: row for row in self.exec(locked)}
            self._rows.update({(Device, name): found.get(name) for name in chunk})

    def load_history(self, cell_ids: Iterable[str]) -> None:
        """Load every attempt at these cells."""
        for chunk in chunks({cell_id for cell_id in cell_ids if cell_id not in self._history}):
            grouped: dict[str, list[Attempt]] = defaultdict(list)
            for row in self.exec(select(Attempt).where(col(Attempt.cell_id).in_(chunk))):
                grouped[row.cell_id].append(row)
            self._history.update({cell_id: grouped[cell_id] for cell_id in chunk})

    def history(self, cell_id: str) -> list[Attempt]:
        """Every attempt at a cell, oldest first."""
        self.load_history([cell_id])
        return sorted(self._history[cell_id], key=lambda row: row.attempt_no)

    def add_attempt(self, attempt: Attempt) -> None:
        """Add a new attempt to its cell's history."""
        self.load_history([attempt.cell_id])
        self._history[attempt.cell_id].append(attempt)
        self.put(Attempt, attempt.attempt_id, attempt)

    def put(self, model: type[Row], key: Any, row: Row) -> None:
        """Add a new row; later look-ups in this transaction find it."""
        self.add(row)
        self._rows[model, key] = row

    def charge(self, campaign_no: int, seconds: float, served_at: datetime | None = None) -> None:
        """Add device-seconds to the shares of a campaign and of its submitter; negative ones return time that
        it did not need.

        `served_at`: when it was given a device. Written at the end, in two statements per campaign.
        """
        sum_s, last = self._charges.get(campaign_no, (0.0, None))
        self._charges[campaign_no] = (sum_s + seconds, served_at or last)

    def insert_at_end(self, table: type[SQLModel], rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert rows in one statement at the end; this transaction must not read their table."""
        self._inserts[table].extend(rows)

    def at_end(self, key: Hashable, action: Callable[[], None]) -> None:
        """Run an action at the end of the transaction; for each key, only the one that was given last.

        It may only write (see `write_only`): the answers arrive after all statements were sent.
        """
        self._at_end[key] = action

    def tell(self, fact: Fact) -> None:
        """Tell those who count what happens, once this transaction is committed."""
        self.facts.append(fact)

    def write_only(self, statement: sa.Update | sa.Delete, **values: object) -> None:
        """Change rows whose copies in this session are not read again."""
        self.connection().execute(statement, values)

    def settle(self) -> None:
        """Write the changed rows, then everything that was deferred to the end."""
        self.flush()
        for table, rows in self._inserts.items():
            if rows:
                # `inline`: the database does not send back the numbers of the rows, which nobody reads.
                self.connection().execute(sa.insert(table).inline(), rows)
        for number, (seconds, served_at) in self._charges.items():
            self.write_only(_CHARGE, number=number, seconds=seconds, at=served_at)
            self.write_only(_CHARGE_USER, number=number, seconds=seconds)
        for action in self._at_end.values():
            action()
        self._inserts.clear()
        self._charges.clear()
        self._at_end.clear()

    def _find(self, model: type[Row], key: Any, *, lock: bool = False) -> Row | None:
        if (model, key) not in self._rows:
            self._rows[model, key] = self.get(model, key, with_for_update=True if lock else None)
        found: Row | None = self._rows[model, key]
        return found

    def _keep(self, *rows: SQLModel) -> None:
        for row in rows:
            # The tables that are kept here have keys of one column.
            (key,) = sa.inspect(row).identity
            self._rows[type(row), key] = row


def _required(row: Row | None, what: str, key: object) -> Row:
    if row is None:
        raise LookupError(f"no {what} {key!r}")
    return row


def chunks(names: Iterable[str]) -> Iterator[list[str]]:
    """Yield the names, sorted, at most `_CHUNK` at a time."""
    ordered = sorted(names)
    return (ordered[start : start + _CHUNK] for start in range(0, len(ordered), _CHUNK))
