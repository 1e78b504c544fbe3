"""The plan of a partition's run by a delegate, as plain data; a delegate that can make it has a planner.

Nothing here is compiled, allocated or timed. `runtime.tools.model_plan` shows it.
"""

from dataclasses import dataclass
from math import prod
from typing import Literal, Protocol, runtime_checkable

from runtime.delegates.base import Partition, PartitionDelegate

DeviceClass = Literal["cpu", "gpu"]
Role = Literal["input", "output", "activation", "scratch", "check", "constant"]


@dataclass(frozen=True, slots=True)
class PlannedDevice:
    """The device for which a plan holds.

    `is_assumed`: no device of this machine was looked at. `resident_threads` is the number of work-items that
    the device holds at the same time, 0 where the class does not tell. `note` says what else was assumed.
    """

    name: str
    device_class: DeviceClass
    is_assumed: bool
    compute_units: int
    resident_threads: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """A tensor of the delegate's graph. `tensor` is its index in the model, None for one that was added.

    It takes `bytes` from `offset` of the arena, padding between its elements included; `dense_bytes` are
    those of its elements alone. `is_view`: it lies in the buffer of another value.
    """

    id: int
    tensor: int | None
    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    dense_bytes: int
    is_view: bool


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """Memory of the arena, in bytes, while the nodes at positions `first` to `last` run.

    Inputs live from position -1, outputs to the number of nodes. `values` are the ids of what lies in it,
    views included; memory that belongs to one kernel alone holds none.
    """

    role: Role
    name: str
    values: tuple[int, ...]
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PlannedConstant:
    """Packed values that kernels read, in bytes, at `offset` of the buffer of constants number `buffer`."""

    name: str
    type: str
    buffer: int
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PlannedArgument:
    """A pointer of a kernel: `bytes` at `offset` of the arena, or of its buffer of constants.

    `value` is the id of a value, None for constants, scratch memory and checks.
    """

    role: Role
    name: str
    value: int | None
    type: str
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """One kernel execution.

    `operators` are the model's, `flops` and `bytes` what it computes and moves by the family's own count.
    `units`: equal pieces of work, 0 for a kernel with work-groups. Sizes are in work-items, those of memory
    in bytes; `local_size` is empty where the backend chooses it.
    """

    function: str
    source: str
    tile: str
    label: str
    operators: tuple[int, ...]
    units: int
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    local_bytes: int
    flops: int
    bytes: int
    arguments: tuple[PlannedArgument, ...]

    @property
    def work_items(self) -> int:
        """Work-items of the launch."""
        return prod(self.global_size)

    @property
    def work_group(self) -> int:
        """Work-items of a group, 1 for a unit function."""
        return prod(self.local_size)

    @property
    def intensity(self) -> float:
        """Arithmetic operations for each byte that is moved."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True, slots=True)
class Merged:
    """An operator that became a part of another's node, by which pass, and what that means."""

    operator: int
    by: str
    effect: str


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """One operation of the delegate's graph, and the kernels that run it.

    `operators` are the indices of the model's operators, `merged` those of them that a pass joined to
    another; `steps` are the fused element-wise steps, `reads` and `writes` ids of values. `candidate` is
    taken of so many `candidates`, by "rule", or by "tuning" where kept times decide.
    """

    position: int
    kind: str
    operators: tuple[int, ...]
    merged: tuple[Merged, ...]
    steps: tuple[str, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    candidate: str
    candidates: int
    chosen: Literal["rule", "tuning"]
    launches: tuple[PlannedKernel, ...]

    @property
    def main(self) -> int:
        """The operator that the node is; the others are merged into it."""
        merged = {one.operator for one in self.merged}
        return next((operator for operator in self.operators if operator not in merged), self.operators[0])


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """A delegate's plan of a partition.

    `operators` are the model's in this partition; `removed` are those of them that are in no node.
    `inputs` and `outputs` are indices of tensors. `shortage` says what the device lacks to hold it.
    """

    operators: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: tuple[PlannedNode, ...]
    removed: tuple[Merged, ...]
    arena_bytes: int
    constant_bytes: int
    values: tuple[PlannedValue, ...]
    buffers: tuple[PlannedBuffer, ...]
    constants: tuple[PlannedConstant, ...]
    shortage: str = ""

    @property
    def launches(self) -> tuple[PlannedKernel, ...]:
        """All kernels in the order in which they run."""
        return tuple(launch for node in self.nodes for launch in node.launches)


@runtime_checkable
class Planner(PartitionDelegate, Protocol):
    """A delegate that plans instead of running: its `compile` raises `DelegateError`."""

    device: PlannedDevice

    def plan(self, partition: Partition) -> PartitionPlan:
        """Plan the run of a partition. Raises `DelegateError`."""
