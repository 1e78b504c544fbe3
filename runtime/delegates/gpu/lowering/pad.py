"""PAD and PADV2 with a constant, where no window operation absorbed the padding."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import Graph, Node, round_up
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    NodeSpec,
    OperatorFacts,
    defines,
    instance_name,
)
from runtime.model.schema import BuiltinOperator as Op

_AXES = 4
"""Dimensions that `kernels/pad.cl` takes apart: N, H, W, C. A lower rank gets ones in front; a higher one
stays on the CPU."""


def _supports(facts: OperatorFacts) -> Unsupported | None:
    paddings = facts.constant(1)
    if paddings is None:
        return Unsupported("the paddings must be constant")
    if facts.has_input(2) and facts.constant(2) is None:
        return Unsupported("the padding value must be constant")
    if not 1 <= len(facts.shape(0)) <= _AXES:
        return Unsupported(f"rank {len(facts.shape(0))} is more than {_AXES}")
    return Unsupported("negative paddings have no kernel") if int(paddings.min()) < 0 else None


def _read(facts: OperatorFacts) -> NodeSpec:
    paddings, value = facts.constant(1), facts.constant(2) if facts.has_input(2) else None
    if paddings is None:
        raise ValueError("PAD was accepted without constant paddings")
    pairs = tuple((int(before), int(after)) for before, after in paddings.reshape(-1, 2))
    fill = 0.0 if value is None else float(value.reshape(-1)[0])
    return NodeSpec(facts.operator.inputs[:1], {"paddings": pairs, "value": fill})


def _any_layout(node: Node, graph: Graph) -> bool:  # noqa: ARG001 - the protocol's signature
    return True


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One kernel, a unit for each output row."""
    (source,), (target,) = node.inputs, node.outputs
    if source is None:
        raise ValueError("PAD has one input")
    before, after, layout = context.value(source), context.value(target), context.layout(target)
    missing = _AXES - len(after.shape)
    in_shape, out_shape = (1,) * missing + before.shape, (1,) * missing + after.shape
    start = [0] * missing + [pair[0] for pair in node.attributes["paddings"]]
    extents = {f"OUT_{letter}": out_shape[i] for i, letter in enumerate("NHWC")}
    extents |= {f"IN_{letter}": in_shape[i] for i, letter in enumerate("NHWC")}
    extents |= {f"BEFORE_{letter}": start[i] for i, letter in enumerate("NHWC")}
    launch = Launch(
        Instance(
            "pad.cl",
            instance_name("pad_constant"),
            defines(
                IN_STRIDE=context.layout(source).pixel_stride,
                OUT_STRIDE=layout.pixel_stride,
                TAIL=round_up(after.channels) - after.channels if layout.padded and after.pixels > 1 else 0,
                VALUE=node.attributes["value"],
                **extents,
            ),
        ),
        (source, target),
        units=out_shape[0] * out_shape[1],
        label=f"{node.op.name} {'x'.join(map(str, after.shape))}",
        sources=node.sources,
        bytes=4 * (before.elements + after.elements),
    )
    return [Candidate("rows", (launch,))]


FAMILY = Family(
    operators=(Op.PAD, Op.PADV2),
    read=_read,
    lower=lower,
    supports=_supports,
    writes_dense=_any_layout,
    parameters=(1,),
)
