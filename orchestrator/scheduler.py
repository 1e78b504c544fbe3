"""Which waiting cell goes to which idle device. Pure: values in, assignments out.

Binding is late: a cell meets its device only when the device is free, so priorities, cancellation and
age are decided by the newest facts. No device and no exclusion group ever has two live attempts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WaitingCell:
    """A queued cell. `rank`: lower goes first (minus the priority); `campaign_no` grows with age's end:
    the oldest campaign has the lowest; `position` is the cell's place in its campaign's matrix, where
    the cells of one model stand together. `not_before_s`: UTC seconds.
    """

    cell_id: str
    target: str
    rank: int
    campaign_no: int
    position: int
    not_before_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceSlot:
    """A device that could take a cell. `busy`: it has a live attempt."""

    device_id: str
    exclusion_group: str
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """This cell, on this device, now."""

    cell_id: str
    device_id: str


def assign(
    waiting: Iterable[WaitingCell], devices: Iterable[DeviceSlot], now_s: float
) -> tuple[Assignment, ...]:
    """Give each free exclusion group at most one cell: highest priority, oldest campaign, matrix order.

    The order of the arguments' items changes nothing.
    """
    slots = {slot.device_id: slot for slot in devices}
    taken = {slot.exclusion_group for slot in slots.values() if slot.busy}
    chosen = []
    for cell in sorted(waiting, key=_order):
        slot = slots.get(cell.target)
        if slot is None or cell.not_before_s > now_s or slot.exclusion_group in taken:
            continue
        taken.add(slot.exclusion_group)
        chosen.append(Assignment(cell.cell_id, slot.device_id))
    return tuple(chosen)


def _order(cell: WaitingCell) -> tuple[int, int, int, str]:
    return (cell.rank, cell.campaign_no, cell.position, cell.cell_id)
