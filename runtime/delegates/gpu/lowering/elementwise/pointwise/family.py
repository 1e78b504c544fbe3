"""Element-wise operators on integers and bools, comparisons, selections and casts; operands are broadcast.

So is QUANTIZE of int16 levels that are no real numbers in the graph.

Each is one expression of vectors. What works on float32 alone is of the family `elementwise`, whose steps are
fused into other kernels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import PLAIN, ElementType, ElementTypes, element_type
from runtime.delegates.gpu.graph.epilogue import broadcast_shape
from runtime.delegates.gpu.graph.graph import LANES, Kind, Node, Value, round_up
from runtime.delegates.gpu.graph.parameters import Digit, offset
from runtime.delegates.gpu.graph.work_groups import most_units, strided_vectors, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.elementwise.pointwise.expressions import (
    BOOL,
    CLAMPS,
    F32,
    GROUPED,
    I32,
    I64,
    expression_of,
    grouped_expression_of,
)
from runtime.delegates.gpu.lowering.movement.copies import element_strides
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support.quantization import quantize_multiplier

_REQUANTISING = ("MULTIPLIER", "LEFT", "RIGHT", "ZERO_IN", "ZERO_OUT")
"""Parameters of QUANTIZE, in the order of the attribute `requantisation`."""

_ALL: ElementTypes = (*PLAIN, ElementType.U8, ElementType.I8, ElementType.I16)
_BOTH: ElementTypes = (I32, I64)
_NUMBERS: ElementTypes = (F32, I32, I64)
_TYPES: Mapping[Kind, spec.Types] = {
    Op.CAST: spec.Types((_ALL,), (_ALL,)),
    Op.QUANTIZE: spec.Types(((ElementType.I16,),), ((I32, ElementType.I16, ElementType.I8),)),
    Op.BITCAST: spec.Types((_NUMBERS,), (_NUMBERS,)),
    **dict.fromkeys((Op.SELECT, Op.SELECT_V2), spec.Types(((BOOL,), _ALL), (_ALL,), alike=True)),
    **dict.fromkeys((Op.EQUAL, Op.NOT_EQUAL), spec.Types((PLAIN,), ((BOOL,),), alike=True)),
    **dict.fromkeys(
        (Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL),
        spec.Types((_NUMBERS,), ((BOOL,),), alike=True),
    ),
    **{
        op: spec.Types((types,), (types,), alike=True)
        for types, operators in {
            (BOOL,): (Op.LOGICAL_AND, Op.LOGICAL_OR, Op.LOGICAL_NOT),
            _BOTH: (
                Op.ADD, Op.SUB, Op.MUL, Op.MAXIMUM, Op.MINIMUM, Op.NEG, Op.FLOOR_MOD, Op.STABLEHLO_SHIFT_LEFT,
            ),
            # Its floats are here for the check of the divisor.
            _NUMBERS: (Op.FLOOR_DIV, Op.STABLEHLO_REMAINDER, Op.STABLEHLO_CLAMP),
            (I32,): (Op.ADD_N, Op.DIV, Op.POW, Op.SQUARED_DIFFERENCE, Op.ABS, Op.SIGN, Op.RIGHT_SHIFT),
            (F32,): (Op.STABLEHLO_CBRT,),
            (I32, BOOL): (Op.BITWISE_XOR,),
            (I32, I64, BOOL): (
                Op.STABLEHLO_ADD, Op.STABLEHLO_MULTIPLY, Op.STABLEHLO_MAXIMUM, Op.STABLEHLO_MINIMUM,
                Op.STABLEHLO_AND,
            ),
        }.items()
        for op in operators
    },
}  # fmt: skip
"""Operator → the types that the CPU path has, but for those of the family `elementwise`."""


@dataclass(frozen=True, slots=True)
class _Forbidden:
    """Second operands with which LiteRT ends a run: the error's words, and the expression that finds them."""

    text: str
    expression: str
    occurs: Callable[[spec.Array], bool]


