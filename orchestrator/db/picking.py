"""The rows behind the policy: for some devices, the few cells that could be next, by index alone.

One seek per unfinished campaign and line: the time does not grow with the number of cells.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, exists, literal, not_, or_, select, text, union_all
from sqlmodel import Session

from orchestrator.db import tables
from orchestrator.lifecycle import AttemptState
from orchestrator.scheduler import Assignment, DeviceSlot, Share, WaitingCell, assign
from orchestrator.selectors import DeviceClass, DeviceLike, parse_line

OTHER_UNIT_S: Final = 60.0
"""How long a cell of a class that failed on a device waits for another unit before it goes there again."""

_attempt, _campaign, _cell, _device, _pool = (
    tables.metadata.tables[name] for name in ("attempt", "campaign", "cell", "device", "pool")
)
_candidate = _cell.alias("candidate")
_sibling = _cell.alias("sibling")
_tried = _attempt.alias("tried")
_COLUMNS = (
    _cell.c.cell_id, _cell.c.line, _cell.c.rank, _cell.c.campaign_no, _cell.c.position, _cell.c.expected_s,
    _campaign.c.served_s, _campaign.c.served_at, _campaign.c.submitted_at, _campaign.c.purpose,
    _cell.c.siblings, _cell.c.not_before,
)  # fmt: skip
_FEW: Final = 4
"""So many devices ask the line of a class one by one; more share a page of it."""
_SPARE: Final = 16


@dataclass(frozen=True, slots=True)
class _Idle:
    """A device as the policy needs it, with what selectors look at."""

    device_id: str
    agent_id: str
    kind: str
    name: str
    vendor: str
    labels: Mapping[str, str]
    delegates: Sequence[str]
    slot: DeviceSlot


def choose(session: Session, device_ids: Sequence[str], now: datetime) -> tuple[Assignment, ...]:
    """The next cells for these devices, as the policy decides among those that could be next.

    Host by host, for nothing on one excludes anything on another; what one is given counts for the next.
    """
    if not device_ids:
        return ()
    session.flush()
    hosts = _hosts(session, device_ids, now)
    asking = [device.device_id for host in hosts for device in host.idle]
    if not asking:
        return ()
    pick = _Pick(session, now, _waiting_pools(session), asking)
    pick.take_own_lines(asking)
    return tuple(assignment for host in hosts for assignment in pick.fill(host))


@dataclass(slots=True)
class _Host:
    """The idle devices of one agent, and the exclusion groups that are taken there."""

    idle: list[_Idle]
    taken: set[str]


@dataclass(slots=True)
class _Pick:
    """One choice: what was found, what was given away, and the shares as they grow by it."""

    session: Session
    now: datetime
    pools: Sequence[DeviceClass]
    asking: Sequence[str]
    shares: dict[int, Share] = field(default_factory=dict)
    own: dict[str, list[Row[Any]]] = field(default_factory=lambda: defaultdict(list))
    given: set[str] = field(default_factory=set)
    pages: dict[str, _Page] = field(default_factory=dict)

    def take_own_lines(self, device_ids: Sequence[str]) -> None:
        """Look at the lines of these devices, all in one question."""
        chosen = _line_up(_device.c.device_id, self.now).where(_candidate.c.campaign_no == _campaign.c.no)
        first = chosen.limit(1).correlate(_campaign, _device).scalar_subquery()
        query = (
            select(*_COLUMNS)
            .select_from(_device.join(_campaign, _device.c.device_id.in_(device_ids)))
            .join(_cell, _cell.c.cell_id == first)
            .where(*startable())
        )
        for row in _rows(self.session, query):
            self.own[row.line].append(row)

    def fill(self, host: _Host) -> Iterator[Assignment]:
        """Give a host's devices cells until none is left that takes one."""
        idle, taken = host.idle, set(host.taken)
        while idle:
            cells, classes = self._candidates(idle)
            chosen = assign(
                cells.values(),
                [device.slot for device in idle],
                self.now.timestamp(),
                taken=taken,
                shares=self.shares,
            )
            yield from chosen
            busy = {assignment.device_id for assignment in chosen}
            taken |= {device.slot.exclusion_group for device in idle if device.device_id in busy}
            idle = [device for device in idle if device.device_id not in busy] if classes and chosen else []
            for assignment in chosen:
                self._charge(cells[assignment.cell_id])

    def _charge(self, cell: WaitingCell) -> None:
        self.given.add(cell.cell_id)
        served_s = self.shares[cell.campaign_no].served_s + cell.expected_s
        self.shares[cell.campaign_no] = Share(served_s, self.now.timestamp())

    def _candidates(self, idle: Sequence[_Idle]) -> tuple[dict[str, WaitingCell], bool]:
        """The cells that could be next on these devices, and whether some of them wait for a class."""
        found: dict[str, Row[Any]] = {}
        devices: dict[str, set[str]] = defaultdict(set)
        classes = False
        for device in idle:
            rows = list(self.own[device.device_id])
            for pool in self.pools:
                if pool.takes(device):
                    classes = True
                    rows += self._first_of_class(pool.line, device.device_id)
            for row in rows:
                found[row.cell_id] = row
                devices[row.cell_id].add(device.device_id)
        for row in found.values():
            self.shares.setdefault(row.campaign_no, share_of(row))
        cells = {
            name: WaitingCell(
                name, frozenset(devices[name]), row.rank, row.campaign_no, row.position,
                expected_s=row.expected_s, health=row.purpose == tables.HEALTH,
            )
            for name, row in found.items()
        }  # fmt: skip
        return cells, classes

    def _first_of_class(self, line: str, device_id: str) -> Sequence[Row[Any]]:
        """The first cell of each campaign in a class's line that this device may take."""
        if len(self.asking) <= _FEW:
            return self._ask_class(line, device_id)
        page = self.pages.get(line) or _page(self.session, line, self.asking, self.now)
        first = page.first_for(device_id, self.given)
        if not page.cut <= first.keys():
            page = page.joined(_page(self.session, line, self.asking, self.now, device_id, self.given))
            first = page.first_for(device_id, self.given)
        self.pages[line] = page
        return list(first.values())

    def _ask_class(self, line: str, device_id: str) -> Sequence[Row[Any]]:
        c = _candidate.c
        line_up = _line_up(literal(line), self.now).where(c.campaign_no == _campaign.c.no)
        line_up = line_up.where(*_of_class(device_id, self.now))
        if self.given:
            line_up = line_up.where(c.cell_id.not_in(sorted(self.given)))
        first = line_up.limit(1).correlate(_campaign).scalar_subquery()
        query = select(*_COLUMNS).select_from(_campaign).join(_cell, _cell.c.cell_id == first)
        return _rows(self.session, query.where(*startable()))


