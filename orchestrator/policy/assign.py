"""Assigns waiting cells to idle devices, as a pure function.

Binding is late: a cell gets its device only when the device is free, so priorities, shares, cancellation
and age are decided by the newest facts. Exclusion groups are paths: a group excludes itself, the groups
below it and those above it, so `host` (a CPU) runs alone while `host/gpu-0` and `host/gpu-1` may run side
by side.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

AGEING_S: Final = 3600.0
"""After how many seconds without a device a campaign gains one step of priority, until it gets one. Chosen:
an hour lets a campaign of high priority run undisturbed for a while; larger: one of low priority waits longer
behind it.
"""


@dataclass(frozen=True, slots=True)
class Share:
    """The device time that a campaign was given. `served_s`: device-seconds; `waits_since_s`: UTC seconds of
    its last assignment, or of its submission before the first. `user`: who submitted it; `user_served_s`:
    device-seconds that all campaigns of this user were given.
    """

    served_s: float = 0.0
    waits_since_s: float = 0.0
    user: str = ""
    user_served_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WaitingCell:
    """A queued cell. `devices`: those it may run on; `rank`: lower goes first (minus the priority);
    `campaign_no` grows with every submission; `position` is the cell's place in its campaign's matrix,
    where the cells of one model are neighbours. `not_before_s`: UTC seconds. `health`: the cell checks a
    device, and only such cells go to a device in quarantine. `groups`: by device, the exclusion group that
    the cell takes there, where that is more than the device's own.
    """

    cell_id: str
    devices: frozenset[str]
    rank: int
    campaign_no: int
    position: int
    not_before_s: float = 0.0
    expected_s: float = 0.0
    health: bool = False
    groups: Mapping[str, str] = field(default_factory=dict)

    def group_on(self, slot: "DeviceSlot") -> str:
        """Return the exclusion group that the cell takes on a device."""
        return self.groups.get(slot.device_id, slot.exclusion_group)


@dataclass(frozen=True, slots=True)
class DeviceSlot:
    """An idle device that could take a cell: none that cools down."""

    device_id: str
    exclusion_group: str
    quarantined: bool = False

    def takes(self, cell: WaitingCell) -> bool:
        """Whether the cell may run here at all."""
        return self.device_id in cell.devices and (cell.health or not self.quarantined)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The decision to run this cell on this device now."""

    cell_id: str
    device_id: str


class Occupancy:
    """The exclusion groups that are taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken: set[str] = set()
        self._above: set[str] = set()
        for group in taken:
            self.take(group)

    def take(self, group: str) -> None:
        """Mark a group as taken."""
        self._taken.add(group)
        self._above.update(_above(group))

    def free(self, group: str) -> bool:
        """Whether nothing that runs excludes the group."""
        # Not taken, nothing below it taken (then it is above that), and nothing above it.
        return group not in self._taken | self._above and self._taken.isdisjoint(_above(group))


def assign(
    waiting: Iterable[WaitingCell],
    devices: Iterable[DeviceSlot],
    now_s: float,
    *,
    taken: Iterable[str] = (),
    shares: Mapping[int, Share] | None = None,
) -> tuple[Assignment, ...]:
    """Give idle devices their cells: highest priority (with age) first, then the user who was given least,
    then the campaign that was, then matrix order. What is assigned here counts as given for the rest.

    `taken`: exclusion groups of the attempts under way; `shares`: by campaign. A cell whose device is
    excluded by what runs beside it keeps its place: no cell of lower order starts there. The order of the
    arguments' items changes nothing.
    """
    given = dict(shares or {})
    # Sorted: the same facts give the same assignments, in whatever order the database returned them.
    slots = sorted(devices, key=lambda slot: slot.device_id)
    occupied = Occupancy(taken)
    left = [cell for cell in waiting if cell.not_before_s <= now_s]
    chosen = []
    while left:
        # Looked for anew each time: what was just assigned changes the shares that order the others.
        cell = min(left, key=lambda cell: _order(cell, given.get(cell.campaign_no, Share()), now_s))
        left.remove(cell)
        fits = [slot for slot in slots if slot.takes(cell)]
        slot = next((slot for slot in fits if occupied.free(cell.group_on(slot))), None)
        if slot is None:
            # Otherwise a stream of cells for `host/gpu-0` would keep a cell for `host` waiting for ever.
            for held in fits:
                occupied.take(cell.group_on(held))
            continue
        occupied.take(cell.group_on(slot))
        charge(given, cell, now_s)
        chosen.append(Assignment(cell.cell_id, slot.device_id))
    return tuple(chosen)


def charge(shares: dict[int, Share], cell: WaitingCell, now_s: float) -> None:
    """Count a cell as given, for its campaign and for its user's other ones."""
    own = shares.setdefault(cell.campaign_no, Share())
    for number, share in shares.items():
        # Values change, and no key does: that is allowed while the items are read.
        if share.user == own.user:
            shares[number] = replace(share, user_served_s=share.user_served_s + cell.expected_s)
    given = shares[cell.campaign_no]
    shares[cell.campaign_no] = replace(given, served_s=given.served_s + cell.expected_s, waits_since_s=now_s)


def aged_rank(rank: int, share: Share, now_s: float) -> int:
    """Return the rank with its age: one step lower per `AGEING_S` that its campaign went without a device."""
    return rank - int(max(0.0, now_s - share.waits_since_s) // AGEING_S)


def _order(
    cell: WaitingCell, share: Share, now_s: float
) -> tuple[bool, int, float, float, int, int, int, str]:
    return (
        not cell.health,
        aged_rank(cell.rank, share, now_s),
        # The user before the campaign: whoever divides the work into many campaigns gets no more time.
        share.user_served_s,
        share.served_s,
        cell.campaign_no,
        cell.rank,
        cell.position,
        cell.cell_id,
    )


def _above(group: str) -> Iterable[str]:
    """Yield the groups that contain this one: `a` and `a/b` for `a/b/c`."""
    parts = group.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))