_NO_DIVISOR = _Forbidden("division by zero", "({1} == ({v})0)", lambda divisors: not divisors.all())
_FORBIDDEN: Mapping[Kind, _Forbidden] = {
    **dict.fromkeys((Op.DIV, Op.FLOOR_DIV, Op.FLOOR_MOD, Op.STABLEHLO_REMAINDER), _NO_DIVISOR),
    Op.POW: _Forbidden(
        "an integer to a negative power", "({1} < ({v})0)", lambda exponents: bool((exponents < 0).any())
    ),
}

_GROUPED_LOADS: Mapping[ElementType, str] = {
    F32: "LOAD({0})",
    I32: "((int)LOAD_WORD({0}))",
    BOOL: "((int)LOAD_BYTE({0}))",
}
"""Type of an operand → the load of one of its elements in a kernel of work-groups."""

_UNSAFE: frozenset[Kind] = frozenset({Op.FLOOR_DIV, Op.STABLEHLO_REMAINDER})
"""Operators of floats that make Inf or NaN of the zeros in padded lanes."""

_UNITS = 32
"""Most units, and so most work-groups, of a launch. Chosen: several for each thread of the usual CPU device;
a device with more compute units leaves some idle."""

_VECTORS_PER_UNIT = 8
"""Vectors of 16 that a unit has at least: with fewer, handing a unit to a thread costs more than its work."""


def _forbidden(op: Kind, first: ElementType | None) -> _Forbidden | None:
    """Return the condition that the second operand must not fulfil: floats have a remainder by zero."""
    return None if op == Op.STABLEHLO_REMAINDER and first is F32 else _FORBIDDEN.get(op)


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if spec.activation_of(facts) not in CLAMPS:
        return Unsupported(f"the fused activation {spec.activation_of(facts)} has no kernel")
    if facts.operator.opcode == Op.BITCAST:
        return _bitcast_refusal(facts)
    if facts.operator.opcode == Op.QUANTIZE:
        return None if _requantisation(facts) else Unsupported("input and output have not one scale each")
    first = facts.types.get(facts.operator.inputs[0])
    forbidden, second = _forbidden(facts.operator.opcode, first), facts.constant(1)
    if forbidden is not None and second is not None and forbidden.occurs(second):
        return Unsupported(f"{forbidden.text}: the CPU path ends the run")
    return None


def _bitcast_refusal(facts: spec.OperatorFacts) -> Unsupported | None:
    tensors = (facts.operator.inputs[0], facts.operator.outputs[0])
    names = [facts.graph.subgraph.tensors[tensor].type for tensor in tensors]
    sizes = {found.size for kind in names if (found := element_type(kind)) is not None}
    text = " as ".join(kind.name.lower() for kind in names)
    return None if len(sizes) == 1 else Unsupported(f"{text}, an element of another size, has no kernel")


def _requantisation(facts: spec.OperatorFacts) -> tuple[int, ...] | None:
    """Return multiplier, left and right shift, and both zero points of a QUANTIZE; None without scales."""
    tensors = facts.graph.subgraph.tensors
    given, made = (tensors[i].quantization for i in (facts.operator.inputs[0], facts.operator.outputs[0]))
    if given is None or made is None or not len(given.scales) == len(made.scales) == 1 or not made.scales[0]:
        return None
    multiplier, shift = quantize_multiplier(given.scales[0] / made.scales[0])
    return multiplier, max(shift, 0), max(-shift, 0), given.zero_points[0], made.zero_points[0]


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """`clamp`: the fused activation; `rows`: whether a condition has one flag for each row of the values.

    `alone`: whether a power has one exponent for all. QUANTIZE has its `requantisation` alone.
    """
    if facts.operator.opcode == Op.QUANTIZE:
        return spec.NodeSpec(facts.operator.inputs, {"rows": False, "requantisation": _requantisation(facts)})
    attributes = {
        "clamp": spec.activation_of(facts),
        "rows": facts.operator.opcode == Op.SELECT and _selects_rows(facts),
        "alone": facts.operator.opcode == Op.POW and facts.shape(1) != facts.shape(0) and _is_one(facts, 1),
    }
    return spec.NodeSpec(facts.operator.inputs, attributes)


