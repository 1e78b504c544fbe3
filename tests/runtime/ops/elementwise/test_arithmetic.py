"""Arithmetic against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError, UnsupportedOperatorError
from runtime.model.schema import ActivationFunctionType
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, const, one_operator, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, constant, levels, random
from tests.runtime.ops.matmul.test_conv import NONE, RELU, RELU6
from tests.runtime.ops.operands import whole

ADD, SUB, MUL, DIV = (
    Op.ADD,
    Op.SUB,
    Op.MUL,
    Op.DIV,
)
MAXIMUM, MINIMUM, DIFFERENCE = (
    Op.MAXIMUM,
    Op.MINIMUM,
    Op.SQUARED_DIFFERENCE,
)


def fused(activation: ActivationFunctionType):
    return {"fused_activation_function": activation}


def binary(name, opcode, x, z, activation=None, z_constant=False, low=-3.0) -> Case:
    right = random(*z, seed=1, low=low)
    args = [random(*x), constant(right) if z_constant else right]
    options = fused(NONE if activation is None else activation) if opcode in (ADD, SUB, MUL, DIV) else None
    return case(name, opcode, args, options=options)


def binary_int8(name, opcode, scales, zeros, x=(1, 8, 9, 5), z=None, activation=NONE) -> Case:
    qs = [per_tensor(s, q) for s, q in zip(scales, zeros, strict=True)]
    args = [levels(*x, quantization=qs[0]), levels(*(z or x), seed=1, quantization=qs[1])]
    options = fused(activation) if opcode in (ADD, SUB, MUL) else None
    return case(name, opcode, args, [Out(np.int8, qs[2])], options, version=2)


def every_pair(name, opcode, scales, zeros) -> Case:
    """All 65536 combinations of two int8 levels."""
    grid = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))
    qs = [per_tensor(s, q) for s, q in zip(scales, zeros, strict=True)]
    args = [Arg(g.astype(np.int8), q) for g, q in zip(grid, qs, strict=False)]
    return case(name, opcode, args, [Out(np.int8, qs[2])], fused(NONE), version=2)


def integers(name, opcode, dtype) -> Case:
    rng = np.random.default_rng(0)
    args = [Arg(rng.integers(-1000, 1000, (3, 7)).astype(dtype)) for _ in range(2)]
    options = fused(NONE) if opcode in (ADD, SUB, MUL) else None
    return case(name, opcode, args, [Out(dtype)], options)


def every_bound(name, opcode, dtype, activation=NONE) -> Case:
    """All pairs of numbers at the bounds of the type, so that results wrap around."""
    info = np.iinfo(dtype)
    values = np.array([info.min, info.min + 1, -7, -1, 0, 1, 5, info.max - 1, info.max], dtype)
    options = fused(activation) if opcode in (ADD, SUB, MUL, DIV) else None
    return case(name, opcode, [Arg(values), Arg(values[:, None].copy())], [Out(dtype)], options)


def whole_pair(name, opcode, x, z, dtype=np.int32) -> Case:
    args = [whole(*x, dtype=dtype), whole(*z, dtype=dtype, seed=6)]
    return case(name, opcode, args, [Out(dtype)], fused(NONE) if opcode in (ADD, SUB, MUL) else None)


def quotients(name, dividend, *divisors, activation=NONE) -> Case:
    args = [dividend, const(divisors, np.int32)]
    return case(name, DIV, args, [Out(np.int32)], fused(activation))


SHAPE = (2, 5, 6, 7)
UNIT = ActivationFunctionType.RELU_N1_TO_1
SCALES, ZEROS = (0.05, 0.031, 0.07), (3, -11, 20)
CASES = [
    binary("add_same_shape_relu", ADD, SHAPE, SHAPE, RELU),
    binary("add_channel", ADD, SHAPE, (7,), z_constant=True),
    binary("add_scalar", ADD, SHAPE, (), z_constant=True),
    binary("add_outer", ADD, (1, 5, 1, 7), (2, 1, 6, 1)),
    binary("sub_rank_6", SUB, (2, 1, 3, 4, 1, 5), (1, 2, 3, 1, 2, 5)),
    binary("mul_rank_6_pixels", MUL, (2, 3, 1, 2, 3, 7), (3, 1, 2, 1, 1)),
    binary("maximum_rank_5", MAXIMUM, (2, 1, 3, 1, 1), (2, 3, 2, 19)),
    binary("add_large", ADD, (1, 60, 50, 40), (1, 60, 50, 40), RELU6),
    binary("sub_relu6", SUB, SHAPE, SHAPE, RELU6),
    binary("sub_reversed", SUB, (7,), SHAPE),
    binary("mul_channel_of_image", MUL, (1, 9, 8, 16), (1, 1, 1, 16)),
    binary("mul_pixel", MUL, (1, 9, 8, 16), (1, 9, 8, 1)),
    binary("div", DIV, SHAPE, SHAPE, low=0.5),
    binary("maximum", MAXIMUM, SHAPE, (6, 7)),
    binary("minimum", MINIMUM, SHAPE, SHAPE),
    binary("squared_difference", DIFFERENCE, SHAPE, (6, 1)),
    binary_int8("add_int8", ADD, SCALES, ZEROS),
    binary_int8("add_int8_relu6", ADD, SCALES, ZEROS, activation=RELU6),
    binary_int8("add_int8_channel", ADD, SCALES, ZEROS, z=(5,)),
    binary_int8("sub_int8", SUB, SCALES, ZEROS),
    binary_int8("mul_int8_channel", MUL, SCALES, ZEROS, z=(1, 1, 1, 5), activation=RELU),
    binary_int8("maximum_int8", MAXIMUM, (0.1,) * 3, (4,) * 3),
    binary_int8("difference_int8_pixel", Op.SQUARED_DIFFERENCE, SCALES, ZEROS, x=(2, 5, 170), z=(5, 1)),
    binary_int8("difference_int8_of_pixel", Op.SQUARED_DIFFERENCE, SCALES, ZEROS, x=(2, 5, 1), z=(2, 5, 90)),
    binary_int8("minimum_int8", MINIMUM, (0.1,) * 3, (4,) * 3),
    every_pair("add_int8_every_pair", ADD, (0.117, 0.0093, 0.054), (-128, 17, 5)),
    every_pair("sub_int8_every_pair", SUB, (0.02, 0.0093, 0.01), (7, 17, 0)),
    every_pair("mul_int8_every_pair", MUL, (0.117, 0.0093, 0.0051), (-128, 17, 5)),
    integers("add_int32", ADD, np.int32),
    integers("sub_int64", SUB, np.int64),
    integers("mul_int32", MUL, np.int32),
    integers("maximum_int32", MAXIMUM, np.int32),
    *(
        every_bound(f"{o.name}_bounds_{dtype.__name__}", o, dtype)
        for o in (ADD, SUB, MUL, MAXIMUM, MINIMUM)
        for dtype in (np.int32, np.int64)
    ),
    every_bound("difference_bounds_int32", DIFFERENCE, np.int32),
    *(every_bound(f"add_{a.name}_int32", ADD, np.int32, a) for a in (RELU, RELU6, UNIT)),
    every_bound("mul_relu6_int32", MUL, np.int32, RELU6),
    whole_pair("add_int32_channel", ADD, SHAPE, (7,)),
    whole_pair("sub_int64_outer", SUB, (1, 5, 1, 7), (2, 1, 6, 1), np.int64),
    whole_pair("mul_int32_rank_6", MUL, (2, 1, 3, 4, 1, 5), (1, 2, 3, 1, 2, 5)),
    whole_pair("add_int32_scalar", ADD, (3, 255), ()),
    whole_pair("add_int32_vectors", ADD, (4, 3, 32), (3, 1)),
    whole_pair("sub_int32_reversed", SUB, (1,), (4, 2, 1)),
    quotients("div_int32", whole(4, 9, 5, low=-99, high=99), 1, -1, 7, -3, 50),
    quotients("div_int32_least", Arg(np.array([[-(2**31)], [2**31 - 1]], np.int32)), 2, -3, 1),
    quotients("div_int32_relu6", whole(9, 3), 2, -1, 1, activation=RELU6),
    case("div_int32_computed", DIV, [whole(4, 5), whole(5, low=1)], [Out(np.int32)], fused(NONE)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_elementwise_matches_litert(case, backend):
    check(case, backend)


def test_shapes_that_do_not_broadcast_are_refused():
    model = one_operator(ADD, [random(2, 3), random(4, 3)], options=fused(NONE))
    with pytest.raises(ShapeError, match=r"\[2, 3\], \[4, 3\] do not broadcast"):
        Interpreter(model_content=model).allocate_tensors()


def test_a_type_without_an_exact_kernel_is_refused():
    args = [Arg(np.zeros((2, 3), np.complex64)) for _ in range(2)]
    model = one_operator(ADD, args, [Out(np.complex64)], fused(NONE))
    with pytest.raises(UnsupportedOperatorError, match="input 0 has type COMPLEX64"):
        Interpreter(model_content=model).allocate_tensors()


EDGE_CASES = [
    case("ADD", Op.ADD, [random(0, 3), random(0, 3)]),
    case("ADD to a vector", Op.ADD, [random(), random(3)]),
    case("MUL of scalars", Op.MUL, [random(), random(seed=1)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)


@pytest.mark.parametrize("opcode", [Op.ADD, Op.SUB, Op.MUL], ids=lambda o: o.name)
@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
@pytest.mark.parametrize("scales", [(0.11, 0.07, 0.2), (0.25, 0.5, 0.5)])
def test_arithmetic_of_levels_matches_litert(opcode, dtype, scales, backend):
    """The second scales are powers of two, which int16 treats in a way of its own, without broadcasting."""
    info = np.iinfo(dtype)
    zeros = (0, 0, 0) if dtype is np.int16 else (101, 140, 97)
    args = [
        whole(60, 5, dtype=dtype, low=info.min, high=info.max, quantization=per_tensor(scales[0], zeros[0])),
        whole(
            60,
            1 if scales[0] == 0.11 else 5,
            dtype=dtype,
            low=info.min,
            high=info.max,
            quantization=per_tensor(scales[1], zeros[1]),
        ),
    ]
    check(case(opcode.name, opcode, args, (Out(dtype, per_tensor(scales[2], zeros[2])),)), backend)


SUMS = [
    case("ADD_N", Op.ADD_N, [random(3, 4), random(3, 4, seed=1), random(3, 4, seed=2)]),
    case("ADD_N_of_two", Op.ADD_N, [random(2, 3, 5), random(2, 3, 5, seed=1)]),
    case("ADD_N_of_six", Op.ADD_N, [random(3, 7, seed=i) for i in range(6)]),
    case("ADD_N_of_seven", Op.ADD_N, [random(3, 7, seed=i) for i in range(7)]),
    case("ADD_N_int32", Op.ADD_N, [whole(3, 7, low=-(2**31), high=2**31, seed=i) for i in range(4)],
         [Out(np.int32)]),
    case("ADD_N_int32_of_eight", Op.ADD_N, [whole(2, 255, seed=i) for i in range(8)], [Out(np.int32)]),
    case("ADD_N_overflow", Op.ADD_N, [random(3, 7, seed=i, low=-3e38, high=3e38) for i in range(4)]),
]  # fmt: skip


@pytest.mark.parametrize("case", SUMS, ids=str)
def test_sums_of_several_operands_match_litert(case, backend):
    check(case, backend)
