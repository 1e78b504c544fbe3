"""MEAN, SUM and the other reductions, over any dimensions: with channels in the vectors, or across them.

Neighbouring dimensions that are both kept, or both reduced, count as one; the last stands by itself, because
the rows of channels are padded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


_MOST_SPANS = 4
"""Merged dimensions of one kind, `STRIDED_OFFSET` of `kernels/common.cl`: kept and reduced ones alternate, so
that a tensor of rank 8 has no more."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Neighbouring leading dimensions as one: `extent` rows of channels, `step` rows apart."""

    extent: int
    step: int


def _axes(facts: OperatorFacts) -> tuple[int, ...] | None:
    """The reduced axes from the front; None where they are not constant."""
    data = facts.constant(1)
    if data is None:
        return None
    rank = len(facts.shape(0))
    return tuple(sorted({int(axis) % rank for axis in data.reshape(-1)})) if rank else ()


def _supports(facts: OperatorFacts) -> Unsupported | None:
    axes = _axes(facts)
    if axes is None:
        return Unsupported("the axes must be constant")
    for is_reduced in (False, True):
        if len(_spans(facts.shape(0), axes, reduced=is_reduced)) > _MOST_SPANS:
            return Unsupported(f"axes {list(axes)} of shape {list(facts.shape(0))} are too scattered")
    return None


def _read(facts: OperatorFacts) -> NodeSpec:
    return NodeSpec(facts.operator.inputs[:1], {"axes": _axes(facts) or ()})


def _spans(shape: tuple[int, ...], axes: Sequence[int], *, reduced: bool) -> list[_Span]:
    """The leading dimensions that are reduced, or those that are kept, merged where they are neighbours."""
    found: list[_Span] = []
    step, was_of_kind = 1, False
    for axis in reversed(range(len(shape) - 1)):
        if shape[axis] == 1:
            continue
        is_of_kind = (axis in axes) == reduced
        if is_of_kind and was_of_kind:
            found[0] = _Span(found[0].extent * shape[axis], found[0].step)
        elif is_of_kind:
            found.insert(0, _Span(shape[axis], step))
        step, was_of_kind = step * shape[axis], is_of_kind
    return found


def _view(prefix: str, spans: Sequence[_Span], pixel_stride: int) -> dict[str, int]:
    """The defines of a strided view over rows of channels, as `STRIDED_OFFSET` reads them."""
    found: dict[str, int] = {}
    quotient = 1
    padded = [_Span(1, 0)] * (_MOST_SPANS - len(spans)) + list(spans)
    for i in reversed(range(_MOST_SPANS)):
        found |= {
            f"{prefix}_QUOTIENT{i}": quotient,
            f"{prefix}_EXTENT{i}": padded[i].extent,
            f"{prefix}_STEP{i}": padded[i].step * pixel_stride,
        }
        quotient *= padded[i].extent
    return found


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
    return node.op.name.removeprefix("REDUCE_").lower()


def _rows(node: Node, context: Context, source: int) -> Launch:
    """Channels and any leading dimensions; a unit is one output pixel."""
    before, after = context.value(source), context.value(node.outputs[0])
    axes, stride = node.attributes["axes"], context.layout(source).pixel_stride
    reduced = _spans(before.shape, axes, reduced=True)
    rows = prod(span.extent for span in reduced)
    instance = Instance(
        "reduction/reduce_rows.cl",
        instance_name(f"reduce_{_kind(node)}_rows"),
        defines(
            **_view("KEPT", _spans(before.shape, axes, reduced=False), stride),
            **_view("JOINED", reduced, stride),
            REDUCED=rows,
            CHANNELS=before.channels,
            OUT_CHANNELS=after.channels,
            OUT_STRIDE=context.layout(node.outputs[0]).pixel_stride,
            KIND=_KINDS[node.op],
            SCALE=_scale(node, rows * before.channels),
        ),
    )
    return _launch(node, context, instance, source, units=after.pixels)


def _columns(node: Node, context: Context, source: int) -> Launch:
    """Leading dimensions; a unit is one output pixel and 16 or 32 channels."""
    before, after = context.value(source), context.value(node.outputs[0])
    axes, stride = node.attributes["axes"], context.layout(source).pixel_stride
    reduced = _spans(before.shape, axes, reduced=True)
    rows = prod(span.extent for span in reduced)
    channels = round_up(before.channels)
    # Two columns per unit use each cache line pair once; one column where there is too little work for all.
    plenty = after.pixels * channels // 32 >= 4 * context.device.compute_units
    block = 32 if channels % 32 == 0 and plenty else 16
    instance = Instance(
        "reduction/reduce.cl",
        instance_name(f"reduce_{_kind(node)}", f"c{block}"),
        defines(
            **_view("KEPT", _spans(before.shape, axes, reduced=False), stride),
            **_view("JOINED", reduced, stride),
            REDUCED=rows,
            CHANNELS=channels,
            BLOCK=block,
            OUT_STRIDE=context.layout(node.outputs[0]).pixel_stride,
            KIND=_KINDS[node.op],
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
