"""MAX_POOL_2D, AVERAGE_POOL_2D and L2_POOL_2D."""

from collections.abc import Mapping

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Kind, Node, round_up
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.graph.work_groups import image_places, strided_vectors, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.windows import MOST_REACH, window_attributes
from runtime.model.schema import ActivationFunctionType
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support.quantization import activation_range

_KINDS: Mapping[Kind, int] = {Op.AVERAGE_POOL_2D: 0, Op.MAX_POOL_2D: 1, Op.L2_POOL_2D: 2}


_BYTES = (ElementType.I8, ElementType.U8)

_WINDOW = ("filter_h", "filter_w", "stride_h", "stride_w", "pad_top", "pad_left")
"""Attributes that are parameters of the kernels."""


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if spec.activation_of(facts) == "SIGN_BIT":
        return Unsupported("the fused activation SIGN_BIT has no kernel")
    if max(int(facts.options[f"filter_{side}"]) for side in ("height", "width")) > MOST_REACH:
        return Unsupported("so large a window has no kernel")
    if _is_of_levels(facts):
        tensors = facts.graph.subgraph.tensors
        given, made = (levels_of(tensors[i]) for i in (facts.operator.inputs[0], facts.operator.outputs[0]))
        # With one scale the mean or maximum of levels is a level of the output. `activation_range` has no
        # bounds for TANH, which bends numbers instead of bounding them.
        if given is None or given != made or spec.activation_of(facts) == "TANH":
            return Unsupported(
                "a pool of levels needs one scale for input and output, and no activation TANH"
            )
    return None


def _is_of_levels(facts: spec.OperatorFacts) -> bool:
    return facts.types.get(facts.operator.inputs[0]) in _BYTES


def _bounds(facts: spec.OperatorFacts) -> dict[str, int]:
    """`low` and `high`: the output's levels under the fused activation."""
    made = facts.graph.subgraph.tensors[facts.operator.outputs[0]]
    levels = levels_of(made)
    if levels is None:
        raise ValueError("a pool of levels was accepted without a scale")
    kind = ActivationFunctionType[spec.activation_of(facts)]
    low, high = activation_range(kind, levels.scale, levels.zero_point, made.type)
    return {"low": low, "high": high}


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    height, width = int(facts.options["filter_height"]), int(facts.options["filter_width"])
    attributes = {"filter_h": height, "filter_w": width, **window_attributes(facts, height, width)}
    if _is_of_levels(facts):
        return spec.NodeSpec(facts.operator.inputs, {**attributes, **_bounds(facts)})
    return spec.NodeSpec(facts.operator.inputs, attributes, spec.activation_of(facts))


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel: a unit is an output row, a work-item takes four channels of a pixel."""
    (source,), (target,), a = node.required, node.outputs, node.attributes
    before, after = context.value(source), context.value(target)
    _, in_h, in_w, _ = before.shape
    images, out_h, out_w, channels = after.shape
    is_of_levels = after.type in _BYTES
    in_groups = suits_groups(context.device) and not is_of_levels
    name = f"pool_{node.op.name.partition('_')[0].lower()}"
    kind: dict[str, int | str] = {"KIND": _KINDS[node.op]}
    shape = {"IN_H": in_h, "IN_W": in_w, **context.strides(IN=source, OUT=target)}
    shape |= {name.upper(): a[name] for name in _WINDOW}
    units: int | tuple[int, ...]
    if in_groups:
        group, units, vectors = strided_vectors(after)
        shape |= vectors | image_places(after)
        instance = spec.function("image/pool_groups.cl", f"f32_groups_{name}", kind, group, **shape)
    else:
        shape |= {"OUT_H": out_h, "OUT_W": out_w, "CHANNELS": round_up(channels)}
        file = "image/pool.cl"
        if is_of_levels:
            file, kind["T"] = "image/pool_levels.cl", after.type.opencl
            shape |= {"LOW": a["low"], "HIGH": a["high"]}
        instance, units = spec.function(file, f"f32_{name}", kind, **shape), images * out_h
    note = f"{a['filter_h']}x{a['filter_w']}s{a['stride_h']} {out_h}x{out_w}x{channels}"
    launch = context.launch(
        node,
        instance,
        (source, target),
        units,
        spec.Work(note, after.elements * a["filter_h"] * a["filter_w"]),
    )
    return [spec.Candidate("groups" if in_groups else "rows", (launch,))]


_REAL_OR_LEVELS = (ElementType.F32, *_BYTES)

FAMILY = spec.Family(
    operators=tuple(_KINDS),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
    # L2_POOL_2D takes float32 alone, as does every operator that is not named here.
    types=dict.fromkeys(
        (Op.AVERAGE_POOL_2D, Op.MAX_POOL_2D), spec.Types((_REAL_OR_LEVELS,), (_REAL_OR_LEVELS,), alike=True)
    ),
)
