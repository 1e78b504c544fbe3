"""Work-groups: the sizes and shared memory of groups, and the number of groups in a launch."""

from dataclasses import dataclass, field
from math import prod

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import Value, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor

QUAD = 4
"""Floats of a vector in kernels of work-groups: the widest that every interface to GPUs has."""

GROUP_ITEMS = 256
"""Work-items of a group. Every GPU of the last ten years runs as many, and WebGPU promises no more; fewer
share less of what lies in local memory."""

LOCAL_BYTES = 16 << 10
"""Local memory of a group at most: what WebGPU promises, and an eighth to a half of what GPUs have, so that
several groups run at a time."""

FEWEST_ITEMS = 16_384
"""Work-items that a launch should have where its work can be divided so far. A large GPU holds a quarter of a
million at a time, and with less than a tenth of that most of it idles; more parts cost more to join."""

LANE_ITEMS = 16
"""Work-items of a group that shares nothing on a processor, a few vectors of it. More leave more of the last
group idle, fewer start more groups."""

MOST_ITEMS = 1 << 18
"""Work-items of a launch whose work-items take several elements each: as many as the largest GPUs hold at a
time, 132 processors of 2048. More would only wait; fewer leave processors idle."""


_SIZES = {"float": 4, "int": 4, "uint": 4, "uint2": 8, "long": 8, "float4": 16, "int4": 16}
"""Bytes of an element in local memory, by its type in OpenCL C."""


@dataclass(frozen=True, slots=True)
class LocalArray:
    """An array that the work-items of a group share; `type` is one of `_SIZES`."""

    name: str
    type: str
    elements: int

    @property
    def bytes(self) -> int:
        """The size in local memory."""
        return self.elements * _SIZES[self.type]


@dataclass(frozen=True, slots=True)
class WorkGroup:
    """Work-items in each of one to three dimensions, and what they share in local memory.

    `together`: how many groups a multiprocessor shall hold at a time, so that one computes while another
    waits for memory; a compiler that is told of it keeps to as few registers. 0 for kernels that take few:
    told of two groups, it would take as many as these leave it.
    """

    size: tuple[int, ...]
    arrays: tuple[LocalArray, ...] = ()
    together: int = field(default=0, repr=False)

    @property
    def items(self) -> int:
        """Work-items of a group."""
        return prod(self.size)

    @property
    def local_bytes(self) -> int:
        """Local memory of a group."""
        return sum(array.bytes for array in self.arrays)


def suits_groups(device: Capabilities) -> bool:
    """Return True if kernels of work-groups are wanted, and the device runs groups of this size."""
    has_room = device.max_work_group >= GROUP_ITEMS and device.local_memory_bytes >= LOCAL_BYTES
    return device.works_in_groups and has_room


def strided(items: int) -> tuple[WorkGroup, tuple[int, ...]]:
    """Return a group and the number of groups for `items` equal pieces; of many, an item takes several."""
    return WorkGroup((GROUP_ITEMS,)), (max(1, ceil_div(min(items, MOST_ITEMS), GROUP_ITEMS)),)


def strided_vectors(value: Value) -> tuple[WorkGroup, tuple[int, ...], dict[str, int]]:
    """Return group, groups and parameters where a work-item takes `QUAD` channels of a pixel at a time."""
    vectors = round_up(value.channels) // QUAD
    group, groups = strided(value.pixels * vectors)
    return group, groups, {"TOTAL": value.pixels * vectors, **divisor("VECTORS", vectors)}


def image_places(value: Value) -> dict[str, int]:
    """Return the parameters by which a kernel finds row and column of a pixel of images [N, H, W, C]."""
    _, height, width, _ = value.shape
    return {**divisor("OUT_PIXELS", height * width), **divisor("OUT_W", width)}


def shared_rows(value: Value, device: Capabilities) -> tuple[int, int]:
    """Return as `row_group` who shares a pixel's channels: none where that costs more than it saves."""
    # A row for each lane, as waiting at a barrier makes a processor change between its vectors
    # (`DeviceClass`). Of fewer pixels than lanes the rows are shared all the same, or lanes would idle.
    if device.works_in_lanes and value.pixels >= LANE_ITEMS:
        return 1, LANE_ITEMS
    return row_group(value.channels)


def row_group(channels: int) -> tuple[int, int]:
    """Work-items that share a row of so many channels, a power of two, and rows of a group."""
    # A work-item takes QUAD channels at a time: of more items than there are vectors, some would idle.
    items = QUAD
    while items < GROUP_ITEMS and items * QUAD < channels:
        items *= 2
    return items, GROUP_ITEMS // items


def most_units(device: Capabilities, usual: int) -> int:
    """Most units of a unit function's work: `usual`, or as many as the largest GPUs hold at a time."""
    return MOST_ITEMS if device.works_in_groups else usual
