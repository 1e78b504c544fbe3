"""PAD and PADV2 with a constant, where no window operation absorbed the padding, and MIRROR_PAD."""

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import PLAIN, ElementType
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.movement.copies import Digit, Mirror, copy_launch, source_strides
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import MirrorPadMode

_LEVELS = (ElementType.I8, ElementType.U8)
"""Types that are padded with their zero points."""


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    # A mirror repeats what is there, whatever it stands for.
    if facts.operator.opcode != Op.MIRROR_PAD and _zero(facts) is None:
        return Unsupported("zero of integers without a scale might be any number")
    return None


def _zero(facts: spec.OperatorFacts) -> int | None:
    """Return the number that stands for zero: of levels their zero point; None if that is not known."""
    tensor = facts.graph.subgraph.tensors[facts.operator.inputs[0]]
    if facts.types.get(facts.operator.inputs[0]) not in _LEVELS:
        return 0
    levels = levels_of(tensor)
    return None if levels is None else levels.zero_point


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Read `paddings`, elements before and behind each axis, and their `value`, or `mode` of MIRROR_PAD.

    `zero`: the number that stands for zero.
    """
    paddings, value = facts.known(1), facts.constant(2)
    attributes: dict[str, object] = {
        "paddings": tuple((int(before), int(after)) for before, after in paddings.reshape(-1, 2))
    }
    if facts.operator.opcode == Op.MIRROR_PAD:
        attributes["mode"] = facts.options["mode"]
    else:
        attributes["zero"] = _zero(facts)
        attributes["value"] = attributes["zero"] if value is None else value.reshape(-1)[0].item()
    return spec.NodeSpec(facts.operator.inputs[:1], attributes)


def _digit(node: Node, extent: int, step: int, border: tuple[int, int]) -> Digit:
    # An axis that gets no border stays affine: the copy may join it with its neighbours.
    if "mode" not in node.attributes or border == (0, 0):
        return Digit(extent, step, border)
    skipped = int(node.attributes["mode"] is MirrorPadMode.REFLECT)
    return Digit(extent, step, mirror=Mirror(border[0], extent - sum(border), skipped))


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One copy."""
    extents = context.value(node.outputs[0]).shape
    shares = zip(extents, source_strides(node, context), node.attributes["paddings"], strict=True)
    axes = [[_digit(node, *share)] for share in shares]
    fill = node.attributes.get("value", 0)
    return [spec.Candidate("rows", (copy_launch(node, context, axes, fill=fill),))]


_PADDED = (*PLAIN, *_LEVELS)

FAMILY = spec.Family(
    operators=(Op.PAD, Op.PADV2, Op.MIRROR_PAD),
    read=_read,
    lower=lower,
    supports=_supports,
    constants={1: "the paddings", 2: "the padding value"},
    parameters=(1,),
    any_layout=True,
    types={
        **dict.fromkeys(
            (Op.PAD, Op.PADV2), spec.Types((_PADDED, (ElementType.F32,), _PADDED), (_PADDED,), alike=True)
        ),
        **spec.moving(Op.MIRROR_PAD, inputs=spec.PARAMETRISED),
    },
)
