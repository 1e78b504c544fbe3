"""TILE, BROADCAST_TO, STABLEHLO_BROADCAST_IN_DIM and FILL: a copy that repeats its input."""

from collections.abc import Mapping, Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import MOVABLE
from runtime.delegates.gpu.graph.graph import Kind, Node
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.movement.copies import Digit, copy_launch, source_strides
from runtime.model.schema import BuiltinOperator as Op

_PARAMETERS: Mapping[Kind, tuple[int, ...]] = {Op.TILE: (1,), Op.BROADCAST_TO: (1,), Op.FILL: (0,)}
"""Operator → the place of its multiples or its shape."""


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if facts.operator.opcode == Op.STABLEHLO_BROADCAST_IN_DIM:
        return None
    what = "multiples" if facts.operator.opcode == Op.TILE else "shape"
    (place,) = _PARAMETERS[facts.operator.opcode]
    return Unsupported(f"the {what} must be constant") if facts.constant(place) is None else None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Read the input that is repeated. `places`: the output's axis for each of its own, if that is given."""
    place = int(facts.operator.opcode == Op.FILL)
    places = tuple(map(int, facts.options.get("broadcast_dimensions", ())))
    return spec.NodeSpec(facts.operator.inputs[place : place + 1], {"places": places})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One copy. An axis of length 1 that is broadcast is one that is repeated whole, as in TILE."""
    source, target = context.value(node.first).shape, context.value(node.outputs[0]).shape
    places: Sequence[int] = range(len(target) - len(source), len(target))
    if node.op == Op.FILL:
        # Its one value may have the shape [1], and the result none.
        places = ()
    elif node.op == Op.STABLEHLO_BROADCAST_IN_DIM:
        places = node.attributes["places"]
    known = dict(zip(places, zip(source, source_strides(node, context), strict=True), strict=False))
    axes = []
    for axis, extent in enumerate(target):
        length, step = known.get(axis, (1, 0))
        # The higher digit counts repetitions, which do not move in the input.
        axes.append([Digit(extent // length), Digit(length, step)])
    return [spec.Candidate("rows", (copy_launch(node, context, axes),))]


FAMILY = spec.Family(
    operators=(*_PARAMETERS, Op.STABLEHLO_BROADCAST_IN_DIM),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters=_PARAMETERS,
    any_layout=True,
    types={
        **spec.moving(Op.TILE, Op.BROADCAST_TO, inputs=spec.PARAMETRISED),
        **spec.moving(Op.STABLEHLO_BROADCAST_IN_DIM),
        Op.FILL: spec.Types(spec.PARAMETRISED[::-1], (MOVABLE,), alike=True),
    },
)
