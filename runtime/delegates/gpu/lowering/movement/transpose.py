"""TRANSPOSE: a copy with the input's strides in another order."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import Node
from runtime.delegates.gpu.lowering.movement.copies import Digit, any_layout, copy_launch, source_strides
from runtime.delegates.gpu.lowering.spec import (
    PARAMETRISED,
    Candidate,
    Context,
    Family,
    NodeSpec,
    OperatorFacts,
    moving,
)
from runtime.model.schema import BuiltinOperator as Op


def _supports(facts: OperatorFacts) -> Unsupported | None:
    return Unsupported("the permutation must be constant") if facts.constant(1) is None else None


def _read(facts: OperatorFacts) -> NodeSpec:
    permutation = facts.constant(1)
    if permutation is None:
        raise ValueError("TRANSPOSE was accepted without a constant permutation")
    rank = len(facts.shape(0))
    return NodeSpec(
        facts.operator.inputs[:1], {"perm": tuple(int(axis) % rank for axis in permutation.reshape(-1))}
    )


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One copy."""
    shape, strides = context.value(node.outputs[0]).shape, source_strides(node, context)
    axes = [
        [Digit(extent, strides[axis])] for extent, axis in zip(shape, node.attributes["perm"], strict=True)
    ]
    return [Candidate("rows", (copy_launch(node, context, axes),))]


FAMILY = Family(
    operators=(Op.TRANSPOSE,),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters=(1,),
    reads_any_layout=any_layout,
    writes_dense=any_layout,
    types=moving(Op.TRANSPOSE, inputs=PARAMETRISED),
)
