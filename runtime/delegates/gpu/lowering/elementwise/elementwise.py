"""Element-wise operators: each is a chain of epilogue steps that starts with the load of an operand.

Most of them never reach `lower`: the pass `fuse_epilogue` appends them to the kernel of their operand.
"""

from math import prod

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.epilogue import BOUNDS, MAX_OPERANDS, can_broadcast
from runtime.delegates.gpu.graph.graph import Node, Step, round_up
from runtime.delegates.gpu.graph.work_groups import strided_vectors, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op

_BINARY = {
    Op.ADD: "ADD",
    Op.SUB: "SUB",
    Op.MUL: "MUL",
    Op.DIV: "DIV",
    Op.MAXIMUM: "MAXIMUM",
    Op.MINIMUM: "MINIMUM",
    Op.SQUARED_DIFFERENCE: "SQUARED_DIFFERENCE",
    Op.PRELU: "PRELU",
    Op.POW: "POW",
    Op.FLOOR_MOD: "FLOOR_MOD",
    Op.ATAN2: "ATAN2",
    Op.STABLEHLO_ADD: "ADD",
    Op.STABLEHLO_MULTIPLY: "MUL",
    Op.STABLEHLO_MAXIMUM: "REVERSE_MAXIMUM",
    Op.STABLEHLO_MINIMUM: "REVERSE_MINIMUM",
}
"""Operator → its step. Where one operand is NaN, StableHLO's extrema give the first operand, MAXIMUM and
MINIMUM the second."""

_FUSING = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.DIV})
"""Operators with the option of a fused activation."""

_UNARY = {
    Op.RELU: "RELU",
    Op.RELU6: "RELU6",
    Op.RELU_N1_TO_1: "RELU_N1_TO_1",
    Op.RELU_0_TO_1: "RELU_0_TO_1",
    Op.TANH: "TANH",
    Op.LOGISTIC: "LOGISTIC",
    Op.HARD_SWISH: "HARD_SWISH",
    Op.ELU: "ELU",
    Op.ABS: "ABS",
    Op.NEG: "NEG",
    Op.SQUARE: "SQUARE",
    Op.SQRT: "SQRT",
    Op.RSQRT: "RSQRT",
    Op.EXP: "EXP",
    Op.LOG: "LOG",
    Op.SIN: "SIN",
    Op.COS: "COS",
    Op.FLOOR: "FLOOR",
    Op.CEIL: "CEIL",
    Op.ROUND: "ROUND",
    Op.SIGN: "SIGN",
}
_UNITS = 32
"""Most units, and so most work-groups, of a launch. Chosen: several for each thread of the usual CPU device;
a device with more compute units leaves some idle."""

_VECTORS_PER_UNIT = 8
"""Vectors of 16 that a unit has at least: with fewer, handing a unit to a thread costs more than its work."""


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    output = facts.output_shape()
    for i in range(len(facts.operator.inputs)):
        if not can_broadcast(facts.shape(i), output):
            return Unsupported(
                f"shape {list(facts.shape(i))} cannot be broadcast to {list(output)} by the kernel"
            )
    if spec.activation_of(facts) == "SIGN_BIT":
        return Unsupported("the fused activation SIGN_BIT has no kernel")
    if len(facts.operator.inputs) > MAX_OPERANDS:
        return Unsupported(f"{len(facts.operator.inputs)} operands, of which a kernel takes {MAX_OPERANDS}")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    operator = facts.operator
    first = Step("LOAD", (operator.inputs[0],))
    activation = spec.activation_of(facts) if operator.opcode in _FUSING else None
    if operator.opcode == Op.ADD_N:
        # Each sum of two is kept within the finite numbers, not only the last one.
        added = (step for i in operator.inputs[1:] for step in (Step("ADD", (i,)), Step("SATURATE")))
        return spec.NodeSpec((), steps=(first, *added))
    return spec.NodeSpec((), steps=(first, _second_step(facts)), activation=activation)


def _second_step(facts: spec.OperatorFacts) -> Step:
    operator, op = facts.operator, facts.operator.opcode
    # A single exponent for all elements is multiplied out by LiteRT if it is a whole number.
    if op == Op.POW and prod(facts.shape(1)) == 1 and facts.shape(1) != facts.shape(0):
        return Step("POW_ALONE", (operator.inputs[1],))
    if op in _BINARY:
        return _binary_step(_BINARY[op], operator.inputs[1], facts)
    if op == Op.LEAKY_RELU:
        return Step("LEAKY_RELU", (), (float(facts.options["alpha"]),))
    if op == Op.GELU:
        return Step("GELU_APPROXIMATE" if facts.options.get("approximate") else "GELU")
    return Step(_UNARY[op])


def _binary_step(name: str, operand: int, facts: spec.OperatorFacts) -> Step:
    """Return a binary step; a constant of one element becomes a number of the step."""
    data = facts.graph.constants.get(operand)
    if data is not None and data.size == 1 and name in ("ADD", "MUL"):
        return Step(f"{name}_SCALAR", (), (float(data.reshape(-1)[0]),))
    return Step(name, (operand,))


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel: a unit is a range of pixels; work-items take the vectors of all pixels in turn."""
    (target,) = node.outputs
    value, stride, in_groups = (
        context.value(target),
        context.strides(OUT=target),
        suits_groups(context.device),
    )
    units: int | tuple[int, ...]
    if in_groups:
        group, units, vectors = strided_vectors(value)
        instance = spec.function(
            "elementwise/elementwise_groups.cl", "f32_groups_elementwise", {}, group, **stride, **vectors
        )
    else:
        ops = (
            "clamp" if step.op in BOUNDS else step.op.lower() for step in node.epilogue if step.op != "LOAD"
        )
        channels = round_up(value.channels)
        instance = spec.function(
            "elementwise/elementwise.cl",
            f"f32_elementwise_{'_'.join(ops)}",
            {},
            **stride,
            PIXELS=value.pixels,
            CHANNELS=channels,
        )
        units = max(1, min(_UNITS, value.pixels * channels // (16 * _VECTORS_PER_UNIT), value.pixels))
    operations = max(1, len(node.epilogue) - 1)
    launch = context.launch(
        node,
        instance,
        (target,),
        units,
        spec.Work(flops=value.elements * operations, moved=value.bytes * (1 + len(node.reads))),
    )
    return [spec.Candidate("groups" if in_groups else "rows", (launch,))]


FAMILY = spec.Family(
    operators=(*_BINARY, *_UNARY, Op.LEAKY_RELU, Op.GELU, Op.ADD_N),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
)
