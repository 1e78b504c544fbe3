"""The two protocols that a delegate may follow, and what they exchange with the interpreter.

`runtime.measure.loading` hides the difference: every model is measured through `LoadedModel`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from runtime.model.graph import Model, Operator, Subgraph

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Unsupported:
    """Why a delegate leaves an operator to the CPU. A value, not an exception: the report shows it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Partition:
    """A set of operators that a delegate runs as one step.

    Those that the host runs at its border (`runtime.delegates.variables`) are no part of it.
    `shapes` and `dtypes` hold every tensor the operators touch (static, after shape inference).
    `constants` holds the values of every constant tensor among them, folded ones included
    (the float32 result of DEQUANTIZE on a float16 constant is a constant), and what a DEQUANTIZE made one of.
    """

    model: Model
    subgraph: Subgraph
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: Mapping[int, tuple[int, ...]]
    dtypes: Mapping[int, np.dtype[Any]]
    constants: Mapping[int, Array]


class CompiledPartition(Protocol):
    """A partition that is ready to run: everything that can be done once has been done."""

    def invoke(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Read `inputs`, fill `outputs` in place, and return when the outputs are readable.

        The arrays are dense, in the order of the partition's `inputs` and `outputs`. Inputs that are
        variables hold their new contents then, where an operator of the partition updates them.
        """

    def close(self) -> None:
        """Release device memory."""


@runtime_checkable
class PartitionDelegate(Protocol):
    """A delegate that runs the operators it supports; the interpreter runs the rest with its numpy kernels.

    Of the graph's partitions, the `max_delegated_partitions` largest are kept.
    """

    name: str
    max_delegated_partitions: int

    def supports(self, graph: "GraphFacts", operator: Operator) -> Unsupported | None:
        """Return None if this delegate runs the operator; else the reason."""

    def compile(self, partition: Partition) -> CompiledPartition:
        """Prepare a partition for invoke. Raises `DelegateError` with the device's message."""

    def describe(self) -> Mapping[str, str]:
        """Effective settings that a result must carry: device, driver, precision, ..."""


@runtime_checkable
class SmallestPartition(Protocol):
    """A delegate that leaves partitions of fewer operators than this to the CPU."""

    min_nodes_per_partition: int


@runtime_checkable
class KeepsPlans(Protocol):
    """A delegate that states how many plans of earlier input shapes an interpreter keeps ready."""

    kept_plans: int


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """The facts that `supports` may read: the subgraph with inferred static shapes and constant values.

    Operators in `late` have shapes that are known at run time only, so no delegate is asked about them; those
    in `ordered` (variables, random numbers, control flow) keep the file's order among themselves.
    """

    subgraph: Subgraph
    shapes: Mapping[int, tuple[int, ...]]
    dtypes: Mapping[int, np.dtype[Any]]
    constants: Mapping[int, Array]
    late: frozenset[int] = frozenset()
    ordered: frozenset[int] = frozenset()


class CostModel(Protocol):
    """The costs of a delegate's operators and partitions by shapes alone, so that a file gives one report."""

    def saved_ns(self, graph: GraphFacts, operator: Operator) -> float:
        """Nanoseconds that the delegate needs less than the CPU path; negative where it needs more."""

    def entry_ns(self, graph: GraphFacts, inputs: Sequence[int], outputs: Sequence[int]) -> float:
        """Nanoseconds that a run of a partition costs besides its operators: start, end and transfers."""


@runtime_checkable
class CostAware(Protocol):
    """A delegate that states the costs of its operators. None: every partition is worth its run."""

    cost_model: CostModel | None


@runtime_checkable
class CountsMemory(Protocol):
    """A delegate that counts the bytes that its open models hold on its device."""

    @property
    def device_bytes(self) -> int:
        """Bytes of all buffers there; a part of the process's where a device uses the host's memory."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of one run between the host's memory and the device: bytes, and ns that the host spent."""

    in_ns: int
    out_ns: int
    in_bytes: int
    out_bytes: int


@runtime_checkable
class CountsCopies(Protocol):
    """A delegate that counts what its open models copy at their borders."""

    def awaiting_copies(self) -> AbstractContextManager[None]:
        """Return a block in which a run waits for the copies of its inputs before it goes on. Elsewhere a
        device may make them while the run goes on, and `in_ns` is only the time to ask for them.
        """

    @property
    def copies(self) -> Copies | None:
        """The sum over the last runs of all partitions; None before one."""


@runtime_checkable
class Titled(Protocol):
    """A delegate with a name for LiteRT's messages, as in `GPU delegate`."""

    title: str


class LoadedModel(Protocol):
    """A model as the benchmark loop sees it, on any delegate, with the methods of LiteRT's `Interpreter`."""

    def get_input_details(self) -> list[dict[str, Any]]:
        """LiteRT's list of dictionaries."""

    def get_output_details(self) -> list[dict[str, Any]]:
        """LiteRT's list of dictionaries."""

    def set_tensor(self, tensor_index: int, value: Array) -> None:
        """Copy `value` in."""

    def invoke(self) -> None:
        """Run to completion."""

    def get_tensor(self, tensor_index: int) -> Array:
        """Return a copy of an output."""


@runtime_checkable
class WholeModelDelegate(Protocol):
    """A delegate that runs whole files by itself: a peer such as `litert`."""

    name: str

    def load(self, path: str) -> LoadedModel:
        """Load and allocate. Raises `DelegateError` with the peer's message."""

    def describe(self) -> Mapping[str, str]:
        """Effective settings that a result must carry."""
