"""Divisions by reciprocals, offsets of digits, and the words of a row, against plain integers."""

import ast

import numpy as np
import pytest

from runtime.delegates.gpu.graph.parameters import Digit, offset, parameters, reciprocal, word
from runtime.delegates.gpu.lowering.spec import joined
from tests.needs import REPOSITORY

_LARGEST = (1 << 31) - 1


def quotient(index, divisor):
    """QUOTIENT of common.cl in Python's integers."""
    found = reciprocal("D", divisor)
    assert all(-(1 << 31) <= value < 1 << 31 for value in found.values())
    return index * (found["D_MULTIPLIER"] % (1 << 32)) >> found["D_SHIFT"]


@pytest.mark.parametrize("divisor", [1, 2, 3, 5, 7, 64, 641, 65535, 65536, 1 << 30, (1 << 30) + 1, _LARGEST])
def test_a_reciprocal_divides_every_index_exactly(divisor):
    near = [divisor * k + d for k in (0, 1, 2, 3, _LARGEST // divisor) for d in (-1, 0, 1)]
    for index in [*near, 12345, _LARGEST - 1, _LARGEST]:
        if 0 <= index <= _LARGEST:
            assert quotient(index, divisor) == index // divisor


def test_no_divisor_below_a_thousand_is_wrong_at_a_multiple_of_it():
    for divisor in range(1, 1000):
        last = _LARGEST // divisor * divisor
        assert [quotient(last + d, divisor) for d in (-1, 0)] == [last // divisor - 1, last // divisor]


@pytest.mark.parametrize(
    ("digits", "divisions"),
    [
        ([], 0),
        ([Digit(5, 3)], 0),
        ([Digit(4, 15), Digit(5, 3)], 0),
        ([Digit(4, 3), Digit(5, 12)], 1),
        ([Digit(4, 0), Digit(5, 3), Digit(1, 77), Digit(2, -9)], 2),
        ([Digit(3, 7), Digit(2, 0), Digit(3, 0), Digit(4, 1)], 2),
    ],
)
def test_an_offset_is_the_sum_of_the_digits_steps(digits, divisions):
    found = offset("D", digits, "i")
    assert found.expression.count("QUOTIENT") == divisions
    extents = [digit.extent for digit in digits]
    for index, counts in enumerate(np.ndindex(*extents)):
        expected = sum(count * digit.step for count, digit in zip(counts, digits, strict=True))
        assert value_of(found.expression, found.parameters, index) == expected


def value_of(expression, names, index):
    """Evaluate the expression as C does, in unsigned numbers of 32 bits."""
    python = expression.replace("(uint)", "").replace("(int)", "signed")
    scope = {**names, "i": index, "signed": lambda n: (n + (1 << 31)) % (1 << 32) - (1 << 31)}
    for name in names:
        if name.endswith("_MULTIPLIER"):
            place = name.removesuffix("_MULTIPLIER")
            multiplier = names[name] % (1 << 32)
            python = python.replace(
                f"QUOTIENT(i, {place})", f"({index} * {multiplier} >> {names[f'{place}_SHIFT']})"
            )
    return eval(python, scope)


def test_parameters_are_integers_or_floats_in_one_order():
    assert parameters(B=True, A=np.int64(3), C=np.float32(0.5)) == (("A", 3), ("B", 1), ("C", 0.5))
    assert [type(value) for _, value in parameters(A=np.int64(3), C=np.float32(0.5))] == [int, float]


def test_a_word_holds_the_bits_of_its_number():
    numbers = [0.0, -0.0, 1.5, float("inf"), float("nan")]
    words = np.array([word("X", number) for number in numbers], np.int32)
    np.testing.assert_array_equal(words, np.float32(numbers).view(np.int32))
    assert [word("X", number) for number in (0, -1, _LARGEST, -_LARGEST - 1)] == [
        0,
        -1,
        _LARGEST,
        -_LARGEST - 1,
    ]


@pytest.mark.parametrize("number", [1 << 31, -(1 << 31) - 1])
def test_a_number_that_does_not_fit_is_refused_by_name(number):
    with pytest.raises(ValueError, match=f"the parameter ROWS is {number}, which does not fit in 32 bits"):
        word("ROWS", number)


def test_a_define_of_two_parts_is_refused():
    assert joined({"T": 1}, {"TILE": 2}) == {"T": 1, "TILE": 2}
    with pytest.raises(ValueError, match="a define is in two parts"):
        joined({"T": 1, "TILE": 2}, {"TILE": 2})


def test_no_function_loses_a_define_where_parts_are_unpacked():
    """A display that unpacks a part drops one of two equal names without a word; `joined` refuses them."""
    unpacked = [
        f"{path.name}:{call.lineno}"
        for path in (REPOSITORY / "runtime/delegates/gpu/lowering").rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("spec.function", "function")
        if isinstance(call.args[2], ast.Dict) and None in call.args[2].keys
    ]
    assert unpacked == []
