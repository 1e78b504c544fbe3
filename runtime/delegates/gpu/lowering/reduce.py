"""MEAN, SUM and the other reductions: over neighbouring leading dimensions, or over the last ones."""

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
from runtime.model.schema import BuiltinOperator as Op

_KINDS: Mapping[Kind, int] = {Op.MEAN: 0, Op.SUM: 0, Op.REDUCE_MAX: 1, Op.REDUCE_MIN: 2, Op.REDUCE_PROD: 3}


def _axes(facts: OperatorFacts) -> list[int] | None:
    """The reduced axes with more than one element, from the front; None where they are not constant."""
    data = facts.constant(1)
    if data is None:
        return None
    shape = facts.shape(0)
    axes = sorted({int(axis) % len(shape) for axis in data.reshape(-1)}) if shape else []
    return [axis for axis in axes if shape[axis] > 1]


def _supports(facts: OperatorFacts) -> Unsupported | None:
    axes = _axes(facts)
    if axes is None:
        return Unsupported("the axes must be constant")
    shape, output = facts.shape(0), facts.output_shape()
    if axes and any(shape[axis] > 1 for axis in range(axes[0], axes[-1]) if axis not in axes):
        return Unsupported(f"axes {axes} of shape {list(shape)} are not next to each other")
    last = len(shape) - 1
    if last in axes:
        return None
    if (output[-1] if output else 1) != (shape[-1] if shape else 1):
        return Unsupported("a reduction that drops a last dimension of 1 has no kernel")
    return None


def _read(facts: OperatorFacts) -> NodeSpec:
    return NodeSpec(facts.operator.inputs[:1], {"axes": tuple(_axes(facts) or ())})


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One kernel, by the position of the axes: in the middle, or at the end."""
    (source,) = node.inputs
    if source is None:
        raise ValueError("a reduction has one input")
    shape, axes = context.value(source).shape, node.attributes["axes"]
    if axes and axes[-1] == len(shape) - 1:
        return [Candidate("rows", (_rows(node, context, source),))]
    return [Candidate("columns", (_columns(node, context, source),))]


def _scale(node: Node, count: int) -> float:
    return 1.0 / count if node.op == Op.MEAN else 1.0


def _kind(node: Node) -> str:
    return node.op.name.removeprefix("REDUCE_").lower()


def _rows(node: Node, context: Context, source: int) -> Launch:
    """The last dimensions, channels included; a unit is one output pixel."""
    before, after = context.value(source), context.value(node.outputs[0])
    count = prod(before.shape[node.attributes["axes"][0] :])
    instance = Instance(
        "reduce_rows.cl",
        instance_name(f"reduce_{_kind(node)}_rows"),
        defines(
            REDUCED=count // before.channels,
            CHANNELS=before.channels,
            IN_STRIDE=context.layout(source).pixel_stride,
            OUT_CHANNELS=after.channels,
            OUT_STRIDE=context.layout(node.outputs[0]).pixel_stride,
            KIND=_KINDS[node.op],
            SCALE=_scale(node, count),
        ),
    )
    return _launch(node, context, instance, source, units=after.pixels)


def _columns(node: Node, context: Context, source: int) -> Launch:
    """Leading dimensions; a unit is one output pixel and 16 or 32 channels."""
    before, axes = context.value(source), node.attributes["axes"]
    shape = before.shape
    first, last = (axes[0], axes[-1] + 1) if axes else (0, 0)
    outer, reduced, inner = prod(shape[:first]), prod(shape[first:last]), prod(shape[last:-1])
    channels = round_up(before.channels)
    # Two columns per unit use each cache line pair once; one column where there is too little work for all.
    plenty = outer * inner * channels // 32 >= 4 * context.device.compute_units
    block = 32 if channels % 32 == 0 and plenty else 16
    instance = Instance(
        "reduce.cl",
        instance_name(f"reduce_{_kind(node)}", f"c{block}"),
        defines(
            OUTER=outer,
            REDUCED=reduced,
            INNER=inner,
            CHANNELS=channels,
            BLOCK=block,
            IN_STRIDE=context.layout(source).pixel_stride,
            OUT_STRIDE=context.layout(node.outputs[0]).pixel_stride,
            KIND=_KINDS[node.op],
            SCALE=_scale(node, reduced),
        ),
    )
    return _launch(node, context, instance, source, units=outer * inner * (channels // block))


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
