"""SLICE and STRIDED_SLICE: a gather with strides from a starting point."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import Graph, Node
from runtime.delegates.gpu.lowering.spec import Candidate, Context, Family, NodeSpec, OperatorFacts
from runtime.delegates.gpu.lowering.transpose import element_strides, gather
from runtime.model.schema import BuiltinOperator as Op

_MOST_AXES = 5
"""Highest rank, which is LiteRT's own limit for both operators (`kernels/slice.cc`,
`kernels/strided_slice.cc`)."""
_OTHER_MASKS = ("ellipsis_mask", "new_axis_mask")


def _supports(facts: OperatorFacts) -> Unsupported | None:
    parameters = range(1, len(facts.operator.inputs))
    if any(facts.constant(i) is None for i in parameters):
        return Unsupported("begin, end, size and strides must be constant")
    set_masks = [name for name in _OTHER_MASKS if facts.options.get(name)]
    if set_masks:
        return Unsupported(f"{set_masks[0]} has no kernel")
    if facts.operator.opcode == Op.STRIDED_SLICE and facts.options.get("offset"):
        return Unsupported("end as an offset from begin has no kernel")
    rank = len(facts.shape(0))
    if not 1 <= rank <= _MOST_AXES or not facts.output_shape():
        return Unsupported(f"rank {rank} to rank {len(facts.output_shape())} has no kernel")
    return None


def _integers(facts: OperatorFacts, i: int) -> list[int]:
    data = facts.constant(i)
    return [] if data is None else [int(number) for number in data.reshape(-1)]


def _read(facts: OperatorFacts) -> NodeSpec:
    """`starts` and `strides` per input axis; `kept`: the axes that the output has."""
    shape, begin = facts.shape(0), _integers(facts, 1)
    if facts.operator.opcode == Op.SLICE:
        spans = [(start, 1, True) for start in begin]
    else:
        spans = [_span(facts, axis, shape[axis]) for axis in range(len(begin))]
    spans += [(0, 1, True)] * (len(shape) - len(spans))
    attributes = {
        "starts": tuple(start for start, _, _ in spans),
        "strides": tuple(stride for _, stride, _ in spans),
        "kept": tuple(axis for axis, (_, _, kept) in enumerate(spans) if kept),
    }
    return NodeSpec(facts.operator.inputs[:1], attributes)


def _span(facts: OperatorFacts, axis: int, extent: int) -> tuple[int, int, bool]:
    begin, end, stride = (_integers(facts, i)[axis] for i in (1, 2, 3))
    masked = {
        name: bool(facts.options.get(f"{name}_mask", 0) >> axis & 1)
        for name in ("begin", "end", "shrink_axis")
    }
    if masked["shrink_axis"]:
        return (0 if masked["begin"] else begin % extent), 1, False
    chosen = slice(None if masked["begin"] else begin, None if masked["end"] else end, stride)
    start, _, step = chosen.indices(extent)
    return start, step, True


def _any_layout(node: Node, graph: Graph) -> bool:  # noqa: ARG001 - the protocol's signature
    return True


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One gather."""
    source = node.inputs[0]
    if source is None:
        raise ValueError(f"{node.op.name} needs its first input")
    distances = element_strides(context.value(source), context.layout(source))
    a = node.attributes
    base = sum(start * distance for start, distance in zip(a["starts"], distances, strict=True))
    steps = [a["strides"][axis] * distances[axis] for axis in a["kept"]]
    return [Candidate("rows", (gather(node, context, steps, base),))]


FAMILY = Family(
    operators=(Op.SLICE, Op.STRIDED_SLICE),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters=(1, 2, 3),
    reads_any_layout=_any_layout,
    writes_dense=_any_layout,
)
