"""SPACE_TO_DEPTH, SPACE_TO_BATCH_ND and their inverses: a copy whose axes are made of parts of others.

The paddings of SPACE_TO_BATCH_ND and the crops of BATCH_TO_SPACE_ND are nodes of their own here: the pass
`canonicalise` puts a PAD in front and a SLICE behind.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from runtime.delegates.gpu.graph.graph import Kind, Node
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.movement.copies import Digit, copy_launch, source_strides
from runtime.model.schema import BuiltinOperator as Op

_BATCH = frozenset({Op.SPACE_TO_BATCH_ND, Op.BATCH_TO_SPACE_ND})

Axes: TypeAlias = list[list[Digit]]
Shape: TypeAlias = tuple[int, ...]


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """`blocks`: the block's length along each axis behind the batch; `edges`: what is padded or cropped."""
    if facts.operator.opcode not in _BATCH:
        return spec.NodeSpec(facts.operator.inputs[:1], {"blocks": (int(facts.options["block_size"]),) * 2})
    blocks, edges = facts.known(1), facts.known(2)
    attributes = {
        "blocks": tuple(int(block) for block in blocks.reshape(-1)),
        "edges": tuple((int(before), int(behind)) for before, behind in edges.reshape(-1, 2)),
    }
    return spec.NodeSpec(facts.operator.inputs[:1], attributes)


def _space_to_depth(shape: Shape, steps: Sequence[int], blocks: Shape) -> Axes:
    """Return the axes of the copy: a block's pixels are channels. `shape` is the output's, as below."""
    inner = [Digit(block, step) for block, step in zip(blocks, steps[1:], strict=False)]
    space = [[Digit(n, b * step)] for n, b, step in zip(shape[1:], blocks, steps[1:], strict=False)]
    return [[Digit(shape[0], steps[0])], *space, [*inner, Digit(shape[-1] // prod(blocks), steps[-1])]]


def _depth_to_space(shape: Shape, steps: Sequence[int], blocks: Shape) -> Axes:
    channels = Digit(shape[-1], steps[-1])
    space = []
    for i, block in enumerate(blocks):
        # The input's channels are ordered as [place in the block...][channel of the output].
        within = prod(blocks[i + 1 :]) * shape[-1] * steps[-1]
        space.append([Digit(shape[i + 1] // block, steps[i + 1]), Digit(block, within)])
    return [[Digit(shape[0], steps[0])], *space, [channels]]


def _space_to_batch(shape: Shape, steps: Sequence[int], blocks: Shape) -> Axes:
    """Return the axes of the copy, in which the places within a block count more than the batch."""
    places = [Digit(block, step) for block, step in zip(blocks, steps[1:], strict=False)]
    # 1 for the axes behind the blocks; `zip` ignores the surplus.
    factors = (*blocks, *(1,) * len(shape))
    others = [[Digit(n, f * step)] for n, f, step in zip(shape[1:], factors, steps[1:], strict=False)]
    return [[*places, Digit(shape[0] // prod(blocks), steps[0])], *others]


def _batch_to_space(shape: Shape, steps: Sequence[int], blocks: Shape) -> Axes:
    space = []
    for i, block in enumerate(blocks):
        # The input's batch is ordered as [place in the block...][batch of the output].
        place = Digit(block, prod(blocks[i + 1 :]) * shape[0] * steps[0])
        space.append([Digit(shape[i + 1] // block, steps[i + 1]), place])
    behind = len(blocks) + 1
    others = [[Digit(n, step)] for n, step in zip(shape[behind:], steps[behind:], strict=True)]
    return [[Digit(shape[0], steps[0])], *space, *others]


_AXES: Mapping[Kind, Callable[[Shape, Sequence[int], Shape], Axes]] = {
    Op.SPACE_TO_DEPTH: _space_to_depth,
    Op.DEPTH_TO_SPACE: _depth_to_space,
    Op.SPACE_TO_BATCH_ND: _space_to_batch,
    Op.BATCH_TO_SPACE_ND: _batch_to_space,
}


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One copy."""
    shape, steps = context.value(node.outputs[0]).shape, source_strides(node, context)
    axes = _AXES[node.op](shape, steps, node.attributes["blocks"])
    return [spec.Candidate("rows", (copy_launch(node, context, axes),))]


FAMILY = spec.Family(
    operators=tuple(_AXES),
    read=_read,
    lower=lower,
    constants=dict.fromkeys((1, 2), "the block shape and the paddings or crops"),
    parameters=(1, 2),
    any_layout=True,
    types=spec.moving(*_AXES, inputs=spec.PARAMETRISED),
)
