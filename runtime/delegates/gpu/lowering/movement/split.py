"""SPLIT, SPLIT_V and UNPACK: the pass `canonicalise` makes a SLICE for each output, so none is lowered."""

from itertools import accumulate

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op

_DATA = {Op.SPLIT: 1, Op.SPLIT_V: 0, Op.UNPACK: 0}
"""Position of the input that is split."""

_AXIS = {Op.SPLIT: 0, Op.SPLIT_V: 2}
"""Position of the input that is the axis; UNPACK has an option."""


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    position = _AXIS.get(facts.operator.opcode)
    if position is not None and facts.constant(position) is None:
        return Unsupported("the axis must be constant")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """`axis`; `starts`: where each output begins on it; `drops_axis`: whether the outputs lack it."""
    opcode = facts.operator.opcode
    data = _DATA[opcode]
    axis = _axis(facts) % len(facts.shape(data))
    drops_axis = opcode == Op.UNPACK
    count = len(facts.operator.outputs)
    sizes = [1 if drops_axis else facts.output_shape(i)[axis] for i in range(count)]
    starts = tuple(accumulate(sizes[:-1], initial=0))
    attributes = {"axis": axis, "starts": starts, "drops_axis": drops_axis}
    return spec.NodeSpec((facts.operator.inputs[data],), attributes)


def _axis(facts: spec.OperatorFacts) -> int:
    position = _AXIS.get(facts.operator.opcode)
    if position is None:
        return int(facts.options["axis"])
    data = facts.constant(position)
    if data is None:
        raise ValueError(f"{facts.operator.opcode.name} was accepted without a constant axis")
    return int(data.reshape(-1)[0])


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:  # noqa: ARG001 - the protocol's signature
    """Never reached: raises ValueError."""
    raise ValueError(f"{node.op.name} must be rewritten by the pass canonicalise")


FAMILY = spec.Family(
    operators=tuple(_DATA),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters={Op.SPLIT: (0,), Op.SPLIT_V: (1, 2)},
    types=spec.moving(*_DATA),
)
