"""L2_NORMALIZATION over the last dimension, LOCAL_RESPONSE_NORMALIZATION across neighbouring channels.

With the attribute `epsilon`, which the pass `fuse_norms` gives, it is the norm of a layer instead.
"""

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import work_groups
from runtime.delegates.gpu.graph.graph import Node, ceil_div, round_up
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op

_LOCAL = ("alpha", "beta", "bias")


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if not facts.shape(0):
        return Unsupported("a scalar has no dimension to normalise")
    if facts.operator.opcode == Op.LOCAL_RESPONSE_NORMALIZATION:
        radius = int(facts.options["radius"])
        return Unsupported(f"a radius of {radius}") if radius < 0 else None
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """LiteRT's L2_NORMALIZATION has the option of a fused activation, and ignores it."""
    if facts.operator.opcode == Op.L2_NORMALIZATION:
        return spec.NodeSpec(facts.operator.inputs)
    attributes = {name: float(facts.options[name]) for name in _LOCAL}
    return spec.NodeSpec(facts.operator.inputs, {**attributes, "radius": int(facts.options["radius"])})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel, a unit for each row of channels."""
    (source,), (target,) = node.required, node.outputs
    value = context.value(target)
    shape: dict[str, int | float] = {"CHANNELS": value.channels, **context.strides(IN=source, OUT=target)}
    in_groups = work_groups.suits_groups(context.device) and node.op == Op.L2_NORMALIZATION
    items, rows = work_groups.shared_rows(value, context.device)
    kernel = "normalization_l2"
    if "epsilon" in node.attributes:
        kernel = "normalization_layer"
        shape |= {"SCALE": 1.0 / value.channels, "EPSILON": node.attributes["epsilon"]}
    if in_groups:
        instance = spec.function(
            f"reduction/{kernel}_groups.cl",
            spec.instance_name(f"groups_{kernel}", f"r{items}"),
            {"ROW_ITEMS": items, "ROWS": rows},
            work_groups.WorkGroup(
                (items, rows), (work_groups.LocalArray("partial", "float", work_groups.GROUP_ITEMS),)
            ),
            PIXELS=value.pixels,
            PADDED=round_up(value.channels),
            **shape,
        )
    elif node.op == Op.L2_NORMALIZATION:
        instance = spec.function(f"reduction/{kernel}.cl", f"f32_{kernel}", {}, **shape)
    else:
        radius = min(node.attributes["radius"], value.channels)
        options = {name.upper(): node.attributes[name] for name in _LOCAL}
        # A private array has a constant size; its powers of two are few.
        capacity = {"CAPACITY": 1 << (2 * radius + round_up(value.channels) - 1).bit_length()}
        file, name = "reduction/normalization_local.cl", "f32_normalization_local"
        instance = spec.function(file, name, capacity, RADIUS=radius, **options, **shape)
    launch = context.launch(
        node,
        instance,
        (source, target),
        (ceil_div(value.pixels, rows), 1) if in_groups else value.pixels,
        spec.Work(flops=value.elements * 4),
    )
    return [spec.Candidate("groups" if in_groups else "rows", (launch,))]


FAMILY = spec.Family(
    operators=(Op.L2_NORMALIZATION, Op.LOCAL_RESPONSE_NORMALIZATION),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
)
