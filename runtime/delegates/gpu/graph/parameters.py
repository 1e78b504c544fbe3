"""Numbers that a kernel gets when it runs: shapes, strides, counts, and what is derived from them.

They travel in the layer's row of the table (`memory.Placement.rows`), behind the offsets of its pointers, and
the kernel sees each as a `const int` or `const float` of its name. Layers that differ in nothing else share
their compiled function.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Parameters: TypeAlias = tuple[tuple[str, int | float], ...]
"""Names and values in the order in which a function takes them. The type of a value is a part of the
function, the value is not."""

_INDEX_BITS = 31
"""Bits of the largest index that `QUOTIENT` of `kernels/common.cl` divides: those of an int without its sign.
With one more, the multiplier would not fit in 32 bits."""

_WORD_BITS = 32
"""Bits of a number in a row of the table of layers, which consists of the type int."""


def parameters(**values: int | float) -> Parameters:
    """Parameters in a stable order; booleans become 0 and 1."""
    return tuple(sorted((name, _plain(value)) for name, value in values.items()))


def _plain(value: int | float) -> int | float:
    return float(value) if isinstance(value, float | np.floating) else int(value)


def type_of(value: int | float) -> str:
    """Return the OpenCL C type of a parameter."""
    return "float" if isinstance(value, float) else "int"


def word(name: str, value: int | float) -> int:
    """Return the value as the int of 32 bits that the table holds, a float by its bits. Raises ValueError."""
    if isinstance(value, float):
        return int(np.float32(value).view(np.int32))
    if not -(1 << _INDEX_BITS) <= value < 1 << _INDEX_BITS:
        raise ValueError(f"the parameter {name} is {value}, which does not fit in 32 bits")
    return value


def reciprocal(name: str, divisor: int) -> dict[str, int]:
    """Return the parameters by which `QUOTIENT(i, name)` divides i exactly, 0 <= i < 2^31.

    With s = ceil(log2(divisor)) and m = floor(2^(31 + s) / divisor) + 1, the quotient is i * m >> (31 + s)
    (Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994): a processor takes
    several times as long to divide by a number that its compiler does not know.
    """
    shift = _INDEX_BITS + (divisor - 1).bit_length()
    multiplier = (1 << shift) // divisor + 1
    # At least 2^31, and a row holds signed numbers: the kernel reads the same bits without a sign.
    return {f"{name}_MULTIPLIER": multiplier - (1 << _WORD_BITS), f"{name}_SHIFT": shift}


def divisor(name: str, value: int) -> dict[str, int]:
    """Return a number, and what `QUOTIENT(i, name)` and `REMAINDER(i, name)` need to divide by it."""
    return {name: value, **reciprocal(name, value)}


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of an index: it counts to `extent`, and each count moves `step` elements."""

    extent: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class Offset:
    """The position of the element with an index: an expression over the index, and its parameters."""

    expression: str
    parameters: dict[str, int]


def offset(name: str, digits: Sequence[Digit], index: str) -> Offset:
    """Return the sum of count * step over the digits of `index`, the most significant digit first.

    The count of digit k is q[k] - extent[k] * q[k - 1], q[k] being the index divided by the product of all
    extents behind k. So the sum is that of q[k] * (step[k] - extent[k + 1] * step[k + 1]): one division where
    a digit does not continue the next one, none else. The expression depends on their number alone. The
    products wrap around in 32 bits before they cancel, which only unsigned numbers may.
    """
    wide = [digit for digit in digits if digit.extent > 1] or [Digit(1)]
    values = {f"{name}_STEP": wide[-1].step}
    terms: list[str] = []
    quotient = 1
    for digit, behind in zip(wide[-2::-1], wide[:0:-1], strict=True):
        quotient *= behind.extent
        factor = digit.step - behind.extent * behind.step
        if factor:
            place = f"{name}_DIGIT{len(terms)}"
            values |= {**reciprocal(place, quotient), f"{place}_STEP": factor}
            terms.append(f"(uint)QUOTIENT({index}, {place}) * (uint){place}_STEP")
    if not terms:
        return Offset(f"({index}) * {name}_STEP", values)
    return Offset(f"(int)({' + '.join([f'(uint)({index}) * (uint){name}_STEP', *terms])})", values)
