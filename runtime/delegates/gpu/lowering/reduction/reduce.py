"""MEAN, SUM and the other reductions, over any dimensions: with channels in the vectors, or across them.

The last dimension stands by itself, because the rows of channels are padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import Kind, Node, round_up
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    NodeSpec,
    OperatorFacts,
    defines,
    epilogue_of,
    instance_name,
)
from runtime.delegates.gpu.parameters import Digit, offset, parameters
from runtime.model.schema import BuiltinOperator as Op

_KINDS: Mapping[Kind, int] = {Op.MEAN: 0, Op.SUM: 0, Op.REDUCE_MAX: 1, Op.REDUCE_MIN: 2, Op.REDUCE_PROD: 3}


def _axes(facts: OperatorFacts) -> tuple[int, ...] | None:
    """The reduced axes from the front; None where they are not constant."""
    data = facts.constant(1)
    if data is None:
        return None
    rank = len(facts.shape(0))
    return tuple(sorted({int(axis) % rank for axis in data.reshape(-1)})) if rank else ()


def _supports(facts: OperatorFacts) -> Unsupported | None:
    return Unsupported("the axes must be constant") if facts.constant(1) is None else None


def _read(facts: OperatorFacts) -> NodeSpec:
    return NodeSpec(facts.operator.inputs[:1], {"axes": _axes(facts) or ()})


def _digits(node: Node, context: Context, source: int, *, reduced: bool) -> list[Digit]:
    """The leading dimensions of the input that are reduced, or those that are kept."""
    shape, step = context.value(source).shape, context.layout(source).pixel_stride
    found: list[Digit] = []
    for axis in reversed(range(len(shape) - 1)):
        if (axis in node.attributes["axes"]) == reduced:
            found.insert(0, Digit(shape[axis], step))
        step *= shape[axis]
    return found


def _views(node: Node, context: Context, source: int) -> tuple[int, dict[str, str], dict[str, int]]:
    """How many pixels are reduced to one; where these lie, as defines and their parameters."""
    reduced = _digits(node, context, source, reduced=True)
    kept = offset("KEPT", _digits(node, context, source, reduced=False), "(p)")
    joined = offset("JOINED", reduced, "(r)")
    expressions = {"KEPT(p)": kept.expression, "JOINED(r)": joined.expression}
    return prod(digit.extent for digit in reduced), expressions, kept.parameters | joined.parameters


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One kernel, by what becomes of the channels: reduced as well, or kept."""
    (source,) = node.inputs
    if source is None:
        raise ValueError("a reduction has one input")
    shape, axes = context.value(source).shape, node.attributes["axes"]
    if len(shape) - 1 in axes:
        return [Candidate("rows", (_rows(node, context, source),))]
    return [Candidate("columns", (_columns(node, context, source),))]


def _scale(node: Node, count: int) -> float:
    return 1.0 / count if node.op == Op.MEAN else 1.0


def _kind(node: Node) -> str:
    """As in the functions' names: a mean is a sum with another scale."""
    return ("sum", "max", "min", "prod")[_KINDS[node.op]]


def _rows(node: Node, context: Context, source: int) -> Launch:
    """Channels and any leading dimensions; a unit is one output pixel."""
    before, after = context.value(source), context.value(node.outputs[0])
    rows, expressions, steps = _views(node, context, source)
    instance = Instance(
        "reduction/reduce_rows.cl",
        instance_name(f"reduce_{_kind(node)}_rows"),
        defines(KIND=_KINDS[node.op], **expressions),
        parameters(
            **steps,
            REDUCED=rows,
            CHANNELS=before.channels,
            OUT_CHANNELS=after.channels,
            OUT_STRIDE=context.layout(node.outputs[0]).pixel_stride,
            SCALE=_scale(node, rows * before.channels),
        ),
    )
    return _launch(node, context, instance, source, units=after.pixels)


def _columns(node: Node, context: Context, source: int) -> Launch:
    """Leading dimensions; a unit is one output pixel and 16 or 32 channels."""
    before, after = context.value(source), context.value(node.outputs[0])
    rows, expressions, steps = _views(node, context, source)
    channels = round_up(before.channels)
    # Two columns per unit use each cache line pair once; one column where there is too little work for all.
    plenty = after.pixels * channels // 32 >= 4 * context.device.compute_units
    block = 32 if channels % 32 == 0 and plenty else 16
    instance = Instance(
        "reduction/reduce.cl",
        instance_name(f"reduce_{_kind(node)}", f"c{block}"),
        defines(BLOCK=block, KIND=_KINDS[node.op], **expressions),
        parameters(
            **steps,
            REDUCED=rows,
            CHANNELS=channels,
            OUT_STRIDE=context.layout(node.outputs[0]).pixel_stride,
            SCALE=_scale(node, rows),
        ),
    )
    return _launch(node, context, instance, source, units=after.pixels * (channels // block))


def _launch(node: Node, context: Context, instance: Instance, source: int, units: int) -> Launch:
    before, after = context.value(source), context.value(node.outputs[0])
    return Launch(
        instance,
        (source, node.outputs[0]),
        units=units,
        label=f"{node.op.name} {'x'.join(map(str, before.shape))}",
        sources=node.sources,
        flops=before.elements,
        bytes=4 * (before.elements + after.elements),
        epilogue=epilogue_of(node, context.graph),
    )


FAMILY = Family(
    operators=tuple(_KINDS), read=_read, lower=lower, supports=_supports, epilogue=True, parameters=(1,)
)