def _is_one(facts: spec.OperatorFacts, i: int) -> bool:
    return all(extent == 1 for extent in facts.shape(i))


def _selects_rows(facts: spec.OperatorFacts) -> bool:
    condition, values = facts.shape(0), facts.shape(1)
    return len(condition) == 1 and len(values) > 1 and condition == values[:1]


@dataclass(frozen=True, slots=True)
class _Operand:
    """The load of 16 lanes of an operand from channel c of pixel p on, with the parameters of its place.

    `is_splat`: whether one element fills all lanes, padded ones included.
    """

    load: str
    parameters: Mapping[str, int]
    is_splat: bool


def _operand(
    position: int, value: Value, strides: Sequence[int], output: Value, *, is_grouped: bool
) -> _Operand:
    digits = [Digit(extent, step) for extent, step in zip(output.shape[:-1], strides[:-1], strict=True)]
    row, kind = offset(f"X{position}", digits, "p"), value.type.opencl
    is_splat = output.channels > 1 and strides[-1] == 0
    place = f"x{position} + {row.expression}"
    if is_grouped:
        index = f"{row.expression}{'' if is_splat else ' + (c)'}"
        load = _GROUPED_LOADS[value.type].format(f"x{position}, {index}")
        return _Operand(load, row.parameters, is_splat)
    load = f"(({kind}16)(*({place})))" if is_splat else f"LOAD16({kind}, {place} + c)"
    return _Operand(load, row.parameters, is_splat)


def _operands(
    node: Node, context: spec.Context, output: Value, *, is_grouped: bool = False
) -> list[_Operand]:
    """Return the node's operands, each broadcast to the output's shape."""
    found = []
    for position, source in enumerate(node.reads[: len(node.inputs)]):
        value = context.value(source)
        shape, steps = value.shape, element_strides(value, context.layout(source))
        if position == 0 and node.attributes["rows"]:
            ones = len(output.shape) - 1
            shape, steps = (*shape, *(1,) * ones), [*steps, *(0,) * ones]
        found.append(_operand(position, value, _strides(shape, steps, output), output, is_grouped=is_grouped))
    return found


def _strides(shape: Sequence[int], steps: Sequence[int], output: Value) -> list[int]:
    """Elements between neighbours of an operand along each axis of the output, 0 where it is broadcast."""
    # A scalar lies in memory as one pixel of one channel.
    rank = max(1, len(output.shape))
    padded = [*(0,) * (rank - len(steps)), *steps]
    return [step if n > 1 else 0 for n, step in zip(broadcast_shape(shape, rank), padded, strict=True)]


def _check(node: Node, values: Sequence[Value], loads: Sequence[str]) -> tuple[tuple[spec.Check, ...], str]:
    """Return the check of a computed second operand, if any, and the expression of its forbidden values."""
    forbidden = _forbidden(node.op, values[0].type)
    if forbidden is None or values[1].is_constant:
        return (), "0"
    expression = forbidden.expression.replace("{v}", f"{values[1].type.opencl}16").format(*loads)
    return (spec.Check.of(node, forbidden.text),), expression


