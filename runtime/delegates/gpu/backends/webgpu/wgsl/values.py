"""Values of expressions, and C's operators on them; WGSL converts nothing by itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from runtime.delegates.gpu.backends.webgpu.wgsl.types import (
    BOOL,
    FLOAT,
    INT,
    UINT,
    Number,
    Pointer,
    Type,
    common,
)

_MOST_INT: Final = (1 << 31) - 1
"""The largest int. A larger literal is a uint, as in C."""


@dataclass(frozen=True, slots=True)
class Value:
    """An expression in WGSL with its type. `literal` is its number where it is a whole one known here.

    `reads_memory`: it must not be evaluated where C would not evaluate it.
    """

    text: str
    type: Type
    literal: int | None = None
    reads_memory: bool = False

    @property
    def number(self) -> Number:
        """Its type, which the caller knows to be a number. Raises TypeError for another."""
        if not isinstance(self.type, Number):
            raise TypeError(f"{self.text} is no number")
        return self.type


def whole(number: int, kind: str | None = None) -> Value:
    """Write a literal; without a kind an int, or a uint if an int does not hold it."""
    kind = kind or (INT if number <= _MOST_INT else UINT)
    if kind == UINT:
        number &= (1 << 32) - 1
    # WGSL reads -2147483648 as a minus before what an i32 does not hold.
    text = f"{number}u" if kind == UINT else f"i32({number})" if number < 0 else str(number)
    return Value(text, Number(kind), number)


def converted(value: Value, to: Number) -> Value:
    """Convert a value as C does: a number to another kind, or to all lanes of a vector.

    Raises TypeError between vectors of different widths.
    """
    given = value.number
    if given == to:
        return value
    if given.width not in (1, to.width):
        raise TypeError(f"a vector of {given.width} in place of {to.width}")
    if value.literal is not None and to.kind in (INT, UINT, FLOAT) and given.width == 1:
        lane = (
            Value(f"{value.literal}.0", Number(FLOAT)) if to.kind == FLOAT else whole(value.literal, to.kind)
        )
    else:
        lane = _of_kind(value, to.kind)
    if lane.number.width == to.width:
        return lane
    return Value(f"{to.wgsl}({lane.text})", to, reads_memory=value.reads_memory)


def _of_kind(value: Value, kind: str) -> Value:
    given = value.number
    to = Number(kind, given.width)
    if given.kind == kind:
        return value
    if kind == BOOL:
        text = f"({value.text} != {to_zero(given)})"
    elif given.kind == BOOL:
        # A comparison of vectors has all bits of a lane set where it holds.
        holds = "1" if given.width == 1 else "-1"
        whole_type = Number(INT, given.width)
        text = f"select({whole_type.wgsl}(0), {whole_type.wgsl}({holds}), {value.text})"
        if kind != INT:
            text = f"{to.wgsl}({text})"
    else:
        text = f"{to.wgsl}({value.text})"
    return Value(text, to, reads_memory=value.reads_memory)


def to_zero(number: Number) -> str:
    """Zero of a type."""
    return f"{number.wgsl}({'false' if number.kind == BOOL else '0'})"


def truth(value: Value) -> Value:
    """Convert a value to a condition, as C does: true if not zero. A pointer to a buffer is never null."""
    if isinstance(value.type, Pointer):
        return Value("true", Number(BOOL), 1)
    if value.literal is not None:
        return Value("true" if value.literal else "false", Number(BOOL), int(value.literal != 0))
    return converted(value, Number(BOOL))


def unary(operator: str, value: Value) -> Value:
    """`-`, `+`, `~` or `!`."""
    if operator == "!":
        holds = truth(value)
        literal = None if holds.literal is None else int(not holds.literal)
        return Value(f"(!{holds.text})", Number(BOOL), literal, value.reads_memory)
    computed = converted(value, Number(INT, value.number.width)) if value.number.kind == BOOL else value
    if operator == "+":
        return computed
    if computed.literal is not None:
        folded = -computed.literal if operator == "-" else ~computed.literal
        return whole(folded, computed.number.kind)
    # WGSL has no unary minus for u32.
    if operator == "-" and computed.number.kind == UINT:
        return Value(
            f"({to_zero(computed.number)} - {computed.text})", computed.type, None, value.reads_memory
        )
    return Value(f"({operator}{computed.text})", computed.type, None, value.reads_memory)


_FOLDED: Final[dict[str, Callable[[int, int], int]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    # C rounds a quotient towards zero, Python downwards.
    "/": lambda a, b: abs(a) // abs(b) * (1 if a * b >= 0 else -1),
    "%": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
"""Operator → what it gives of two whole numbers: lengths of arrays are such expressions."""

_COMPARED: Final[dict[str, Callable[[int, int], bool]]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def binary(operator: str, left: Value, right: Value) -> Value:
    """Apply an operator but `&&` and `||` to numbers or vectors. Raises TypeError for other operands."""
    reads = left.reads_memory or right.reads_memory
    if left.literal is not None and right.literal is not None:
        if operator in _COMPARED:
            holds = _COMPARED[operator](left.literal, right.literal)
            return Value("true" if holds else "false", Number(BOOL), int(holds))
        # Division by a literal zero is not folded, as Python would raise.
        if right.literal or operator not in "/%":
            kind = common(left.number, right.number).kind
            return whole(_FOLDED[operator](left.literal, right.literal), kind)
    if operator in ("<<", ">>"):
        return _shifted(operator, left, right)
    if operator in "&|^" and left.number.kind == right.number.kind == BOOL:
        return _bits_of_truths(operator, left, right)
    computed = common(left.number, right.number)
    if operator in "&|^" and computed.kind == FLOAT:
        raise TypeError(f"{operator} takes whole numbers")
    a, b = converted(left, computed), converted(right, computed)
    if operator not in _COMPARED:
        return Value(f"({a.text} {operator} {b.text})", computed, None, reads)
    if computed.kind == FLOAT and operator != "==":
        # `!=` is true where one is NaN; wgpu makes of it what is false there (SPIR-V's OpFOrdNotEqual).
        compared = f"({a.text} {'==' if operator == '!=' else operator} {b.text})"
        text = f"{'!' * (operator == '!=')}{ordered(computed.width)}({compared}, {a.text}, {b.text})"
    else:
        text = f"({a.text} {operator} {b.text})"
    return Value(text, Number(BOOL, computed.width), None, reads)


def ordered(width: int) -> str:
    """Return the function that a comparison of floats goes through; see `prelude.ORDERED`."""
    return f"ordered_{width}"


def _shifted(operator: str, left: Value, right: Value) -> Value:
    value = converted(left, Number(INT, left.number.width)) if left.number.kind == BOOL else left
    if value.number.kind == FLOAT or right.number.kind == FLOAT:
        raise TypeError(f"{operator} takes whole numbers")
    count = converted(right, Number(UINT, value.number.width))
    reads = left.reads_memory or right.reads_memory
    return Value(f"({value.text} {operator} {count.text})", value.type, None, reads)


def _bits_of_truths(operator: str, left: Value, right: Value) -> Value:
    width = max(left.number.width, right.number.width)
    a, b = (converted(side, Number(BOOL, width)) for side in (left, right))
    # WGSL has `&` and `|` for bools, but no `^`.
    written = "!=" if operator == "^" else operator
    reads = left.reads_memory or right.reads_memory
    return Value(f"({a.text} {written} {b.text})", Number(BOOL, width), None, reads)


def chosen(condition: Value, where: Value, otherwise: Value) -> Value:
    """`condition ? where : otherwise` with both sides evaluated; by lanes where the condition is a vector.

    OpenCL C looks at the highest bit of an integer lane there, and a comparison sets all bits.
    """
    result = common(where.number, otherwise.number)
    if where.number.kind == otherwise.number.kind == BOOL:
        result = Number(BOOL, result.width)
    if condition.number.width == 1:
        holds = truth(condition)
    elif condition.number.kind == BOOL:
        holds, result = condition, Number(result.kind, condition.number.width)
    else:
        zero = to_zero(condition.number)
        holds = Value(f"({condition.text} < {zero})", Number(BOOL, condition.number.width))
        result = Number(result.kind, condition.number.width)
    a, b = converted(where, result), converted(otherwise, result)
    reads = any(value.reads_memory for value in (condition, where, otherwise))
    # `select` takes the value for false first.
    return Value(f"select({b.text}, {a.text}, {holds.text})", result, None, reads)
