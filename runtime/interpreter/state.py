"""The state of a planned subgraph: where its tensors lie, and which node runs each operator; and slots, by
which several runs of a whole model are in flight at once, each on memory of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.delegates.asynchrony import AsynchronousPartition, Completion, NotStarted
from runtime.delegates.storage import HostStorage
from runtime.model.graph import Subgraph, Tensor
from runtime.ops.support.value import Array, Shape
from runtime.plan.execution import Execution, Step
from runtime.plan.subgraph import PlannedSubgraph

IN_FILE, COMPUTED_ONCE = "kTfLiteMmapRo", "kTfLitePersistentRo"
IN_ARENA, VARIABLE = "kTfLiteArenaRw", "kTfLiteArenaRwPersistent"
DYNAMIC, NOWHERE = "kTfLiteDynamic", "kTfLiteMemNone"
"""LiteRT's kinds of allocations (`TfLiteAllocationType`). Values inside a partition are nowhere here: they
lie on the delegate's device."""


@dataclass(frozen=True, slots=True)
class TensorState:
    """A tensor as it is planned: `kind` of its memory, bytes, and its place in the arena, None outside."""

    tensor: Tensor
    shape: Shape
    kind: str
    size: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node: an operator of the file, or behind them a delegate's partition, which `replaces` operators.

    `delegated_by`: the node that runs an operator in its stead; None for one of the CPU.
    """

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    delegated_by: int | None = None
    replaces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SubgraphState:
    """Tensors and nodes of a subgraph, and the `plan`: the nodes that run, in order. `arena_bytes` of memory
    hold all tensors of the arena.
    """

    graph: Subgraph
    tensors: tuple[TensorState, ...]
    nodes: tuple[NodeState, ...]
    plan: tuple[int, ...]
    arena_bytes: int


def subgraph_state(planned: PlannedSubgraph) -> SubgraphState:
    """Return the state of an allocated subgraph. Raises `RuntimeError` for one that is not."""
    execution, graph = planned.execution, planned.subgraph
    if execution is None:
        raise RuntimeError("the state of a model is known once its tensors are allocated")
    count = len(graph.operators)
    owner: dict[int, int] = {}
    partitions: list[NodeState] = []
    plan: list[int] = []
    for step in execution.steps:
        if step.operator is not None:
            plan.append(step.operator.index)
            continue
        # A step is an operator, or a partition with its delegate.
        assert step.partition is not None
        assert step.delegate is not None
        taken = tuple(o.index for o in (*step.before, *step.partition.operators, *step.behind))
        node = NodeState(count + len(partitions), step.delegate.name, step.inputs, step.outputs, None, taken)
        partitions.append(node)
        plan.append(node.index)
        owner |= dict.fromkeys(taken, node.index)
    # Those whose shapes only running tells are planned when they are reached.
    plan += [operator.index for operator in execution.values.pending]
    operators = (
        NodeState(o.index, o.name, tuple(i for i in o.inputs if i >= 0), o.outputs, owner.get(o.index))
        for o in graph.operators
    )
    shapes = {tensor.index: planned.shape(tensor.index) for tensor in graph.tensors}
    return SubgraphState(
        graph,
        tuple(_tensor(tensor, shapes, execution) for tensor in graph.tensors),
        (*operators, *partitions),
        tuple(plan),
        execution.arena.size,
    )


def _tensor(tensor: Tensor, shapes: Mapping[int, Shape], execution: Execution) -> TensorState:
    offset = execution.arena.offsets.get(tensor.index)
    array = execution.arrays.get(tensor.index)
    if tensor.is_constant:
        kind = IN_FILE
    elif offset is not None:
        kind = VARIABLE if tensor.is_variable else IN_ARENA
    elif tensor.index in execution.values.constants:
        kind = COMPUTED_ONCE
    else:
        kind = NOWHERE if array is None else DYNAMIC
    size = len(tensor.data) if tensor.data is not None else 0 if array is None else array.nbytes
    return TensorState(tensor, shapes[tensor.index], kind, size, offset)


class Slot:
    """The inputs and outputs of one run at a time. It holds for as long as the subgraph is planned so."""

    def __init__(self, planned: PlannedSubgraph, partition: AsynchronousPartition, step: Step) -> None:
        self._partition = partition
        storages: dict[int, HostStorage] = {}
        arrays: dict[int, Array] = {}
        for index in (*step.inputs, *step.outputs):
            like = planned.array(index)
            assert like is not None
            storages[index] = HostStorage.managed(like.nbytes)
            arrays[index] = storages[index].memory.view(like.dtype).reshape(like.shape)
        self._inputs = [storages[index] for index in step.inputs]
        self._outputs = [storages[index] for index in step.outputs]
        self._fed = [arrays.get(index) for index in planned.subgraph.inputs]
        self._read = [arrays[index] for index in planned.subgraph.outputs]
        self._completion: Completion | None = None

    def start(self, values: Sequence[Array]) -> None:
        """Copy the model's inputs in and start a run. Raises `DelegateError` where it cannot be started."""
        for array, value in zip(self._fed, values, strict=True):
            # The delegate does not read an input that none of its operators has.
            if array is not None:
                np.copyto(array, value)
        self._completion = self._partition.start(self._inputs, self._outputs).completion

    def run_again(self) -> None:
        """Run on the inputs that lie there, leave the outputs there, and wait. Raises the run's error."""
        self._partition.start(self._inputs, self._outputs).completion.wait()

    def finish(self) -> tuple[Array, ...]:
        """Wait for the run and return copies of the model's outputs. Raises the run's error."""
        assert self._completion is not None
        self._completion.wait()
        return tuple([array.copy() for array in self._read])


def slots_of(planned: PlannedSubgraph, count: int) -> list[Slot] | NotStarted:
    """Memory for so many runs in flight; or why the subgraph cannot run in the background."""
    whole = planned.whole()
    if whole is None:
        report = planned.report
        ran = "no operator" if report is None else f"{report.delegated_ops} of {report.total_ops} operators"
        return NotStarted(f"its delegate runs {ran}, and starts only models that it runs whole")
    partition, step = whole
    if not isinstance(partition, AsynchronousPartition):
        return NotStarted("its delegate has no asynchronous runs")
    if not partition.starts:
        return NotStarted("its delegate starts no run of this model, with these options, without waiting")
    inputs, outputs = planned.subgraph.inputs, planned.subgraph.outputs
    if not set(step.inputs) <= set(inputs) or not set(outputs) <= set(step.outputs):
        return NotStarted("an output of the model is known without running it")
    return [Slot(planned, partition, step) for _ in range(count)]
