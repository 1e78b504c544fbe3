"""The rows behind the policy: for some devices, the few cells that could be next, by index alone.

One seek per unfinished campaign and line: the time does not grow with the number of cells.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, Select, literal, select, union_all
from sqlmodel import Session

from orchestrator.db import tables
from orchestrator.db.engine.dialects import pipelined
from orchestrator.db.queue import candidate_queries
from orchestrator.policy.assign import Assignment, DeviceSlot, Share, WaitingCell, assign
from orchestrator.policy.lifecycle import AttemptState
from orchestrator.policy.selectors import DeviceClass, DeviceLike, is_class, parse_line

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
    with pipelined(session):
        session.flush()
    hosts = _hosts(session, device_ids, now)
    asking = [device.device_id for host in hosts for device in host.idle]
    if not asking:
        return ()
    pick = _Pick(session, now, asking)
    pick.look_at_lines()
    return tuple(assignment for host in hosts for assignment in pick.fill(host))


def idle(session: Session) -> set[str]:
    """The present devices on which nothing runs: few, where there is work."""
    return {row.device_id for row in _rows(session, candidate_queries.IDLE)}


@dataclass(slots=True)
class _Host:
    """The idle devices of one agent, and the exclusion groups that are taken there."""

    idle: list[_Idle]
    taken: set[str]


@dataclass(slots=True)
class _Pick:
    """One choice: what was found, what was given away, and the shares as they grow by it.

    `pools`: the classes for which a cell waits.
    """

    session: Session
    now: datetime
    asking: Sequence[str]
    pools: list[DeviceClass] = field(default_factory=list)
    shares: dict[int, Share] = field(default_factory=dict)
    own: dict[str, list[Row[Any]]] = field(default_factory=lambda: defaultdict(list))
    given: set[str] = field(default_factory=set)
    pages: dict[str, _Page] = field(default_factory=dict)

    def look_at_lines(self) -> None:
        """See which cells are first in the lines of the asking devices, and for which classes some wait."""
        waiting = set()
        for row in _rows(self.session, candidate_queries.FIRST_IN_LINES, devices=self.asking, now=self.now):
            if is_class(row.line):
                waiting.add(row.line)
            else:
                self.own[row.line].append(row)
        self.pools += map(parse_line, sorted(waiting))

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
        return _rows(
            self.session, candidate_queries.FIRST_OF_CLASS, line=line, device=device_id,
            given=sorted(self.given), now=self.now, long_ago=self.now - candidate_queries.OTHER_UNIT,
        )  # fmt: skip


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
    query = select(candidate_queries.campaign.c.no).where(
        *candidate_queries.startable(), candidate_queries.waiting_in(line)
    )
    numbers = [row.no for row in _rows(session, query)]
    if not numbers:
        return _Page((), frozenset(), frozenset(), frozenset())
    in_order = candidate_queries.in_order(literal(line)).limit(size)
    if device_id is not None:
        in_order = in_order.where(
            candidate_queries.candidate.c.cell_id.not_in(sorted(given)), *candidate_queries.fits(device_id)
        )
    parts = [
        in_order.where(candidate_queries.candidate.c.campaign_no == number).subquery() for number in numbers
    ]
    cell, campaign = candidate_queries.cell, candidate_queries.campaign
    chosen = select(*candidate_queries.COLUMNS).join_from(cell, campaign, campaign.c.no == cell.c.campaign_no)
    chosen = chosen.where(cell.c.cell_id.in_(union_all(*(select(part.c.cell_id) for part in parts))))
    ordered = chosen.order_by(cell.c.campaign_no, cell.c.rank, cell.c.position)
    when = {"now": now} if device_id is None else {"now": now, "long_ago": now - candidate_queries.OTHER_UNIT}
    rows = _rows(session, ordered, **when)
    counts = Counter(row.campaign_no for row in rows)
    return _Page(
        rows,
        frozenset(no for no, count in counts.items() if count >= size),
        _used(session, {row.siblings for row in rows}, asking),
        _failed(session, [row for row in rows if not _long_ago(row.not_before, now)], asking),
    )


def _used(session: Session, siblings: set[str], asking: Sequence[str]) -> frozenset[tuple[str, str]]:
    c = candidate_queries.cell.c
    query = select(c.siblings, c.device_id).where(c.siblings.in_(sorted(siblings)), c.device_id.in_(asking))
    return frozenset((row.siblings, row.device_id) for row in _rows(session, query))


def _failed(session: Session, rows: Sequence[Row[Any]], asking: Sequence[str]) -> frozenset[tuple[str, str]]:
    c = candidate_queries.attempt.c
    query = select(c.cell_id, c.device_id).where(
        c.cell_id.in_([row.cell_id for row in rows]),
        c.device_id.in_(asking),
        c.state == AttemptState.FAILED.value,
    )
    return frozenset((row.cell_id, row.device_id) for row in _rows(session, query))


def _long_ago(not_before: datetime | None, now: datetime) -> bool:
    return not_before is not None and not_before <= now - candidate_queries.OTHER_UNIT


def lines_served_by(session: Session, device: DeviceLike) -> list[str]:
    """The lines that a device serves: its own, and those of the classes that it belongs to."""
    return [device.device_id, *(pool.line for pool in _pools(session) if pool.takes(device))]


def share_of(campaign: Any) -> Share:
    """A campaign's share, from a row with its columns."""
    waits_since = max(filter(None, (campaign.submitted_at, campaign.served_at)))
    return Share(campaign.served_s, waits_since.timestamp())


def _rows(session: Session, query: Select[Any], **values: object) -> Sequence[Row[Any]]:
    return session.connection().execute(query, values).all()


def _hosts(session: Session, device_ids: Sequence[str], now: datetime) -> list[_Host]:
    """The hosts of these devices: which of them are idle, and what runs there on any device."""
    wanted = set(device_ids)
    hosts: dict[str, _Host] = defaultdict(lambda: _Host([], set()))
    rows = _rows(session, candidate_queries.HOSTS, devices=device_ids)
    for row in rows:
        if row.runs is not None:
            hosts[row.agent_id].taken.add(row.runs)
    for row in rows:
        host = hosts[row.agent_id]
        rests = row.rests_until is not None and row.rests_until > now
        if row.device_id in wanted and row.present and not rests and row.exclusion_group not in host.taken:
            host.idle.append(_idle(row))
    return list(hosts.values())


def _idle(row: Row[Any]) -> _Idle:
    slot = DeviceSlot(
        row.device_id,
        row.exclusion_group,
        row.rests_until.timestamp() if row.rests_until else 0.0,
        quarantined=row.quarantined_at is not None,
    )
    return _Idle(
        row.device_id, row.agent_id, row.kind, row.name, row.vendor, row.labels, row.delegates, slot
    )  # fmt: skip


def _pools(session: Session) -> list[DeviceClass]:
    return [
        parse_line(row.line)
        for row in _rows(
            session, select(candidate_queries.pool.c.line).order_by(candidate_queries.pool.c.line)
        )
    ]
