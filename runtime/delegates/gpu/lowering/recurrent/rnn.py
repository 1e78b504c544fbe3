"""RNN and UNIDIRECTIONAL_SEQUENCE_RNN on floats: activation(W x + R h + b), step by step."""

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.recurrent import steps
from runtime.model.schema import BuiltinOperator as Op

_WEIGHTS, _RECURRENT, _BIAS, _STATE = 1, 2, 3, 4


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    refused = steps.unsupported_cell(facts, (_STATE,), (_WEIGHTS, _RECURRENT, _BIAS))
    if refused is None and len(facts.shape(_RECURRENT)) == 1:
        return Unsupported("diagonal recurrent weights have no kernel")
    return refused


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    attributes = {
        "activate": steps.ACTIVATIONS[spec.activation_of(facts)],
        "time_major": bool(facts.options.get("time_major", False)),
    }
    return spec.NodeSpec(facts.operator.inputs, attributes, states={facts.operator.inputs[_STATE]: None})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One launch for each step, behind one for the products of all inputs where work-groups make several."""
    (x, weights, recurrent, bias, previous), (y, state) = node.required, node.outputs
    extent = steps.extent_of(node, context.value(x).shape)
    matrices = [context.constant(weights)], [context.constant(recurrent)]
    sums = steps.sums_of(node, context, extent, *matrices, [context.constant(bias)])
    units = len(matrices[0][0])
    form = {
        "GATES": 1,
        "PEEPHOLES": 0,
        "SUMS_ONLY": 0,
        # Every step stores its result as the state too: that of the last one stays for the next run.
        "KEEPS": 1,
        "GIVEN": sums.given is not None,
        "ACTIVATE(x)": node.attributes["activate"],
    }
    launches = []
    for t in range(extent.time):
        # The output of the step before is what the cell remembers; the first step has the last run's.
        before = extent.rows(context, y, t - 1) if t else steps.whole(context, previous)
        here, out = sums.source(extent.rows(context, x, t)), extent.rows(context, y, t)
        instance = steps.step_function(
            context.device,
            "rnn_step",
            form,
            CELLS=units,
            INPUTS=sums.inputs,
            OUTPUTS=units,
            **context.strides(STATE=state),
            **here.parameters("X"),
            **before.parameters("PREVIOUS"),
            **out.parameters("OUT"),
            **divisor("UNIT_BLOCKS", steps.blocks_of(units)),
        )
        arguments = (here.argument, before.argument, sums.weights, *sums.biases, y, state)
        count = extent.batch * steps.blocks_of(units)
        work = extent.batch * units * (sums.inputs + units)
        launches.append(steps.step_launch(node, context, instance, arguments, count, work=work))
    return [spec.Candidate("steps", (*sums.ahead, *launches))]


FAMILY = spec.Family(
    operators=(Op.RNN, Op.UNIDIRECTIONAL_SEQUENCE_RNN), read=_read, lower=lower, supports=_supports
)
