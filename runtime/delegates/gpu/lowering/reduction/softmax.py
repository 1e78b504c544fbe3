"""SOFTMAX and LOG_SOFTMAX over the last dimension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import parameters
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.graph.work_groups import (
    GROUP_ITEMS,
    QUAD,
    LocalArray,
    WorkGroup,
    row_group,
    suits_groups,
)
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    NodeSpec,
    OperatorFacts,
    PackedConstant,
    Types,
    defines,
    epilogue_of,
    instance_name,
)
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.reduction.softmax import exponentials

_MOST_CLASSES = 4096
"""Classes of 8-bit levels that the 12 integer bits of the fixed-point sum hold, as on the CPU path."""

_UNITS = 16
"""Most units, and so most work-groups, of a softmax of levels: few rows are worth a group of their own."""


def _supports(facts: OperatorFacts) -> Unsupported | None:
    if not facts.shape(0):
        return Unsupported("a scalar has no axis")
    if facts.types.get(facts.operator.inputs[0]) is not ElementType.I8:
        return None
    tensors = facts.graph.subgraph.tensors
    given, made = (levels_of(tensors[i]) for i in (facts.operator.inputs[0], facts.operator.outputs[0]))
    if given is None or made is None or (made.scale, made.zero_point) != (1 / 256, -128):
        return Unsupported(
            "a softmax of int8 needs scales, and an output with 1 / 256 and the zero point -128"
        )
    if facts.shape(0)[-1] > _MOST_CLASSES or _real(facts, given.scale) < 1:
        return Unsupported("more classes, or a smaller scale, than fixed-point numbers hold")
    return None


def _real(facts: OperatorFacts, scale: float) -> float:
    """Return the weight of a level in the exponent, in Q5.26."""
    return float(np.float32(facts.options.get("beta", 1.0))) * scale * (1 << 26)


def _read(facts: OperatorFacts) -> NodeSpec:
    attributes: dict[str, object] = {"beta": float(facts.options.get("beta", 1.0))}
    given = levels_of(facts.graph.subgraph.tensors[facts.operator.inputs[0]])
    if facts.types.get(facts.operator.inputs[0]) is ElementType.I8 and given is not None:
        attributes["exponentials"] = exponentials(_real(facts, given.scale)).astype(np.int32).tobytes()
    return NodeSpec(facts.operator.inputs, attributes)


def _of_levels(node: Node, context: Context, source: int) -> Candidate:
    """Fixed-point numbers, exactly as LiteRT's reference kernel."""
    (target,) = node.outputs
    value, table = context.value(target), np.frombuffer(node.attributes["exponentials"], np.int32)
    launch = Launch(
        Instance(
            "reduction/softmax_levels.cl",
            "i8_softmax_levels",
            defines(T=value.type.opencl),
            parameters(
                PIXELS=value.pixels,
                CHANNELS=value.channels,
                IN_STRIDE=context.layout(source).pixel_stride,
                OUT_STRIDE=context.layout(target).pixel_stride,
                LOWEST=-128,
            ),
        ),
        (source, PackedConstant(f"table{target}", table.size, lambda: table, ElementType.I32), target),
        units=max(1, min(_UNITS, value.pixels)),
        label=f"{node.op.name} int8 {'x'.join(map(str, value.shape))}",
        sources=node.sources,
        flops=value.elements * 12,
        bytes=2 * value.elements,
    )
    return Candidate("rows", (launch,))


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One kernel, a unit for each row of channels."""
    (source,), (target,) = node.inputs, node.outputs
    if source is None:
        raise ValueError(f"{node.op.name} has one input")
    value = context.value(target)
    if value.type is ElementType.I8:
        return [_of_levels(node, context, source)]
    if suits_groups(context.device):
        return [_in_groups(node, context, source)]
    launch = Launch(
        Instance(
            "reduction/softmax.cl",
            instance_name(node.op.name.lower()),
            defines(LOGARITHM=node.op == Op.LOG_SOFTMAX),
            parameters(
                CHANNELS=value.channels,
                IN_STRIDE=context.layout(source).pixel_stride,
                OUT_STRIDE=context.layout(target).pixel_stride,
                BETA=node.attributes["beta"],
            ),
        ),
        (source, target),
        units=value.pixels,
        label=f"{node.op.name} {'x'.join(map(str, value.shape))}",
        sources=node.sources,
        flops=value.elements * 12,
        bytes=8 * value.elements,
        epilogue=epilogue_of(node, context.graph),
    )
    return [Candidate("rows", (launch,))]


def _in_groups(node: Node, context: Context, source: int) -> Candidate:
    """Work-items that share a row."""
    (target,) = node.outputs
    value = context.value(target)
    items, rows = row_group(value.channels)
    groups = (ceil_div(value.pixels, rows), 1)
    launch = Launch(
        Instance(
            "reduction/softmax_groups.cl",
            instance_name(f"groups_{node.op.name.lower()}", f"r{items}"),
            defines(LOGARITHM=node.op == Op.LOG_SOFTMAX, ROW_ITEMS=items, ROWS=rows),
            parameters(
                PIXELS=value.pixels,
                CHANNELS=value.channels,
                PADDED=round_up(value.channels),
                IN_STRIDE=context.layout(source).pixel_stride,
                OUT_STRIDE=context.layout(target).pixel_stride,
                BETA=node.attributes["beta"],
            ),
            WorkGroup((items, rows), (LocalArray("partial", "float", GROUP_ITEMS),)),
        ),
        (source, target),
        units=groups[0],
        label=f"{node.op.name} {'x'.join(map(str, value.shape))}",
        sources=node.sources,
        flops=value.elements * 12,
        bytes=8 * value.elements,
        epilogue=epilogue_of(node, context.graph, QUAD),
        groups=groups,
    )
    return Candidate("groups", (launch,))


_REAL_OR_LEVELS = (ElementType.F32, ElementType.I8)

FAMILY = Family(
    operators=(Op.SOFTMAX, Op.LOG_SOFTMAX),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
    types={Op.SOFTMAX: Types((_REAL_OR_LEVELS,), (_REAL_OR_LEVELS,), alike=True)},
)
