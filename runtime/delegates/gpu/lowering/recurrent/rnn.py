"""RNN and UNIDIRECTIONAL_SEQUENCE_RNN on floats: activation(W x + R h + b), step by step."""

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.recurrent.steps import (
    ACTIVATIONS,
    biases_packed,
    blocks_of,
    extent_of,
    matrices_packed,
    unsupported_cell,
    whole,
)
from runtime.model.schema import BuiltinOperator as Op

_WEIGHTS, _RECURRENT, _BIAS, _STATE = 1, 2, 3, 4


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    refused = unsupported_cell(facts, (_STATE,), (_WEIGHTS, _RECURRENT, _BIAS))
    if refused is None and len(facts.shape(_RECURRENT)) == 1:
        return Unsupported("diagonal recurrent weights have no kernel")
    return refused


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    attributes = {
        "activate": ACTIVATIONS[spec.activation_of(facts)],
        "time_major": bool(facts.options.get("time_major", False)),
    }
    return spec.NodeSpec(facts.operator.inputs, attributes, states={facts.operator.inputs[_STATE]: None})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One launch for each step."""
    x, weights, recurrent, bias, previous = node.inputs
    y, state = node.outputs
    if x is None or weights is None or recurrent is None or bias is None or previous is None:
        raise ValueError(f"{node.op.name} has five inputs")
    extent = extent_of(node, context.value(x).shape)
    matrix = np.concatenate([context.constant(weights), context.constant(recurrent)], axis=1)
    packed = matrices_packed(f"rnn{node.id}_weights", [matrix])
    start = biases_packed(f"rnn{node.id}_bias", [context.constant(bias)])
    units = int(matrix.shape[0])
    launches = []
    for t in range(extent.time):
        before = extent.rows(context, y, t - 1) if t else whole(context, previous)
        here, out = extent.rows(context, x, t), extent.rows(context, y, t)
        instance = spec.function(
            "recurrent/steps.cl",
            "f32_rnn_step",
            {
                "GATES": 1,
                "PEEPHOLES": 0,
                "SUMS_ONLY": 0,
                "KEEPS": 1,
                "ACTIVATE(x)": node.attributes["activate"],
            },
            CELLS=units,
            INPUTS=context.value(x).channels,
            OUTPUTS=units,
            **context.strides(STATE=state),
            **here.parameters("X"),
            **before.parameters("PREVIOUS"),
            **out.parameters("OUT"),
            **divisor("UNIT_BLOCKS", blocks_of(units)),
        )
        launches.append(
            context.launch(
                node,
                instance,
                (context.pointer(x), before.argument, packed, start, y, state),
                extent.batch * blocks_of(units),
                note=f"{units}",
                flops=2 * extent.batch * matrix.size,
                moved=4 * matrix.size,
            )
        )
    return [spec.Candidate("steps", tuple(launches))]


FAMILY = spec.Family(
    operators=(Op.RNN, Op.UNIDIRECTIONAL_SEQUENCE_RNN), read=_read, lower=lower, supports=_supports
)
