"""SOFTMAX and LOG_SOFTMAX over the last dimension."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import Node
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
from runtime.delegates.gpu.parameters import parameters
from runtime.model.schema import BuiltinOperator as Op


def _supports(facts: OperatorFacts) -> Unsupported | None:
    return None if facts.shape(0) else Unsupported("a scalar has no axis")


def _read(facts: OperatorFacts) -> NodeSpec:
    return NodeSpec(facts.operator.inputs, {"beta": float(facts.options.get("beta", 1.0))})


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One kernel, a unit for each row of channels."""
    (source,), (target,) = node.inputs, node.outputs
    if source is None:
        raise ValueError(f"{node.op.name} has one input")
    value = context.value(target)
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


FAMILY = Family(
    operators=(Op.SOFTMAX, Op.LOG_SOFTMAX), read=_read, lower=lower, supports=_supports, epilogue=True
)
