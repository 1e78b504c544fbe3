"""The expressions of element-wise operators on elements of any type: of vectors of 16, and of single numbers.

`family` makes kernels of them.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Kind, Node
from runtime.model.schema import BuiltinOperator as Op

F32, I32, I64, BOOL = ElementType.F32, ElementType.I32, ElementType.I64, ElementType.BOOL

_SUM, _DIFFERENCE, _PRODUCT = (f"WRAPPING({{t}}, {{0}}, {operation}, {{1}})" for operation in "+-*")
_AND, _OR, _XOR = ("({0} & {1})", "({0} | {1})", "({0} ^ {1})")
_CHOICE = "(convert_{m}16({0}) != ({m}16)0 ? {1} : {2})"

_INTEGERS: Mapping[Kind, str] = {
    Op.ADD: _SUM,
    Op.SUB: _DIFFERENCE,
    Op.MUL: _PRODUCT,
    Op.DIV: "quotient_{t}({0}, {1})",
    Op.FLOOR_DIV: "floor_quotient_{t}({0}, {1})",
    Op.FLOOR_MOD: "floor_rest_{t}({0}, {1})",
    Op.POW: "power_{t}({0}, {1})",
    Op.SQUARED_DIFFERENCE: "squared_difference_{t}({0}, {1})",
    Op.MAXIMUM: "max({0}, {1})",
    Op.MINIMUM: "min({0}, {1})",
    Op.NEG: "WRAPPING({t}, ({v})0, -, {0})",
    # OpenCL C's `abs` returns numbers without a sign.
    Op.ABS: "as_{v}(abs({0}))",
    # Comparisons give -1 where they hold.
    Op.SIGN: "(({0} < ({v})0) - ({0} > ({v})0))",
    Op.BITWISE_XOR: _XOR,
    Op.RIGHT_SHIFT: "({0} >> clamp({1}, ({v})0, ({v})31))",
    Op.STABLEHLO_ADD: _SUM,
    Op.STABLEHLO_MULTIPLY: _PRODUCT,
    Op.STABLEHLO_MAXIMUM: "max({0}, {1})",
    Op.STABLEHLO_MINIMUM: "min({0}, {1})",
    Op.STABLEHLO_AND: _AND,
    Op.STABLEHLO_SHIFT_LEFT: "({0} << {1})",
    Op.STABLEHLO_REMAINDER: "rest_{t}({0}, {1})",
    # Its operands are the least number, the value and the greatest.
    Op.STABLEHLO_CLAMP: "min(max({1}, {0}), {2})",
}
"""Operator → its expression of int32 and int64; `{t}` is the type of an element, `{v}` that of what is
computed with, a vector or a single number, and `{0}` the first operand."""

BOOLS: Mapping[Kind, str] = {
    Op.LOGICAL_AND: _AND,
    Op.LOGICAL_OR: _OR,
    Op.LOGICAL_NOT: "({0} ^ ({v})1)",
    Op.BITWISE_XOR: _XOR,
    Op.STABLEHLO_ADD: _OR,
    Op.STABLEHLO_MULTIPLY: _AND,
    Op.STABLEHLO_MAXIMUM: _OR,
    Op.STABLEHLO_MINIMUM: _AND,
    Op.STABLEHLO_AND: _AND,
}
"""Operator → its expression of bools, each of which is 0 or 1."""

COMPARISONS: Mapping[Kind, str] = {
    Op.EQUAL: "FLAGS({0} == {1})",
    Op.NOT_EQUAL: "FLAGS({0} != {1})",
    Op.LESS: "FLAGS({0} < {1})",
    Op.LESS_EQUAL: "FLAGS({0} <= {1})",
    Op.GREATER: "FLAGS({0} > {1})",
    Op.GREATER_EQUAL: "FLAGS({0} >= {1})",
}
CLAMPS = {
    "NONE": "{0}",
    "RELU": "max({0}, ({v})0)",
    "RELU6": "clamp({0}, ({v})0, ({v})6)",
    "RELU_N1_TO_1": "clamp({0}, ({v})-1, ({v})1)",
}
"""Fused activation → its expression of integers."""

_FLOATS: Mapping[Kind, str] = {
    Op.FLOOR_DIV: "floor_div16({0}, {1})",
    Op.STABLEHLO_CBRT: "cbrt({0})",
    Op.STABLEHLO_REMAINDER: "fmod({0}, {1})",
    Op.STABLEHLO_CLAMP: "bounded16({0}, {1}, {2})",
}
"""Operator → its expression of float32."""

_MASKS = {1: "char", 2: "short", 4: "int", 8: "long"}
"""Bytes of an element → the type of the mask that selects among vectors of such elements."""

GROUPED: frozenset[Kind] = frozenset(
    {Op.CAST, Op.SELECT, Op.SELECT_V2, Op.ADD, Op.SUB, Op.MUL, Op.MAXIMUM, Op.MINIMUM, Op.NEG}
    | COMPARISONS.keys()
    | BOOLS.keys()
)
"""Operators with a kernel of work-groups, of float32, int32 and bool: those that check no operand."""


def expression_of(node: Node, types: Sequence[ElementType], result: ElementType) -> str:
    """Return the node's expression of its operands `{0}`, `{1}` and so on, which have these types."""
    return _template(node, types, result).replace("{v}", f"{types[0].opencl}16")


