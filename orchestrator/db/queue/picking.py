"""Finds the few cells that could be next on some devices, and lets the policy choose among them.

One seek per unfinished campaign and line: the time does not grow with the number of cells.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row, select
from sqlmodel import Session

from orchestrator.db import tables
from orchestrator.db.engine.dialects import pipelined
from orchestrator.db.queue import candidate_queries
from orchestrator.db.queue.candidate_queries import fetch
from orchestrator.db.queue.class_pages import Page, load_page
from orchestrator.policy.assign import Assignment, DeviceSlot, Share, WaitingCell, assign, charge
from orchestrator.policy.blocks import kept_busy
from orchestrator.policy.reservation import Reservation, in_force, in_the_way
from orchestrator.policy.selectors import DeviceClass, DeviceLike, is_class, parse_line

_FEW: Final = 4
"""Up to how many devices each ask the line of a class for themselves; more devices share a page of it.
Chosen: most turns free one to four devices, for which single seeks are less work than a page; a sweep
over a whole lab asks for hundreds, and one page costs as much as a few seeks.
"""


def choose(session: Session, device_ids: Sequence[str], now: datetime) -> tuple[Assignment, ...]:
    """Choose the next cells for these devices; the policy decides among those that could be next.

    It decides host by host: exclusion groups never reach beyond a host, and what one host is given counts
    for the next one.
    """
    if not device_ids:
        return ()
    # The writes of this turn so far decide which devices are idle; sent in one round trip, not row by row.
    with pipelined(session):
        session.flush()
    hosts = _hosts(session, device_ids, now)
    asking = [slot.device_id for host in hosts for slot in host.idle]
    if not asking:
        return ()
    pick = _Pick(session, now, asking)
    pick.look_at_lines()
    return tuple(assignment for host in hosts for assignment in pick.fill(host))


def idle(session: Session) -> set[str]:
    """Return the present devices on which nothing runs: few while cells wait."""
    return {row.device_id for row in fetch(session, candidate_queries.IDLE)}


@dataclass(slots=True)
class _Host:
    """One agent's idle and present devices, the exclusion groups taken, and the reservations in force.

    `present`: the rows of the devices, by id, the idle ones among them.
    """

    idle: list[DeviceSlot] = field(default_factory=list)
    present: dict[str, Row[Any]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    reserved: list[Reservation] = field(default_factory=list)

    def keeps_from(self, device: Row[Any], row: Row[Any]) -> bool:
        """Whether somebody else's reservation keeps this cell from a device."""
        if not self.reserved:
            return False
        group = kept_busy(device, list(self.present.values()), row.baseline_kind)
        return in_the_way(self.reserved, group, row.submitted_by) is not None


