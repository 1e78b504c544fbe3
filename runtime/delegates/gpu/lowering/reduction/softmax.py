"""SOFTMAX and LOG_SOFTMAX over the last dimension."""

from collections.abc import Mapping

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import work_groups
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Node, ceil_div, round_up
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.reduction.softmax import exponentials

_MOST_CLASSES = 4096
"""Classes of 8-bit levels that the 12 integer bits of the fixed-point sum hold, as on the CPU path."""

_LOWEST: Mapping[ElementType, int] = {ElementType.I8: -128, ElementType.U8: 0}
"""Types of levels → the level of zero in a softmax's output, as LiteRT's kernel asks for it."""

_UNITS = 16
"""Most units, and so most work-groups, of a softmax of levels: few rows are worth a group of their own."""


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if not facts.shape(0):
        return Unsupported("a scalar has no axis")
    kind = facts.types.get(facts.operator.inputs[0])
    if kind is None or kind not in _LOWEST:
        return None
    tensors = facts.graph.subgraph.tensors
    given, made = (levels_of(tensors[i]) for i in (facts.operator.inputs[0], facts.operator.outputs[0]))
    lowest = _LOWEST[kind]
    # Exactly 1 / 256, though the CPU path allows a thousandth more or less: such a model stays there.
    if given is None or made is None or (made.scale, made.zero_point) != (1 / 256, lowest):
        return Unsupported(
            f"a softmax of levels needs scales, and an output with 1 / 256 and the zero point {lowest}"
        )
    # The same two limits as the CPU path's kernel, which then reports them.
    if facts.shape(0)[-1] > _MOST_CLASSES or _real(facts, given.scale) < 1:
        return Unsupported("more classes, or a smaller scale, than fixed-point numbers hold")
    return None


def _real(facts: spec.OperatorFacts, scale: float) -> float:
    """Return the weight of a level in the exponent, in Q5.26."""
    return float(np.float32(facts.options.get("beta", 1.0))) * scale * (1 << 26)


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    attributes: dict[str, object] = {"beta": float(facts.options.get("beta", 1.0))}
    given = levels_of(facts.graph.subgraph.tensors[facts.operator.inputs[0]])
    if facts.types.get(facts.operator.inputs[0]) in _LOWEST and given is not None:
        attributes["exponentials"] = exponentials(_real(facts, given.scale)).astype(np.int32).tobytes()
    return spec.NodeSpec(facts.operator.inputs, attributes)


def _of_levels(node: Node, context: spec.Context, source: int) -> spec.Candidate:
    """Fixed-point numbers, exactly as LiteRT's reference kernel."""
    (target,) = node.outputs
    value, table = context.value(target), np.frombuffer(node.attributes["exponentials"], np.int32)
    launch = context.launch(
        node,
        spec.function(
            "reduction/softmax_levels.cl",
            "i8_softmax_levels",
            {"T": value.type.opencl},
            PIXELS=value.pixels,
            CHANNELS=value.channels,
            **context.strides(IN=source, OUT=target),
            LOWEST=_LOWEST[value.type],
        ),
        (source, spec.PackedConstant(f"table{target}", table.size, lambda: table, ElementType.I32), target),
        max(1, min(_UNITS, value.pixels)),
        spec.Work(f"{value.type.value} {value.extents}", value.elements * 12),
    )
    return spec.Candidate("rows", (launch,))


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel: a unit is a row of channels, which work-items of a group share."""
    (source,), (target,) = node.required, node.outputs
    value = context.value(target)
    if value.type in _LOWEST:
        return [_of_levels(node, context, source)]
    name, in_groups = node.op.name.lower(), work_groups.suits_groups(context.device)
    kind: dict[str, int | str] = {"LOGARITHM": node.op == Op.LOG_SOFTMAX}
    shape = {
        "CHANNELS": value.channels,
        "BETA": node.attributes["beta"],
        **context.strides(IN=source, OUT=target),
    }
    units: int | tuple[int, ...] = value.pixels
    instance = spec.function("reduction/softmax.cl", f"f32_{name}", kind, **shape)
    if in_groups:
        items, rows = work_groups.shared_rows(value, context.device)
        units = (ceil_div(value.pixels, rows), 1)
        instance = spec.function(
            "reduction/softmax_groups.cl",
            spec.instance_name(f"groups_{name}", f"r{items}"),
            spec.joined(kind, {"ROW_ITEMS": items, "ROWS": rows}),
            work_groups.WorkGroup(
                (items, rows), (work_groups.LocalArray("partial", "float", work_groups.GROUP_ITEMS),)
            ),
            **shape,
            PIXELS=value.pixels,
            PADDED=round_up(value.channels),
        )
    launch = context.launch(node, instance, (source, target), units, spec.Work(flops=value.elements * 12))
    return [spec.Candidate("groups" if in_groups else "rows", (launch,))]


_REAL_OR_LEVELS = (ElementType.F32, *_LOWEST)

FAMILY = spec.Family(
    operators=(Op.SOFTMAX, Op.LOG_SOFTMAX),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
    types={Op.SOFTMAX: spec.Types((_REAL_OR_LEVELS,), (_REAL_OR_LEVELS,), alike=True)},
)
