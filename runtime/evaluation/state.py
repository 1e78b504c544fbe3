"""An interpreter's state as LiteRT prints it, and as its `ModelRuntimeDetails`.

The numbers of the fields are those of LiteRT's `model_runtime_info.proto`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from runtime.common.protobuf import integer, integers, message
from runtime.evaluation.report import MIB
from runtime.interpreter.state import NodeState, SubgraphState, TensorState

_TYPES: Final = (
    "UNKNOWN", "FLOAT32", "INT32", "UINT8", "INT64", "STRING", "BOOL", "INT16", "COMPLEX64", "INT8",
    "FLOAT16", "FLOAT64", "COMPLEX128", "UINT64", "RESOURCE", "VARIANT", "UINT32", "UINT16", "INT4",
    "BFLOAT16", "INT2", "UINT4",
)  # fmt: skip
"""Types of tensors by LiteRT's numbers (`TfLiteType`), which are not those of a file."""

_TFLITE_SUBGRAPH: Final = 1
"""LiteRT's number for a subgraph of the file (`SubgraphType`)."""


@dataclass(frozen=True, slots=True)
class Widths:
    """The most characters of a tensor's name, type and kind of allocation in the listing."""

    name: int = 25
    type: int = 15
    kind: int = 18


def state_lines(state: SubgraphState, subgraphs: int, widths: Widths) -> Iterator[str]:
    """Yield the dump of a model's first subgraph; `subgraphs`: how many the model has."""
    operators = [node for node in state.nodes if not node.replaces]
    yield f"Interpreter has {subgraphs} subgraphs."
    yield ""
    yield f"-----------Subgraph-0 has {len(state.tensors)} tensors and {len(state.nodes)} nodes------------"
    yield f"{len(state.graph.inputs)} Inputs: {_listed(state, state.graph.inputs)}"
    yield f"{len(state.graph.outputs)} Outputs: {_listed(state, state.graph.outputs)}"
    yield ""
    head = ("ID", "Name", "Type", "AllocType", "Size (Bytes/MB)", "Shape", "MemAddr-Offset")
    yield "Tensor " + _row(head, widths)
    for tensor in state.tensors:
        yield "Tensor " + _row(_cells(tensor, widths), widths)
    yield ""
    for kind, count in sorted(Counter(tensor.kind for tensor in state.tensors).items()):
        sizes = [tensor.size for tensor in state.tensors if tensor.kind == kind]
        yield f"{kind}: {count} tensors, {_bytes(sum(sizes))}, the largest {_bytes(max(sizes))}"
    yield ""
    for node in state.nodes:
        yield from _node_lines(state, node)
    yield f"Execution plan as the list of {len(state.plan)} nodes invoked in-order: {_indices(state.plan)}"
    for node in state.nodes[len(operators) :]:
        yield (
            f"  Node {node.index} is a {node.name} node, which has replaced {len(node.replaces)} nodes: "
            f"{_indices(node.replaces)}"
        )
    yield "--------------Memory Arena Status Start--------------"
    yield f"Total memory usage: {_bytes(state.arena_bytes)}"
    yield "--------------Memory Arena Status End--------------"


def _row(cells: Sequence[str], widths: Widths) -> str:
    sizes = (3, widths.name, widths.type, widths.kind, 18, 16, 0)
    return " ".join(cell.ljust(size) for cell, size in zip(cells, sizes, strict=True)).rstrip()


def _cells(state: TensorState, widths: Widths) -> tuple[str, ...]:
    tensor = state.tensor
    place = "[-1, -1)" if state.offset is None else f"[{state.offset}, {state.offset + state.size})"
    return (
        str(tensor.index),
        tensor.name[: widths.name],
        _type_name(tensor.type.name)[: widths.type],
        state.kind[: widths.kind],
        f"{state.size} / {state.size / MIB:.2f}",
        f"[{','.join(map(str, state.shape))}]",
        place,
    )


def _type_name(name: str) -> str:
    """Return LiteRT's name of a type: `kTfLiteUInt8`, `kTfLiteBFloat16`."""
    return f"kTfLite{name.title().replace('Uint', 'UInt').replace('Bf', 'BF')}"


def _node_lines(state: SubgraphState, node: NodeState) -> Iterator[str]:
    told = ""
    if not node.replaces:
        told = (
            " (not delegated)" if node.delegated_by is None else f" (delegated by node {node.delegated_by})"
        )
    yield f"Node {node.index} Operator {node.name}{told}"
    yield f"  {len(node.inputs)} Input Tensors: {_listed(state, node.inputs)}"
    yield f"  {len(node.outputs)} Output Tensors: {_listed(state, node.outputs)}"


def _listed(state: SubgraphState, indices: Sequence[int]) -> str:
    return f"{_indices(indices)} -> {_bytes(sum(state.tensors[index].size for index in indices))}"


def _indices(indices: Sequence[int]) -> str:
    """Write `[0-3,7]`: neighbours in one piece, as LiteRT does."""
    pieces: list[list[int]] = []
    for index in indices:
        if pieces and index == pieces[-1][-1] + 1:
            # A piece keeps its first and its last index only.
            pieces[-1][1:] = [index]
        else:
            pieces.append([index])
    return f"[{','.join('-'.join(map(str, piece)) for piece in pieces)}]"


def _bytes(size: int) -> str:
    return f"{size}B ({size / MIB:.2f}MB)"


def runtime_details(name: str, state: SubgraphState) -> bytes:
    """Return a `ModelRuntimeDetails`: every tensor and node of the first subgraph, and what ran where."""
    subgraph = integer(1, 0) + b"".join(message(2, _edge(tensor)) for tensor in state.tensors)
    subgraph += b"".join(message(3, _node(node)) for node in state.nodes)
    subgraph += integers(4, state.plan) + integer(5, _TFLITE_SUBGRAPH)
    subgraph += message(6, state.graph.name.encode())
    return message(1, name.encode()) + message(2, subgraph)


def _edge(state: TensorState) -> bytes:
    tensor, known = state.tensor, state.tensor.type.name
    # A type that LiteRT has no number for is told as UNKNOWN.
    kind = _TYPES.index(known) if known in _TYPES else 0
    edge = integer(1, tensor.index) + message(2, tensor.name.encode()) + integer(3, kind)
    return edge + integers(4, state.shape) + message(5, state.kind.encode()) + integer(7, state.size)


def _node(node: NodeState) -> bytes:
    made = integer(1, node.index) + message(2, node.name.encode()) + message(3, node.name.encode())
    made += integers(4, node.inputs) + integers(5, node.outputs)
    if node.replaces:
        return made + message(8, message(1, node.name.encode()) + integers(2, node.replaces))
    return made if node.delegated_by is None else made + integer(9, node.delegated_by)