@dataclass(frozen=True, slots=True)
class _Page:
    """The beginning of a class's line, campaign by campaign. `cut`: campaigns with more cells than are here;
    `used`: (siblings, device) and `failed`: (cell, device) that do not go together now.
    """

    rows: Sequence[Row[Any]]
    cut: frozenset[int]
    used: frozenset[tuple[str, str]]
    failed: frozenset[tuple[str, str]]

    def first_for(self, device_id: str, given: set[str]) -> dict[int, Row[Any]]:
        """The first cell of each campaign that this device may take; where `cut`, one may be beyond."""
        first: dict[int, Row[Any]] = {}
        for row in self.rows:
            if row.campaign_no in first or row.cell_id in given or (row.siblings, device_id) in self.used:
                continue
            if (row.cell_id, device_id) not in self.failed:
                first[row.campaign_no] = row
        return first

    def joined(self, more: _Page) -> _Page:
        """This page and what comes after it."""
        rows = [*self.rows, *more.rows]
        return _Page(rows, self.cut | more.cut, self.used | more.used, self.failed | more.failed)


def _page(
    session: Session,
    line: str,
    asking: Sequence[str],
    now: datetime,
    device_id: str | None = None,
    given: Collection[str] = (),
) -> _Page:
    """As many cells of each campaign as there are devices that ask, and a few more; with `device_id`, of
    those that it may take and that are not `given`.
    """
    size = len(asking) + _SPARE
    waits = exists().where(
        _candidate.c.campaign_no == _campaign.c.no,
        _candidate.c.line == line,
        indexed("candidate.state = 'queued'"),
    )
    query = select(_campaign.c.no).where(*startable(), waits.correlate(_campaign))
    numbers = [row.no for row in _rows(session, query)]
    if not numbers:
        return _Page((), frozenset(), frozenset(), frozenset())
    line_up = _line_up(literal(line), now).limit(size)
    if device_id is not None:
        line_up = line_up.where(_candidate.c.cell_id.not_in(sorted(given)), *_of_class(device_id, now))
    parts = [line_up.where(_candidate.c.campaign_no == number).subquery() for number in numbers]
    chosen = select(*_COLUMNS).join_from(_cell, _campaign, _campaign.c.no == _cell.c.campaign_no)
    chosen = chosen.where(_cell.c.cell_id.in_(union_all(*(select(part.c.cell_id) for part in parts))))
    rows = _rows(session, chosen.order_by(_cell.c.campaign_no, _cell.c.rank, _cell.c.position))
    counts = Counter(row.campaign_no for row in rows)
    return _Page(
        rows,
        frozenset(no for no, count in counts.items() if count >= size),
        _used(session, {row.siblings for row in rows}, asking),
        _failed(session, [row for row in rows if not _long_ago(row.not_before, now)], asking),
    )


def _used(session: Session, siblings: set[str], asking: Sequence[str]) -> frozenset[tuple[str, str]]:
    c = _cell.c
    query = select(c.siblings, c.device_id).where(c.siblings.in_(sorted(siblings)), c.device_id.in_(asking))
    return frozenset((row.siblings, row.device_id) for row in _rows(session, query))


