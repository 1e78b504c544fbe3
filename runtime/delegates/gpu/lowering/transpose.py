"""TRANSPOSE: a gather with strides."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph import Graph, Layout, Node, Value, round_up
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    NodeSpec,
    OperatorFacts,
    defines,
    instance_name,
)
from runtime.model.schema import BuiltinOperator as Op

_AXES = 5
"""Leading dimensions that `kernels/transpose.cl` takes apart, so ranks up to 6; more stay on the CPU. Each
digit costs a division by a constant for every pixel."""

_UNITS = 16
"""Most units, and so most work-groups, of a gather, as of the copies in `reshape.py`."""


def element_strides(value: Value, layout: Layout) -> list[int]:
    """Distance in elements between neighbours along each dimension."""
    strides = [layout.channel_stride]
    step = layout.pixel_stride
    for extent in reversed(value.shape[:-1]):
        strides.append(step)
        step *= extent
    return strides[::-1] if value.shape else []


def gather(node: Node, context: Context, steps: Sequence[int], base: int = 0) -> Launch:
    """A launch that gathers the output: one step along output axis i moves `steps[i]` elements in the input.

    It begins at element `base` of the input.
    """
    (source,), (target,) = node.inputs[:1], node.outputs
    if source is None:
        raise ValueError(f"{node.op.name} needs its first input")
    value, layout = context.value(target), context.layout(target)
    extents = [1] * (_AXES - len(value.shape) + 1) + list(value.shape[:-1])
    leading = [0] * (_AXES - len(value.shape) + 1) + list(steps[:-1])
    digits: dict[str, int] = {}
    quotient = 1
    for axis in reversed(range(_AXES)):
        digits |= {f"QUOTIENT{axis}": quotient, f"EXTENT{axis}": extents[axis], f"STEP{axis}": leading[axis]}
        quotient *= extents[axis]
    tail = round_up(value.channels) - value.channels if layout.padded and value.pixels > 1 else 0
    return Launch(
        Instance(
            "transpose.cl",
            instance_name(f"{node.op.name.lower()}_gather"),
            defines(
                PIXELS=value.pixels,
                CHANNELS=value.channels,
                OUT_STRIDE=layout.pixel_stride,
                TAIL=tail,
                BASE=base,
                CHANNEL_STEP=steps[-1],
                **digits,
            ),
        ),
        (source, target),
        units=min(_UNITS, value.pixels),
        label=f"{node.op.name} {'x'.join(map(str, value.shape))}",
        sources=node.sources,
        bytes=8 * value.elements,
    )


def _supports(facts: OperatorFacts) -> Unsupported | None:
    if facts.constant(1) is None:
        return Unsupported("the permutation must be constant")
    rank = len(facts.shape(0))
    return None if 1 <= rank <= _AXES + 1 else Unsupported(f"rank {rank} is more than {_AXES + 1}")


def _read(facts: OperatorFacts) -> NodeSpec:
    permutation = facts.constant(1)
    if permutation is None:
        raise ValueError("TRANSPOSE was accepted without a constant permutation")
    rank = len(facts.shape(0))
    return NodeSpec(
        facts.operator.inputs[:1], {"perm": tuple(int(axis) % rank for axis in permutation.reshape(-1))}
    )


def _any_layout(node: Node, graph: Graph) -> bool:  # noqa: ARG001 - the protocol's signature
    return True


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One gather."""
    source = node.inputs[0]
    if source is None:
        raise ValueError("TRANSPOSE needs its first input")
    strides = element_strides(context.value(source), context.layout(source))
    return [Candidate("rows", (gather(node, context, [strides[axis] for axis in node.attributes["perm"]]),))]


FAMILY = Family(
    operators=(Op.TRANSPOSE,),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters=(1,),
    reads_any_layout=_any_layout,
    writes_dense=_any_layout,
)
