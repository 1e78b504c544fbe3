"""Resource variables at the border of a partition, by the host: read before its run, assigned behind it.

A variable's content lies in the interpreter's memory, where other subgraphs find it. So a partition reads it
as one of its inputs and gives the new content as one of its outputs, and VAR_HANDLE, READ_VARIABLE,
ASSIGN_VARIABLE and CALL_ONCE around it need no kernels of a device.
"""

from collections.abc import Sequence

from runtime.delegates.base import GraphFacts, Unsupported
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator as Op

_BEFORE = frozenset({Op.VAR_HANDLE, Op.READ_VARIABLE, Op.CALL_ONCE})
HOST_OPERATORS = _BEFORE | {Op.ASSIGN_VARIABLE}
"""Operators that the host runs at the border of the partition that has them."""


def split(operators: Sequence[Operator]) -> tuple[tuple[Operator, ...], ...]:
    """Return the operators that the host runs before a partition, those of the delegate, and those behind."""
    before = tuple(o for o in operators if o.opcode in _BEFORE)
    inner = tuple(o for o in operators if o.opcode not in HOST_OPERATORS)
    return before, inner, tuple(o for o in operators if o.opcode is Op.ASSIGN_VARIABLE)


def border_refusal(facts: GraphFacts, operator: Operator) -> Unsupported | None:
    """Return why one of `HOST_OPERATORS` cannot stand at a partition's border, or None.

    A read that follows an assignment of the same variable would come before it there.
    """
    earlier = [o for o in facts.subgraph.operators[: operator.index] if o.opcode in HOST_OPERATORS]
    if operator.opcode is Op.CALL_ONCE:
        touched = (o for o in earlier if o.opcode in (Op.READ_VARIABLE, Op.ASSIGN_VARIABLE))
        return next((Unsupported(f"operator {o.index} {o.name} comes before it") for o in touched), None)
    if operator.opcode is Op.VAR_HANDLE:
        return None
    name = _variable(facts, operator)
    if name is None:
        return Unsupported("its variable's handle is made elsewhere")
    if operator.opcode is Op.READ_VARIABLE:
        for other in earlier:
            # A variable whose handle comes from elsewhere might be the same one.
            if other.opcode is Op.ASSIGN_VARIABLE and _variable(facts, other) in (name, None):
                return Unsupported(f"operator {other.index} {other.name} assigns its variable before it")
    return None


def _variable(facts: GraphFacts, operator: Operator) -> tuple[str, str] | None:
    """Return container and name of the variable of an operator; None where no VAR_HANDLE here tells it."""
    handle = operator.inputs[0]
    makers = (o for o in facts.subgraph.operators if o.opcode is Op.VAR_HANDLE and handle in o.outputs)
    return next(((o.options["container"], o.options["shared_name"]) for o in makers), None)
