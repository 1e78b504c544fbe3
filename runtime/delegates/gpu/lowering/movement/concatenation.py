"""CONCATENATION and PACK: passes resolve them into views and copies, so no node is left to lower.

PACK is rewritten by `canonicalise`, CONCATENATION by the layout pass.
"""

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Family,
    NodeSpec,
    OperatorFacts,
    activation_of,
    moving,
)
from runtime.model.schema import BuiltinOperator as Op


def _supports(facts: OperatorFacts) -> Unsupported | None:
    if activation_of(facts) != "NONE":
        return Unsupported(f"the fused activation {activation_of(facts)} has no kernel")
    return None


def _read(facts: OperatorFacts) -> NodeSpec:
    return NodeSpec(facts.operator.inputs, {"axis": int(facts.options["axis"]) % len(facts.output_shape())})


def lower(node: Node, context: Context) -> list[Candidate]:  # noqa: ARG001 - the protocol's signature
    """Never reached: raises ValueError."""
    raise ValueError(f"{node.op.name} must be resolved by the passes")


FAMILY = Family(
    operators=(Op.CONCATENATION, Op.PACK),
    read=_read,
    lower=lower,
    supports=_supports,
    types=moving(Op.CONCATENATION, Op.PACK),
)