def _template(node: Node, types: Sequence[ElementType], result: ElementType) -> str:
    op, first = node.op, types[0]
    if op == Op.CAST:
        return _cast(first, result)
    if op == Op.QUANTIZE:
        return (
            f"convert_{result.opencl}16_sat(requantised({{0}}, MULTIPLIER, LEFT, RIGHT, ZERO_IN, ZERO_OUT))"
        )
    if op in (Op.SELECT, Op.SELECT_V2):
        return _CHOICE.replace("{m}", _MASKS[result.size])
    if op in COMPARISONS:
        return COMPARISONS[op]
    if op == Op.BITCAST:
        return f"as_{result.opencl}16({{0}})"
    if first is F32:
        return _FLOATS[op]
    if first is BOOL:
        return BOOLS[op]
    if op == Op.ADD_N:
        value = _total(len(types))
    else:
        value = "power_alone_{t}({0}, {1})" if node.attributes["alone"] else _INTEGERS[op]
    clamped = CLAMPS[node.attributes["clamp"]].replace("{0}", value)
    return clamped.replace("{t}", first.opencl)


def _total(count: int) -> str:
    """Write the sum of so many operands, from the first on."""
    found = "{0}"
    for i in range(1, count):
        found = f"WRAPPING({{t}}, {found}, +, {{{i}}})"
    return found


def _cast(source: ElementType, target: ElementType) -> str:
    if target is BOOL:
        return "FLAGS({0} != ({v})0)"
    if source is F32 and target is not F32:
        if target in (I32, I64):
            return f"truncated_{target.opencl}({{0}})"
        bounds = np.iinfo(target.dtype)
        return f"convert_{target.opencl}16(clamp(truncated_int({{0}}), {bounds.min}, {bounds.max}))"
    return f"convert_{target.opencl}16({{0}})"


def grouped_expression_of(node: Node, types: Sequence[ElementType], result: ElementType) -> str:
    """Return the expression of single numbers, a bool being an int."""
    kind = "float" if result is F32 else "int"
    if node.op in (Op.SELECT, Op.SELECT_V2):
        return "({0} != 0 ? {1} : {2})"
    if node.op is Op.CAST and result is not BOOL:
        return "truncated_int({0})" if types[0] is F32 and result is I32 else f"(({kind}){{0}})"
    return _template(node, types, result).replace("{v}", "float" if types[0] is F32 else "int")
