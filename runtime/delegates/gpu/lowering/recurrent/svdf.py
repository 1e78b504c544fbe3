"""SVDF, a bank of filters of low rank over time: on floats, and on int8 with an int16 state."""

from collections.abc import Mapping

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.graph.work_groups import LocalArray, WorkGroup, row_group, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.recurrent.integer_cell import shares_cells
from runtime.delegates.gpu.lowering.recurrent.steps import (
    ACTIVATIONS,
    for_lanes,
    mixed_types,
    unsupported_cell,
)
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support.quantization import quantize_multiplier

_FEATURE, _TIME, _BIAS, _STATE = 1, 2, 3, 4

_FLOATS, _LEVELS = (
    (ElementType.F32,) * 5,
    (ElementType.I8, ElementType.I8, ElementType.I16, ElementType.I32, ElementType.I16),
)
"""The types of the inputs on either path; the output has that of the first."""


def _is_integer(facts: spec.OperatorFacts) -> bool:
    return facts.types.get(facts.operator.inputs[0]) is ElementType.I8


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if (mixed := mixed_types(facts, _LEVELS if _is_integer(facts) else _FLOATS)) is not None:
        return mixed
    if _is_integer(facts) and spec.activation_of(facts) != "RELU":
        return Unsupported("integer filters without RELU have no kernel")
    return unsupported_cell(facts, (_STATE,), (_FEATURE, _TIME, _BIAS))


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    attributes = {"activate": ACTIVATIONS[spec.activation_of(facts)], "rank": int(facts.options["rank"])}
    if _is_integer(facts):
        attributes["scaling"] = _scaling(facts)
    return spec.NodeSpec(facts.operator.inputs, attributes, states={facts.operator.inputs[_STATE]: None})


def _scaling(facts: spec.OperatorFacts) -> dict[str, int]:
    """Return the parameters of the kernel of levels: zero points, and the factors as LiteRT rounds them."""
    tensors, inputs = facts.graph.subgraph.tensors, facts.operator.inputs
    x, y = levels_of(tensors[inputs[0]]), levels_of(tensors[facts.operator.outputs[0]])
    scales = [tensors[inputs[i]].quantization for i in (_FEATURE, _TIME, _STATE)]
    if x is None or y is None or any(q is None for q in scales):
        raise ValueError("SVDF was accepted without scales")
    feature, time, state = (np.float32(q.scales[0]) for q in scales if q is not None)
    # LiteRT multiplies the scales in single precision.
    into = quantize_multiplier(float(np.float32(x.scale) * feature / state))
    out_of = quantize_multiplier(float(state * time / np.float32(y.scale)))
    found = {"ZERO_IN": x.zero_point, "ZERO_OUT": y.zero_point}
    for name, (multiplier, shift) in (("IN", into), ("OUT", out_of)):
        found |= {
            f"MULTIPLIER_{name}": multiplier,
            f"LEFT_{name}": max(shift, 0),
            f"RIGHT_{name}": max(-shift, 0),
        }
    return found


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One launch; a unit is an output of one batch row, which work-items of a group share."""
    x, feature, time, previous = (node.input(i) for i in (0, _FEATURE, _TIME, _STATE))
    bias, (y, state) = node.inputs[_BIAS], node.outputs
    out, memory = context.value(y), context.value(time)
    scaling = node.attributes.get("scaling")
    element = ElementType.F32 if scaling is None else ElementType.I32
    start = np.zeros(out.channels, element.dtype) if bias is None else context.constant(bias)
    weights, times = context.value(feature), context.value(time)
    batch = context.value(x).pixels
    shape = {
        "RANK": node.attributes["rank"],
        "MEMORY": memory.channels,
        "INPUTS": context.value(x).channels,
        "PADDED_INPUTS": round_up(weights.channels),
        **context.strides(IN=x, OUT=y, STATE=previous, NEW_STATE=state),
        "TIME_STRIDE": round_up(times.channels),
        "TAIL": context.tail(y),
        "STATE_TAIL": context.tail(state),
        **divisor("OUT_UNITS", out.channels),
    }
    instance, units = _function(node, context, batch * out.channels, shape)
    moved = weights.type.size * weights.elements + times.type.size * times.elements
    launch = context.launch(
        node,
        instance,
        (
            context.pointer(x),
            context.pointer(previous),
            spec.pixels_packed(weights),
            spec.pixels_packed(times),
            spec.PackedConstant(f"svdf{node.id}_bias", out.channels, lambda: start, element),
            y,
            state,
        ),
        units,
        spec.Work(str(out.channels), 2 * batch * (weights.elements + times.elements), moved),
    )
    return [spec.Candidate("groups" if instance.work_group else "units", (launch,))]


def _function(
    node: Node, context: spec.Context, total: int, shape: Mapping[str, int]
) -> tuple[spec.Instance, int | tuple[int, ...]]:
    """Return the function for `total` outputs, and its units or groups."""
    activate, scaling = node.attributes["activate"], node.attributes.get("scaling")
    name, kind, values, form = "svdf", "float", shape, {"ACTIVATE(x)": activate}
    if scaling is not None:
        name, kind, values, form = "svdf_levels", "int", {**shape, **scaling}, {}
    form = for_lanes(form, context.device)
    # The kernel of levels is outside the portable subset: of work-groups those of OpenCL alone run it.
    if not (shares_cells(context.device) if scaling else suits_groups(context.device)):
        return spec.function(f"recurrent/{name}.cl", f"f32_{name}", form, **values), total
    items, rows = row_group(max(shape["INPUTS"], shape["MEMORY"]))
    instance = spec.function(
        f"recurrent/{name}_groups.cl",
        spec.instance_name(f"groups_{name}", f"r{items}"),
        spec.joined(form, {"ROW_ITEMS": items, "ROWS": rows}),
        WorkGroup((items, rows), (LocalArray("partial", kind, items * rows),)),
        TOTAL=total,
        **values,
    )
    return instance, (ceil_div(total, rows), 1)


FAMILY = spec.Family(
    operators=(Op.SVDF,),
    read=_read,
    lower=lower,
    supports=_supports,
    types={
        Op.SVDF: spec.Types(tuple(zip(_FLOATS, _LEVELS, strict=True)), ((ElementType.F32, ElementType.I8),))
    },
)
