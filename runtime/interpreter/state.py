"""The state of a planned subgraph: where its tensors lie, and which node runs each operator."""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.model.graph import Subgraph, Tensor
from runtime.ops.support.value import Shape
from runtime.plan.execution import Execution
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
