"""CONCATENATION and PACK: passes resolve them into views and copies, so no node is left to lower.

PACK is rewritten by `canonicalise`, CONCATENATION by the layout pass.
"""

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if spec.activation_of(facts) != "NONE":
        return Unsupported(f"the fused activation {spec.activation_of(facts)} has no kernel")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    return spec.NodeSpec(
        facts.operator.inputs, {"axis": int(facts.options["axis"]) % len(facts.output_shape())}
    )


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:  # noqa: ARG001 - the protocol's signature
    """Never reached: raises ValueError."""
    raise ValueError(f"{node.op.name} must be resolved by the passes")


FAMILY = spec.Family(
    operators=(Op.CONCATENATION, Op.PACK),
    read=_read,
    lower=lower,
    supports=_supports,
    types=spec.moving(Op.CONCATENATION, Op.PACK),
)
