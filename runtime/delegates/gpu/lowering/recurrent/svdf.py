"""SVDF on floats: a bank of filters of low rank over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node, round_up
from runtime.delegates.gpu.graph.parameters import divisor, parameters
from runtime.delegates.gpu.lowering.recurrent.steps import ACTIVATIONS, unsupported_cell, vectors_packed
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    NodeSpec,
    OperatorFacts,
    activation_of,
    defines,
    instance_name,
    pixels_packed,
)
from runtime.model.schema import BuiltinOperator as Op

_FEATURE, _TIME, _BIAS, _STATE = 1, 2, 3, 4


def _supports(facts: OperatorFacts) -> Unsupported | None:
    return unsupported_cell(facts, (_STATE,), (_FEATURE, _TIME, _BIAS))


def _read(facts: OperatorFacts) -> NodeSpec:
    attributes = {"activate": ACTIVATIONS[activation_of(facts)], "rank": int(facts.options["rank"])}
    return NodeSpec(facts.operator.inputs, attributes, states={facts.operator.inputs[_STATE]: None})


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One launch; a unit is an output of one batch row."""
    x, feature, time, bias, previous = node.inputs
    y, state = node.outputs
    if x is None or feature is None or time is None or previous is None:
        raise ValueError("SVDF has weights and a state")
    out, memory, kept = context.value(y), context.value(time), context.value(state)
    start = np.zeros(out.channels, np.float32) if bias is None else context.constant(bias)
    weights, times = context.value(feature), context.value(time)
    write, fresh = context.layout(y), context.layout(state)
    batch = context.value(x).pixels
    launch = Launch(
        Instance(
            "recurrent/svdf.cl",
            instance_name("svdf"),
            defines(**{"ACTIVATE(x)": node.attributes["activate"]}),
            parameters(
                RANK=node.attributes["rank"],
                MEMORY=memory.channels,
                INPUTS=context.value(x).channels,
                PADDED_INPUTS=round_up(weights.channels),
                IN_STRIDE=context.layout(x).pixel_stride,
                OUT_STRIDE=write.pixel_stride,
                STATE_STRIDE=context.layout(previous).pixel_stride,
                NEW_STATE_STRIDE=fresh.pixel_stride,
                TIME_STRIDE=round_up(times.channels),
                TAIL=round_up(out.channels) - out.channels if write.padded else 0,
                STATE_TAIL=round_up(kept.channels) - kept.channels if fresh.padded else 0,
                **divisor("OUT_UNITS", out.channels),
            ),
        ),
        (
            context.pointer(x),
            context.pointer(previous),
            pixels_packed(weights),
            pixels_packed(times),
            vectors_packed(f"svdf{node.id}_bias", [start]),
            y,
            state,
        ),
        units=batch * out.channels,
        label=f"SVDF {out.channels}",
        sources=node.sources,
        flops=2 * batch * (weights.elements + times.elements),
        bytes=4 * (weights.elements + times.elements),
    )
    return [Candidate("units", (launch,))]


FAMILY = Family(operators=(Op.SVDF,), read=_read, lower=lower, supports=_supports)
