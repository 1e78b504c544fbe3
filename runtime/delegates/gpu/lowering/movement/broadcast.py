"""TILE and BROADCAST_TO: a copy that repeats its input."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import Node
from runtime.delegates.gpu.lowering.movement.copies import (
    Digit,
    any_layout,
    copy_launch,
    source_of,
    source_strides,
)
from runtime.delegates.gpu.lowering.spec import Candidate, Context, Family, NodeSpec, OperatorFacts
from runtime.model.schema import BuiltinOperator as Op


def _supports(facts: OperatorFacts) -> Unsupported | None:
    what = "multiples" if facts.operator.opcode == Op.TILE else "shape"
    return Unsupported(f"the {what} must be constant") if facts.constant(1) is None else None


def _read(facts: OperatorFacts) -> NodeSpec:
    return NodeSpec(facts.operator.inputs[:1])


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One copy. An axis of length 1 that is broadcast is one that is repeated whole, as in TILE."""
    source, target = context.value(source_of(node)).shape, context.value(node.outputs[0]).shape
    new = len(target) - len(source)
    lengths = (1,) * new + source
    steps = [0] * new + source_strides(node, context)
    axes = [
        [Digit(extent // length), Digit(length, step)]
        for extent, length, step in zip(target, lengths, steps, strict=True)
    ]
    return [Candidate("rows", (copy_launch(node, context, axes),))]


FAMILY = Family(
    operators=(Op.TILE, Op.BROADCAST_TO),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters=(1,),
    reads_any_layout=any_layout,
    writes_dense=any_layout,
)
