"""RESHAPE, SQUEEZE and EXPAND_DIMS: a copy between layouts where the layout pass could not make a view."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.delegates.gpu.graph import Graph, Layout, Node, Value, round_up
from runtime.delegates.gpu.lowering.spec import (
    PARAMETRISED,
    Argument,
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    LineOf,
    NodeSpec,
    OperatorFacts,
    defines,
    instance_name,
    moving,
)
from runtime.model.schema import BuiltinOperator as Op

_UNITS = 16
"""Most units, and so most work-groups, of a copy. Chosen: copies are short and bound by memory, which few
threads saturate; a device with more compute units leaves some idle."""


def _read(facts: OperatorFacts) -> NodeSpec:
    return NodeSpec(facts.operator.inputs[:1])


def _any_layout(node: Node, graph: Graph) -> bool:  # noqa: ARG001 - the protocol's signature
    return True


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One copy.

    For a part of a concatenation the layout pass sets `tail`, `group_pixels` and `group_stride`.
    """
    (source,), (target,) = node.inputs, node.outputs
    if source is None:
        raise ValueError("RESHAPE has one input")
    before, after = context.value(source), context.value(target)
    read, write = context.layout(source), context.layout(target)
    tail = round_up(after.channels) - after.channels if write.padded else 0
    launch = Launch(
        Instance(
            "movement/reshape.cl",
            instance_name("reshape_copy"),
            defines(
                PIXELS=after.pixels,
                IN_CHANNELS=before.channels,
                OUT_CHANNELS=after.channels,
                IN_STRIDE=read.pixel_stride,
                IN_CHANNEL_STRIDE=read.channel_stride,
                OUT_STRIDE=write.pixel_stride,
                OUT_SHIFT=context.shift(target),
                GROUP=node.attributes.get("group_pixels", after.pixels),
                GROUP_STRIDE=node.attributes.get("group_stride", 0),
                TAIL=node.attributes.get("tail", tail),
                T=before.type.word,
            ),
        ),
        (context.pointer(source), LineOf(target)),
        units=min(_UNITS, after.pixels),
        label=f"copy {'x'.join(map(str, after.shape))}",
        sources=node.sources,
        bytes=2 * after.type.size * after.elements,
    )
    return [Candidate("rows", (launch,))]


def dense_copy(
    source: Argument, layout: Layout, value: Value, target: Argument, sources: tuple[int, ...]
) -> Launch:
    """A launch that writes the elements of a value in row-major order, without padded lanes."""
    return Launch(
        Instance(
            "movement/reshape.cl",
            instance_name("reshape_copy"),
            defines(
                PIXELS=value.pixels,
                IN_CHANNELS=value.channels,
                OUT_CHANNELS=value.channels,
                IN_STRIDE=layout.pixel_stride,
                IN_CHANNEL_STRIDE=layout.channel_stride,
                OUT_STRIDE=value.channels,
                OUT_SHIFT=0,
                GROUP=value.pixels,
                GROUP_STRIDE=0,
                TAIL=0,
                T=value.type.word,
            ),
        ),
        (source, target),
        units=min(_UNITS, value.pixels),
        label=f"copy {'x'.join(map(str, value.shape))}",
        sources=sources,
        bytes=2 * value.type.size * value.elements,
    )


FAMILY = Family(
    operators=(Op.RESHAPE, Op.SQUEEZE, Op.EXPAND_DIMS),
    read=_read,
    lower=lower,
    reads_any_layout=_any_layout,
    parameters=(1,),
    writes_dense=_any_layout,
    types=moving(Op.RESHAPE, Op.SQUEEZE, Op.EXPAND_DIMS, inputs=PARAMETRISED),
)
