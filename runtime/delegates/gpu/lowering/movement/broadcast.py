"""TILE, BROADCAST_TO and FILL: a copy that repeats its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.element_type import MOVABLE
from runtime.delegates.gpu.graph import Kind, Node
from runtime.delegates.gpu.lowering.movement.copies import (
    Digit,
    any_layout,
    copy_launch,
    source_of,
    source_strides,
)
from runtime.delegates.gpu.lowering.spec import (
    PARAMETRISED,
    Candidate,
    Context,
    Family,
    NodeSpec,
    OperatorFacts,
    Types,
    moving,
)
from runtime.model.schema import BuiltinOperator as Op

_PARAMETERS: Mapping[Kind, tuple[int, ...]] = {Op.TILE: (1,), Op.BROADCAST_TO: (1,), Op.FILL: (0,)}
"""Operator → the place of its multiples or its shape."""


def _supports(facts: OperatorFacts) -> Unsupported | None:
    what = "multiples" if facts.operator.opcode == Op.TILE else "shape"
    (place,) = _PARAMETERS[facts.operator.opcode]
    return Unsupported(f"the {what} must be constant") if facts.constant(place) is None else None


def _read(facts: OperatorFacts) -> NodeSpec:
    """The input that is repeated."""
    place = int(facts.operator.opcode == Op.FILL)
    return NodeSpec(facts.operator.inputs[place : place + 1])


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One copy. An axis of length 1 that is broadcast is one that is repeated whole, as in TILE."""
    source, target = context.value(source_of(node)).shape, context.value(node.outputs[0]).shape
    # The one value of FILL may have the shape [1], and the result none.
    new = len(target) if node.op == Op.FILL else len(target) - len(source)
    lengths = (1,) * new + source[: len(target) - new]
    steps = [0] * new + source_strides(node, context)[: len(target) - new]
    axes = [
        [Digit(extent // length), Digit(length, step)]
        for extent, length, step in zip(target, lengths, steps, strict=True)
    ]
    return [Candidate("rows", (copy_launch(node, context, axes),))]


FAMILY = Family(
    operators=tuple(_PARAMETERS),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters=_PARAMETERS,
    reads_any_layout=any_layout,
    writes_dense=any_layout,
    types={
        **moving(Op.TILE, Op.BROADCAST_TO, inputs=PARAMETRISED),
        Op.FILL: Types(PARAMETRISED[::-1], (MOVABLE,), alike=True),
    },
)