def _failed(session: Session, rows: Sequence[Row[Any]], asking: Sequence[str]) -> frozenset[tuple[str, str]]:
    c = _attempt.c
    query = select(c.cell_id, c.device_id).where(
        c.cell_id.in_([row.cell_id for row in rows]),
        c.device_id.in_(asking),
        c.state == AttemptState.FAILED.value,
    )
    return frozenset((row.cell_id, row.device_id) for row in _rows(session, query))


def _long_ago(not_before: datetime | None, now: datetime) -> bool:
    return not_before is not None and not_before <= now - timedelta(seconds=OTHER_UNIT_S)


def lines_of(session: Session, device: DeviceLike) -> list[str]:
    """The lines that a device serves: its own, and those of the classes that it belongs to."""
    return [device.device_id, *(pool.line for pool in _pools(session) if pool.takes(device))]


def share_of(campaign: Any) -> Share:
    """A campaign's share, from a row with its columns."""
    waits_since = max(filter(None, (campaign.submitted_at, campaign.served_at)))
    return Share(campaign.served_s, waits_since.timestamp())


def startable() -> tuple[ColumnElement[bool], ...]:
    """Campaigns of which something may start: unfinished, and neither parked, paused nor cancelled."""
    return (
        indexed("campaign.ended_at IS NULL"),
        not_(_campaign.c.parked),
        _campaign.c.paused_at.is_(None),
        _campaign.c.cancel_asked_at.is_(None),
    )


def indexed(condition: str) -> Any:
    """As the partial indexes say it: a bound parameter would keep an engine from using them."""
    return text(condition)


def _rows(session: Session, query: Select[Any]) -> Sequence[Row[Any]]:
    return session.connection().execute(query).all()


def _devices(session: Session, device_ids: Sequence[str]) -> list[_Idle]:
    c = _device.c
    query = select(
        c.device_id, c.agent_id, c.kind, c.name, c.vendor, c.labels, c.delegates, c.exclusion_group,
        c.rests_until, c.quarantined_at,
    ).where(c.device_id.in_(device_ids), c.present)  # fmt: skip
    return [
        _Idle(
            row.device_id, row.agent_id, row.kind, row.name, row.vendor, row.labels, row.delegates,
            DeviceSlot(
                row.device_id,
                row.exclusion_group,
                row.rests_until.timestamp() if row.rests_until else 0.0,
                quarantined=row.quarantined_at is not None,
            ),
        )
        for row in _rows(session, query)
    ]  # fmt: skip


def _hosts(session: Session, device_ids: Sequence[str], now: datetime) -> list[_Host]:
    hosts: dict[str, _Host] = {}
    found = _devices(session, device_ids)
    for row in _rows(session, _live({device.agent_id for device in found})):
        hosts.setdefault(row.agent_id, _Host([], set())).taken.add(row.exclusion_group)
    for device in found:
        host = hosts.setdefault(device.agent_id, _Host([], set()))
        if device.slot.exclusion_group not in host.taken and device.slot.rests_until_s <= now.timestamp():
            host.idle.append(device)
    return list(hosts.values())


def _live(agent_ids: Iterable[str]) -> Select[Any]:
    """Exclusion groups of the attempts under way on these agents' hosts."""
    return (
        select(_device.c.agent_id, _attempt.c.exclusion_group)
        .join(_device, _device.c.device_id == _attempt.c.device_id)
        .where(indexed("attempt.state IN ('dispatched', 'running')"))
        .where(_device.c.agent_id.in_(sorted(agent_ids)))
    )


def _pools(session: Session) -> list[DeviceClass]:
    return [parse_line(row.line) for row in _rows(session, select(_pool.c.line).order_by(_pool.c.line))]


def _waiting_pools(session: Session) -> list[DeviceClass]:
    """The classes for which a cell waits."""
    waits = exists().where(
        indexed("campaign.ended_at IS NULL"),
        _candidate.c.campaign_no == _campaign.c.no,
        _candidate.c.line == _pool.c.line,
        indexed("candidate.state = 'queued'"),
    )
    query = select(_pool.c.line).where(waits.correlate(_pool)).order_by(_pool.c.line)
    return [parse_line(row.line) for row in _rows(session, query)]


def _line_up(line: Any, now: datetime) -> Select[Any]:
    """Ids of the cells in a line that may start now, in the order of their campaigns."""
    c = _candidate.c
    return (
        select(c.cell_id)
        .where(
            indexed("candidate.state = 'queued'"),
            c.line == line,
            or_(c.not_before.is_(None), c.not_before <= now),
        )
        .order_by(c.rank, c.position)
    )


def _of_class(device_id: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    """No sibling has this device, and a cell that failed here prefers another unit for a while."""
    c = _candidate.c
    used = exists().where(
        _sibling.c.siblings == c.siblings, _sibling.c.device_id == device_id, _sibling.c.cell_id != c.cell_id
    )
    failed = exists().where(
        _tried.c.cell_id == c.cell_id,
        _tried.c.device_id == device_id,
        _tried.c.state == AttemptState.FAILED.value,
    )
    long_ago = c.not_before <= now - timedelta(seconds=OTHER_UNIT_S)
    return ~used.correlate(_candidate), or_(~failed.correlate(_candidate), long_ago)
