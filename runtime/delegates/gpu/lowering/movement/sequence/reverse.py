"""REVERSE_V2: a copy with steps backwards."""

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.movement.copies import Digit, copy_launch, source_strides
from runtime.model.schema import BuiltinOperator as Op


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    axes, rank = facts.known(1), len(facts.shape(0))
    chosen = [int(axis) % rank for axis in axes.reshape(-1) if -rank <= axis < rank]
    if len(set(chosen)) < axes.size:
        return Unsupported(f"axes {axes.reshape(-1).tolist()} are outside rank {rank}, or repeat")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    axes, rank = facts.known(1).reshape(-1), len(facts.shape(0))
    return spec.NodeSpec(facts.operator.inputs[:1], {"axes": tuple(int(axis) % rank for axis in axes)})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One copy, which begins at the last element of each axis that is reversed."""
    base, axes = 0, []
    steps = zip(context.value(node.outputs[0]).shape, source_strides(node, context), strict=True)
    for axis, (extent, step) in enumerate(steps):
        is_reversed = axis in node.attributes["axes"]
        base += (extent - 1) * step if is_reversed else 0
        axes.append([Digit(extent, -step if is_reversed else step)])
    return [spec.Candidate("rows", (copy_launch(node, context, axes, base),))]


FAMILY = spec.Family(
    operators=(Op.REVERSE_V2,),
    read=_read,
    lower=lower,
    supports=_supports,
    constants={1: "the axes"},
    parameters=(1,),
    any_layout=True,
    types=spec.moving(Op.REVERSE_V2, inputs=spec.PARAMETRISED),
)