def _grouped(node: Node, context: spec.Context, values: Sequence[Value]) -> spec.Launch:
    """Return the launch of the kernel of work-groups."""
    (target,) = node.outputs
    output = context.value(target)
    operands = _operands(node, context, output, is_grouped=True)
    types = [value.type for value in values]
    expression = grouped_expression_of(node, types, output.type).format(*(one.load for one in operands))
    group, groups, vectors = strided_vectors(output)
    valid = {}
    # Padded lanes must stay finite, whatever the expression makes of the zeros in them.
    if output.type is F32 and output.channels != round_up(output.channels):
        expression, valid = f"((c) < VALID ? {expression} : 0.0f)", {"VALID": output.channels}
    names = "_".join(one.name.lower() for one in (*types, output.type))
    pointers = tuple(context.pointer(value.id) for value in values)
    moved = sum(value.bytes for value in (*values, output))
    return context.launch(
        node,
        spec.function(
            "elementwise/pointwise/groups.cl",
            f"f32_groups_pointwise_{node.op.name.lower()}_{names}",
            {
                "INPUTS": ", ".join(f"INPUT(x{i})" for i in range(len(values))),
                "VALUE(p, c)": f"({expression})",
                "IS_FLOAT": output.type is F32,
                "WIDTH": output.type.size,
            },
            group,
            **context.strides(OUT=target),
            **vectors,
            **valid,
            **{name: n for operand in operands for name, n in operand.parameters.items()},
        ),
        (*pointers, target),
        groups,
        spec.Work(flops=output.elements, moved=moved),
    )


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel over all pixels."""
    (target,) = node.outputs
    output, channels = context.value(target), round_up(context.value(target).channels)
    values = [context.value(source) for source in node.reads[: len(node.inputs)]]
    has_types = {output.type, *(value.type for value in values)} <= _GROUPED_LOADS.keys()
    if suits_groups(context.device) and node.op in GROUPED and has_types:
        return [spec.Candidate("groups", (_grouped(node, context, values),))]
    operands = _operands(node, context, output)
    shape = {"PIXELS": output.pixels, "CHANNELS": channels, "OUT_STRIDE": context.layout(target).pixel_stride}
    loads = [operand.load for operand in operands]
    expression = expression_of(node, [value.type for value in values], output.type).format(*loads)
    pointers = [f"__global const {value.type.opencl} *restrict x{i}" for i, value in enumerate(values)]
    check, forbidden = _check(node, values, loads)
    # One Inf or NaN in a padded lane would spread over real channels in the next product: 0 * Inf is NaN.
    is_unsafe = node.op in _UNSAFE or any(operand.is_splat for operand in operands)
    if output.type is F32 and channels != output.channels and is_unsafe:
        expression, shape["VALID"] = f"mask16({expression}, c, VALID)", output.channels
    if node.op == Op.QUANTIZE:
        shape |= dict(zip(_REQUANTISING, node.attributes["requantisation"], strict=True))
    if check:
        # Checked up to VALID only, since padded lanes may hold a divisor of zero.
        pointers.append("__global int *restrict failed")
        shape["VALID"] = output.channels
    types = "_".join(value.type.name.lower() for value in (*values, output))
    launch = context.launch(
        node,
        spec.function(
            "elementwise/pointwise/vectors.cl",
            f"f32_pointwise_{node.op.name.lower()}_{types}",
            {
                "T": output.type.opencl,
                "INPUTS": ", ".join(pointers),
                "IS_CHECKED": bool(check),
                "VALUE(p, c)": expression,
                "FORBIDDEN(p, c)": forbidden,
            },
            **shape,
            **{name: n for operand in operands for name, n in operand.parameters.items()},
        ),
        (*(context.pointer(value.id) for value in values), *check, target),
        max(
            1,
            min(
                most_units(context.device, _UNITS),
                output.pixels * channels // (LANES * _VECTORS_PER_UNIT),
                output.pixels,
            ),
        ),
        spec.Work(flops=output.elements, moved=sum(value.bytes for value in (*values, output))),
    )
    return [spec.Candidate("rows", (launch,))]


FAMILY = spec.Family(
    operators=tuple(_TYPES), read=_read, lower=lower, supports=_supports, epilogue=True, types=_TYPES
)
