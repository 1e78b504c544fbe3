"""NaN, infinities, both zeros and denormal numbers, on every operator that the GPU delegate takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from runtime.model.schema import ActivationFunctionType as Fused
from runtime.model.schema import BuiltinOperator as B
from runtime.model.schema import MirrorPadMode, Padding
from tests.oracle import run_litert
from tests.runtime.models import Arg, Builder, const
from tests.runtime.ops.cases import Case, case, run_ours
from tests.runtime.ops.gpu_expectations import TAKEN, TAKES

_LARGEST = float(np.finfo(np.float32).max)
_LEAST = float(np.finfo(np.float32).tiny)
_SPECIAL = np.array([
    np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1.2e-38, 1e-20, _LARGEST, -_LARGEST, 1, -1, 0.5, -0.5,
    1.5, 2.5, -2.5, -4, 3, -3, 6, 7, 88.5, 89, -88.5, -104, 20, -20, 1e-5,
], np.float32)  # fmt: skip
_PAIRS = tuple(np.ascontiguousarray(grid) for grid in np.meshgrid(_SPECIAL, _SPECIAL))

RELATIVE = 1e-5
"""Allowed relative error of finite results, as of all operator cases: other roundings stay far below it, and
a special value that is handled in another way far above."""

ABSOLUTE = {B.EXP: _LEAST, B.LOGISTIC: _LEAST, B.SOFTMAX: _LEAST, B.GELU: 1e-6, B.SUM: 1e-5, B.MEAN: 1e-5}
"""Allowed absolute error. Exponentials may round denormal results to zero, the reference's GELU cancels below
zero, and sums of numbers of both signs depend on their order. Larger hides a wrong function; smaller refuses
the more exact one."""

_SIMPLE = (
    B.ABS, B.COS, B.EXP, B.FLOOR, B.HARD_SWISH, B.LOG, B.LOGISTIC, B.NEG, B.RELU, B.RELU6, B.RELU_0_TO_1,
    B.RELU_N1_TO_1, B.RSQRT, B.SIGN, B.SIN, B.SQRT, B.SQUARE, B.TANH,
)  # fmt: skip
_WITHOUT_REFERENCE = (B.CEIL, B.ELU, B.ROUND)
_WINDOW = {"stride_h": 1, "stride_w": 1, "padding": Padding.VALID}
_DILATION = {"dilation_h_factor": 1, "dilation_w_factor": 1}


def _special_case(
    name: str, op: B, args: Sequence[Arg], options: Mapping[str, Any] | None = None, **more: Any
) -> tuple[B, Case]:
    return op, case(f"{op.name}{name}", op, args, options=options, **more)


def _image() -> Arg:
    """Four channels with the special values in other places; the largest is halved, as its sums overflow."""
    values = np.where(np.abs(_SPECIAL) == _LARGEST, np.float32(_LARGEST / 2), _SPECIAL)
    return Arg(np.stack([np.roll(values, k).reshape(1, 5, 6) for k in (0, 7, 13, 20)], axis=-1))


def _without_zeros(image: Arg) -> Arg:
    """Replace zeros: the sign of a sum of zeros, or of products that underflow, depends on the order of its
    terms.
    """
    return Arg(np.where(np.abs(image.value) < _LEAST, np.float32(0.25), image.value))


def _rows(width: int) -> Arg:
    """Rows of neighbours. The largest numbers are left out: sums of them depend on the order."""
    small = np.concatenate([_SPECIAL[:9], _SPECIAL[11:]])
    return Arg(np.stack([np.roll(small, k)[:width] for k in range(small.size)]))


def _elementwise() -> list[tuple[B, Case]]:
    one, pair = Arg(_SPECIAL), [Arg(grid) for grid in _PAIRS]
    found = [_special_case("", op, [one]) for op in _SIMPLE]
    builtin = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
    found += [_special_case("", op, [one], resolver=builtin) for op in _WITHOUT_REFERENCE]
    found += [_special_case(f"_{how}", B.GELU, [one], {"approximate": how}) for how in (False, True)]
    found += [
        _special_case(f"_{slope}", B.LEAKY_RELU, [one], {"alpha": slope}) for slope in (0.2, -0.5, 0, 2)
    ]
    binary = (
        B.ADD, B.SUB, B.MUL, B.DIV, B.MAXIMUM, B.MINIMUM, B.SQUARED_DIFFERENCE, B.PRELU, B.ATAN2, B.FLOOR_MOD,
        B.POW, B.STABLEHLO_ADD, B.STABLEHLO_MAXIMUM, B.STABLEHLO_MINIMUM, B.STABLEHLO_MULTIPLY, B.ADD_N,
    )  # fmt: skip
    found += [_special_case("", op, pair) for op in binary]
    for fused in (Fused.RELU, Fused.RELU_N1_TO_1, Fused.RELU6):
        found.append(_special_case(f"_{fused.name}", B.MUL, pair, {"fused_activation_function": fused}))
    divisors = np.where(_PAIRS[0] == 0, np.float32(0.1), _PAIRS[0])
    found.append(_special_case("", B.FLOOR_DIV, [pair[1], const(divisors)]))
    found += [_special_case(f"_{n}", B.POW, [one, const(n)]) for n in (0, 1, 2, 3, 7, -1, 0.5, np.nan)]
    for value in (np.nan, np.inf, -0.0):
        found += [_special_case(f"_{value}", op, [one, const([value])]) for op in (B.ADD, B.MUL)]
    return found


def _windows() -> list[tuple[B, Case]]:
    image, found = _image(), []
    for fused in (Fused.NONE, Fused.RELU, Fused.RELU6):
        options = {**_WINDOW, "fused_activation_function": fused}
        pool = {**options, "filter_height": 2, "filter_width": 2}
        found += [
            _special_case(f"_{fused.name}", op, [image], pool)
            for op in (B.MAX_POOL_2D, B.AVERAGE_POOL_2D, B.L2_POOL_2D)
        ]
        filters = {
            B.CONV_2D: const(np.ones((3, 2, 2, 4))),
            B.DEPTHWISE_CONV_2D: const(np.ones((1, 2, 2, 4))),
        }
        for op, weights in filters.items():
            bias = const(np.zeros(3 if op is B.CONV_2D else 4))
            more = {**options, **_DILATION, "depth_multiplier": 1}
            if op is B.CONV_2D:
                del more["depth_multiplier"]
            found.append(_special_case(f"_{fused.name}", op, [image, weights, bias], more))
        dense = [_rows(4), const([[1, 0, -1, 2]]), const([0.5])]
        found.append(
            _special_case(f"_{fused.name}", B.FULLY_CONNECTED, dense, {"fused_activation_function": fused})
        )
    size = const([9, 11], np.int32)
    return [
        *found,
        *_transposed(),
        *_volumes(),
        _special_case("", B.RESIZE_BILINEAR, [_without_zeros(image), size], {}),
        _special_case("", B.RESIZE_NEAREST_NEIGHBOR, [image, size], {}),
    ]


def _transposed() -> list[tuple[B, Case]]:
    weights, bias = const(np.ones((3, 2, 2, 4))), const(np.zeros(3))
    wide = {**_WINDOW, "stride_h": 2, "stride_w": 2}
    return [
        _special_case(
            f"_{fused.name}",
            B.TRANSPOSE_CONV,
            [const([1, 10, 12, 3], np.int32), weights, _image(), bias],
            {**wide, "fused_activation_function": fused},
            version=4,
        )
        for fused in (Fused.NONE, Fused.RELU)
    ]


def _volumes() -> list[tuple[B, Case]]:
    volume, bias = Arg(_image().value.reshape(1, 5, 3, 2, 4)), const(np.zeros(3))
    options = {**_WINDOW, **_DILATION, "stride_d": 1, "dilation_d_factor": 1}
    return [
        _special_case(
            f"_{fused.name}",
            B.CONV_3D,
            [volume, const(np.ones((2, 2, 2, 4, 3))), bias],
            {**options, "fused_activation_function": fused},
        )
        for fused in (Fused.NONE, Fused.RELU)
    ] + [
        _special_case(
            f"_{fused.name}",
            B.CONV_3D_TRANSPOSE,
            [const([1, 5, 3, 2, 3], np.int32), const(np.ones((1, 1, 1, 3, 4))), volume, bias],
            {**options, "fused_activation_function": fused},
        )
        for fused in (Fused.NONE, Fused.RELU)
    ]


def _reductions() -> list[tuple[B, Case]]:
    rows, columns = _rows(4), Arg(np.ascontiguousarray(_rows(4).value.T))
    local = {"radius": 2, "alpha": 0.5, "beta": 0.75, "bias": 1.0}
    found = [
        _special_case("", B.SOFTMAX, [_rows(19)], {"beta": 1.0}),
        _special_case("", B.LOG_SOFTMAX, [_rows(19)]),
        _special_case("", B.L2_NORMALIZATION, [Arg(_rows(4).value.reshape(4, 7, 1, 4))]),
        _special_case("", B.LOCAL_RESPONSE_NORMALIZATION, [_image()], local),
        *(_special_case(f"_{a}", B.CUMSUM, [_rows(4), const(a, np.int32)]) for a in (0, 1)),
    ]
    for op in (B.MEAN, B.SUM, B.REDUCE_MAX, B.REDUCE_MIN, B.REDUCE_PROD):
        found.append(_special_case("_rows", op, [rows, const([1], np.int32)], {"keep_dims": True}))
        found.append(_special_case("_columns", op, [columns, const([0], np.int32)], {"keep_dims": True}))
    return found


def _products() -> list[tuple[B, Case]]:
    """Rows and columns with special values by ordinary ones; odd numbers of columns, and adjoint sides."""
    rows, columns = _rows(4), Arg(np.ascontiguousarray(_rows(4).value.T))
    found = []
    for kept in (False, True):
        factors = Arg(np.float32([[1, 0, -1], [2, 0.5, 1], [-1, 1, 4], [3, 0, 1]]), constant=kept)
        found += [
            _special_case(f"_{kept}{adj_x:d}", B.BATCH_MATMUL, [x, factors], {"adj_x": adj_x, "adj_y": False})
            for x, adj_x in ((rows, False), (columns, True))
        ]
    few = Arg(np.float32([[1, 2, 0, -1], [3, -1, 2, 0]]))
    found += [
        _special_case(f"_of_{adj_y:d}", B.BATCH_MATMUL, [few, z], {"adj_x": False, "adj_y": adj_y})
        for z, adj_y in ((columns, False), (rows, True))
    ]
    fused = {"fused_activation_function": Fused.NONE}
    return [
        *found,
        _special_case("_computed", B.FULLY_CONNECTED, [few, rows, Arg(np.float32(range(28)))], fused),
    ]


def _movement() -> list[tuple[B, Case]]:
    rows, image = _rows(4), _image()
    one = [np.int32([0, 0]), np.int32([5, 4]), np.int32([1, 1])]
    margins = const([[0, 0], [1, 1]], np.int32)
    block, pair = [[0, 1], [1, 1]], Arg(np.concatenate([image.value, image.value[:, ::-1]]))
    return [
        _special_case("", B.RESHAPE, [rows, const([14, 8], np.int32)], {"new_shape": [14, 8]}),
        _special_case("", B.SQUEEZE, [image], {"squeeze_dims": [0]}),
        _special_case("", B.EXPAND_DIMS, [rows, const(0, np.int32)]),
        _special_case("", B.TRANSPOSE, [image, const([0, 3, 1, 2], np.int32)]),
        _special_case("", B.SLICE, [rows, *(const(v, np.int32) for v in one[:2])]),
        _special_case("", B.STRIDED_SLICE, [rows, *(const(v, np.int32) for v in one)]),
        _special_case("", B.CONCATENATION, [rows, rows], {"axis": 1}),
        _special_case("", B.PACK, [rows, rows], {"axis": 1, "values_count": 2}),
        _special_case("", B.SPLIT, [const(0, np.int32), rows], {"num_splits": 1}),
        _special_case("", B.SPLIT_V, [rows, const([-1], np.int32), const(1, np.int32)], {"num_splits": 1}),
        _special_case("", B.UNPACK, [Arg(image.value[..., :1])], {"num": 1, "axis": -1}),
        _special_case("", B.TILE, [rows, const([2, 3], np.int32)]),
        _special_case("", B.BROADCAST_TO, [rows, const([2, *rows.value.shape], np.int32)], version=2),
        _special_case("", B.REVERSE_V2, [rows, const([1], np.int32)]),
        _special_case("", B.DEPTH_TO_SPACE, [image], {"block_size": 2}),
        _special_case("", B.SPACE_TO_DEPTH, [Arg(image.value[:, :4])], {"block_size": 2}),
        _special_case("", B.SPACE_TO_BATCH_ND, [image, const([1, 2], np.int32), const(block, np.int32)]),
        _special_case("", B.BATCH_TO_SPACE_ND, [pair, const([2, 1], np.int32), const(block, np.int32)]),
        _special_case("", B.MIRROR_PAD, [rows, margins], {"mode": MirrorPadMode.REFLECT}),
        _special_case("", B.PAD, [rows, margins]),
        *_chosen(),
        *(_special_case(f"_{v}", B.PADV2, [rows, margins, const([v])]) for v in (np.nan, -np.inf, -0.0)),
    ]


def _chosen() -> list[tuple[B, Case]]:
    """Return cases with special values at indices, and written over others."""
    rows, ids = _rows(4), Arg(np.int32([3, 0, 6, 3]))
    vectors, corner = Arg(np.int32([[3, 0], [6, 2]])), Arg(np.int32([1, 2]))
    special = (const(value) for value in (np.nan, -0.0))
    return [
        _special_case("", B.GATHER, [rows, ids], {"axis": 0, "batch_dims": 0}),
        _special_case("", B.GATHER_ND, [rows, vectors]),
        _special_case("", B.EMBEDDING_LOOKUP, [ids, rows]),
        _special_case("", B.ONE_HOT, [ids, const(7, np.int32), *special], {"axis": -1}),
        _special_case("", B.DYNAMIC_UPDATE_SLICE, [rows, Arg(rows.value[:3, :2]), corner]),
    ]


def _fused(name: str, value: np.ndarray, *steps: tuple[B, Sequence[int]]) -> Case:
    """Build a chain: each step names its operands, of which 0 and 1 are inputs and the rest earlier
    results.
    """
    build = Builder()
    tensors = [build.input(np.float32, v.shape) for v in (value, value.T)]
    for op, operands in steps:
        tensors.append(build.tensor(np.float32))
        build.operator(op, [tensors[i] for i in operands], [tensors[-1]])
    return Case(name, build.write([tensors[-1]]), (value, np.ascontiguousarray(value.T)), refused=TAKES)


def _padded_lanes() -> Case:
    """Build an infinite factor, which makes 0 * Inf in the lanes behind the last channel; the product must
    not see it.
    """
    build = Builder()
    image, factor = (np.ones((1, 2, 2, 3), np.float32), np.float32([np.inf]))
    x, s = (build.input(np.float32, value.shape) for value in (image, factor))
    scaled, y = build.tensor(np.float32), build.tensor(np.float32)
    weights = np.zeros((2, 12), np.float32)
    weights[0, 5] = 0.5
    build.operator(B.MUL, [x, s], [scaled])
    build.operator(B.FULLY_CONNECTED, [scaled, build.constant(weights), -1], [y])
    return Case("padded_lanes", build.write([y]), (image, factor), refused=TAKES)


def _padded_columns() -> Case:
    """Build an infinite row, which makes 0 * Inf behind the last column; the next product must not see it."""
    build = Builder()
    row, matrix = np.full((1, 2, 2), np.inf, np.float32), np.ones((1, 2, 3), np.float32)
    x, z = (build.input(np.float32, value.shape) for value in (row, matrix))
    middle, y = build.tensor(np.float32), build.tensor(np.float32)
    build.operator(B.BATCH_MATMUL, [x, z], [middle], {"adj_x": False, "adj_y": False})
    build.operator(B.FULLY_CONNECTED, [middle, build.constant(np.ones((2, 6), np.float32)), -1], [y])
    return Case("padded_columns", build.write([y]), (row, matrix), refused=TAKES)


OPERATORS = [*_elementwise(), *_windows(), *_reductions(), *_products(), *_movement()]
CASES = [
    *(found for _, found in OPERATORS),
    _fused("swish", _PAIRS[0], (B.LOGISTIC, [0]), (B.MUL, [0, 2])),
    _fused("maximum_of_a_result", _PAIRS[0], (B.NEG, [1]), (B.MAXIMUM, [0, 2])),
    _fused("minimum_of_a_result", _PAIRS[0], (B.NEG, [1]), (B.MINIMUM, [0, 2])),
    _padded_lanes(),
    _padded_columns(),
]
_TOLERANCE = {id(found): ABSOLUTE.get(op, 0.0) for op, found in OPERATORS} | {id(CASES[-5]): 128 * _LEAST}


ELSEWHERE = frozenset({
    B.ARG_MAX, B.ARG_MIN, B.BITCAST, B.BITWISE_XOR, B.CAST, B.COMPLEX_ABS, B.DEQUANTIZE, B.EQUAL, B.FILL,
    B.GREATER, B.GREATER_EQUAL, B.IMAG, B.LESS, B.LESS_EQUAL, B.LOGICAL_AND, B.LOGICAL_NOT, B.LOGICAL_OR,
    B.LSTM, B.NOT_EQUAL, B.QUANTIZE, B.REAL, B.REDUCE_ALL, B.REDUCE_ANY, B.RFFT2D, B.RIGHT_SHIFT, B.RNN,
    B.SELECT, B.SELECT_V2, B.STABLEHLO_AND, B.STABLEHLO_BROADCAST_IN_DIM, B.STABLEHLO_CBRT, B.STABLEHLO_CLAMP,
    B.STABLEHLO_REMAINDER, B.STABLEHLO_SHIFT_LEFT, B.SVDF, B.TOPK_V2, B.UNIDIRECTIONAL_SEQUENCE_LSTM,
    B.UNIDIRECTIONAL_SEQUENCE_RNN,
})  # fmt: skip
"""Operators without a case here: their results are no floats, they have states or several results, they move
bits, or LiteRT lacks them."""


def test_every_operator_that_the_delegate_takes_has_a_case():
    assert {op for op, _ in OPERATORS} == TAKEN - ELSEWHERE


@pytest.mark.parametrize("case", CASES, ids=str)
def test_special_values_are_those_of_litert(case, backend):
    (expected,) = run_litert(case.model, case.inputs, case.resolver)
    (found,) = run_ours(case, backend)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    np.testing.assert_array_equal(np.isfinite(found), finite)
    zero = finite & (expected == 0) & (found == 0)
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))
    absolute = _TOLERANCE.get(id(case), 0.0)
    np.testing.assert_allclose(found[finite], expected[finite], rtol=RELATIVE, atol=absolute)