@dataclass(slots=True)
class _Pick:
    """One choice: the cells that were found, those that were given, and the growing shares.

    `pools`: the classes for which a cell waits.
    """

    session: Session
    now: datetime
    asking: Sequence[str]
    pools: list[DeviceClass] = field(default_factory=list)
    shares: dict[int, Share] = field(default_factory=dict)
    own: dict[str, list[Row[Any]]] = field(default_factory=lambda: defaultdict(list))
    given: set[str] = field(default_factory=set)
    pages: dict[str, Page] = field(default_factory=dict)

    def look_at_lines(self) -> None:
        """Find the first cells in the lines of the asking devices, and the classes with waiting cells."""
        waiting = set()
        for row in fetch(self.session, candidate_queries.FIRST_IN_LINES, devices=self.asking, now=self.now):
            if is_class(row.line):
                waiting.add(row.line)
            else:
                self.own[row.line].append(row)
        self.pools += map(parse_line, sorted(waiting))

    def fill(self, host: _Host) -> Iterator[Assignment]:
        """Give a host's devices cells until no device takes one."""
        idle, taken = host.idle, set(host.taken)
        while idle:
            cells, classes = self._candidates(idle, host)
            chosen = assign(cells.values(), idle, self.now.timestamp(), taken=taken, shares=self.shares)
            yield from chosen
            # Only classes may have more cells than were fetched: a device's own line gave its first cells at
            # once.
            busy = {assignment.device_id for assignment in chosen}
            slots = {slot.device_id: slot for slot in idle}
            taken |= {cells[given.cell_id].group_on(slots[given.device_id]) for given in chosen}
            idle = [slot for slot in idle if slot.device_id not in busy] if classes and chosen else []
            for assignment in chosen:
                self._charge(cells[assignment.cell_id])

    def _charge(self, cell: WaitingCell) -> None:
        """Count a cell as given: the next host must see the share that its campaign has by now."""
        self.given.add(cell.cell_id)
        charge(self.shares, cell, self.now.timestamp())

    def _candidates(self, idle: Sequence[DeviceSlot], host: _Host) -> tuple[dict[str, WaitingCell], bool]:
        """Return the cells that could be next on these devices, and whether some of them wait for a class."""
        present = list(host.present.values())
        found: dict[str, Row[Any]] = {}
        devices: dict[str, set[str]] = defaultdict(set)
        classes = False
        asking = [host.present[slot.device_id] for slot in idle]
        for device in asking:
            # A copy, to which the cells of classes are added.
            rows = list(self.own[device.device_id])
            for pool in self.pools:
                if pool.takes(device):
                    classes = True
                    rows += self._first_of_class(pool.line, device.device_id)
            for row in rows:
                if not host.keeps_from(device, row):
                    found[row.cell_id] = row
                    devices[row.cell_id].add(device.device_id)
        for row in found.values():
            # A share that is known has grown by what was given in this choice; the row has not.
            self.shares.setdefault(row.campaign_no, share_of(row))
        busy = {
            name: {
                device.device_id: kept_busy(device, present, row.baseline_kind)
                for device in asking
                if row.baseline_kind is not None and device.device_id in devices[name]
            }
            for name, row in found.items()
        }
        cells = {
            name: WaitingCell(
                name, frozenset(devices[name]), row.rank, row.campaign_no, row.position,
                expected_s=row.expected_s, health=row.purpose == tables.HEALTH,
                groups=busy[name],
            )
            for name, row in found.items()
        }  # fmt: skip
        return cells, classes

    def _first_of_class(self, line: str, device_id: str) -> Sequence[Row[Any]]:
        """Return the first cell of each campaign in a class's line that this device may take."""
        if len(self.asking) <= _FEW:
            return self._ask_class(line, device_id)
        page = self.pages.get(line) or load_page(self.session, line, self.asking, self.now)
        first = page.first_for(device_id, self.given)
        if not page.cut <= first.keys():
            # A campaign has cells beyond the page, and none on it fits: only the database knows more.
            more = load_page(self.session, line, self.asking, self.now, device_id, self.given)
            page = page.joined(more)
            first = page.first_for(device_id, self.given)
        self.pages[line] = page
        return list(first.values())

    def _ask_class(self, line: str, device_id: str) -> Sequence[Row[Any]]:
        return fetch(
            self.session, candidate_queries.FIRST_OF_CLASS, line=line, device=device_id,
            given=sorted(self.given), now=self.now, long_ago=self.now - candidate_queries.OTHER_UNIT,
        )  # fmt: skip


def members(session: Session, devices: Sequence[DeviceLike]) -> dict[str, frozenset[str]]:
    """Return the line of each class for which a cell ever waited, with those of these devices in it."""
    classes = [parse_line(row.line) for row in fetch(session, select(candidate_queries.pool.c.line))]
    return {
        class_.line: frozenset(device.device_id for device in devices if class_.takes(device))
        for class_ in classes
    }


def share_of(campaign: Any) -> Share:
    """Build a campaign's share from a row with its columns."""
    waits_since = max(filter(None, (campaign.submitted_at, campaign.served_at)))
    return Share(campaign.served_s, waits_since.timestamp(), campaign.submitted_by, campaign.user_served_s)


def _hosts(session: Session, device_ids: Sequence[str], now: datetime) -> list[_Host]:
    """Return the hosts of these devices with their idle devices and all cells running there."""
    wanted = set(device_ids)
    hosts: dict[str, _Host] = defaultdict(_Host)
    rows = fetch(session, candidate_queries.HOSTS, devices=device_ids)
    # Of all rows first: what runs on one device may keep another one of its group busy.
    for row in rows:
        if row.runs is not None:
            hosts[row.agent_id].taken.add(row.runs)
    for row in rows:
        host = hosts[row.agent_id]
        host.reserved += in_force([row], now)
        if row.present:
            host.present[row.device_id] = row
        rests = row.rests_until is not None and row.rests_until > now
        free = row.runs is None and row.exclusion_group not in host.taken
        if row.device_id in wanted and row.present and not rests and free:
            quarantined = row.quarantined_at is not None
            host.idle.append(DeviceSlot(row.device_id, row.exclusion_group, quarantined=quarantined))
    return list(hosts.values())
