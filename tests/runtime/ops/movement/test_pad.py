"""Padding and dilation against LiteRT's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import MirrorPadMode
from tests.runtime.models import Out, const, one_operator, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, check_bits, inside, levels, patterns, random
from tests.runtime.ops.every_type import Movement, every_type, fed, ints, moves_as_litert, unary
from tests.runtime.ops.operands import whole

PAD, PADV2 = Op.PAD, Op.PADV2
IMAGE = [[0, 0], [1, 2], [3, 0], [0, 0]]
Q = per_tensor(0.1, 7)
BYTES = per_tensor(0.1, 131)

CASES = [
    case("pad_image", PAD, [random(2, 5, 6, 7), const(IMAGE, np.int32)]),
    case("pad_channels", PAD, [random(1, 5, 6, 7), const([[0, 0], [0, 0], [0, 0], [0, 9]], np.int32)]),
    case("pad_vector", PAD, [random(5), const([[2, 3]], np.int32)]),
    case("pad_nothing", PAD, [random(5, 4), const([[0, 0], [0, 0]], np.int32)]),
    case("pad_int64", PAD, [random(1, 3, 4, 2), const(IMAGE, np.int64)]),
    case("padv2", PADV2, [random(1, 5, 6, 7), const(IMAGE, np.int32), const([-3.5])]),
    case("padv2_lowest", PADV2, [random(1, 5, 6, 7), const(IMAGE, np.int32), const([-3.4028235e38])]),
    case("pad_int8", PAD, [levels(1, 5, 6, 7, quantization=Q), const(IMAGE, np.int32)], [Out(np.int8, Q)],
         version=2),
    case("pad_uint8", PAD, [whole(1, 5, 6, 7, dtype=np.uint8, low=0, high=256, quantization=BYTES),
         const(IMAGE, np.int32)], [Out(np.uint8, BYTES)]),
    *(case(f"mirror_{dtype.__name__}_without_scale", Op.MIRROR_PAD,
           [whole(3, 5, dtype=dtype, low=0, high=100), const([[1, 2], [3, 0]], np.int32)], [Out(dtype)],
           {"mode": MirrorPadMode.REFLECT}) for dtype in (np.int8, np.uint8)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pad_matches_litert(case, backend):
    check(case, backend)


def mirrored(mode: MirrorPadMode, shape: Sequence[int], *paddings: Sequence[int]) -> Case:
    args = [patterns(*shape), const(paddings, np.int32)]
    return case(f"{mode.name}_{tuple(shape)}", Op.MIRROR_PAD, args, options={"mode": mode})


def padded(fill: float, shape: Sequence[int], *paddings: Sequence[int]) -> Case:
    args = [patterns(*shape), const(paddings, np.int32), const([fill])]
    return case(f"{fill}_{tuple(shape)}", PADV2, args)


REFLECT, SYMMETRIC = MirrorPadMode.REFLECT, MirrorPadMode.SYMMETRIC
MOVED = [
    mirrored(REFLECT, (5,), (4, 3)),
    mirrored(SYMMETRIC, (3, 7), (3, 1), (2, 7)),
    mirrored(REFLECT, (2, 5, 6, 16), (0, 0), (3, 2), (1, 4), (0, 0)),
    mirrored(SYMMETRIC, (1, 5, 6, 3), (0, 0), (5, 0), (0, 6), (0, 0)),
    mirrored(REFLECT, (2, 3, 4, 5), (1, 0), (0, 2), (3, 1), (4, 2)),
    padded(np.nan, (7,), (2, 0)),
    padded(-0.0, (3, 4, 5), (1, 0), (0, 2), (2, 1)),
    padded(-3.5, (2, 3, 4, 16), (0, 1), (1, 0), (2, 2), (0, 0)),
    padded(np.inf, (2, 2, 1, 3, 7), (1, 0), (0, 1), (2, 0), (0, 2), (3, 9)),
    padded(1.5, (4, 1, 2, 3, 255), (0, 0), (0, 0), (1, 1), (0, 0), (0, 0)),
]


@pytest.mark.parametrize("case", [*MOVED, *map(inside, MOVED)], ids=str)
def test_bordered_tensors_have_the_bits_of_litert(case, backend):
    check_bits(case, backend)


def test_a_negative_padding_is_refused():
    model = one_operator(PAD, [random(5), const([[-1, 0]], np.int32)])
    with pytest.raises(ShapeError, match="operator 0 PAD: paddings"):
        Interpreter(model_content=model).allocate_tensors()


MOVEMENTS = [
    unary("zeros", Op.PAD, (2, 3, 4), ints([[1, 0], [0, 2], [1, 1]])),
    unary("int64", Op.PAD, (2, 3), ints([[1, 0], [0, 2]], np.int64)),
    unary("computed", Op.PAD, (2, 3), fed([[1, 0], [0, 2]])),
    unary("five", Op.PAD, (2, 1, 2, 3, 2), ints([[0, 1], [1, 0], [0, 0], [2, 1], [0, 0]])),
    Movement("value", Op.PADV2, lambda v: ([v.arg(2, 3), ints([[1, 1], [0, 2]]), v.arg(1)], [v.out()], {})),
    unary("reflect", Op.MIRROR_PAD, (4, 5), ints([[2, 3], [4, 1]]), mode=REFLECT),
    unary("symmetric", Op.MIRROR_PAD, (3, 4), ints([[3, 1], [2, 4]], np.int64), mode=SYMMETRIC),
    unary("cube", Op.MIRROR_PAD, (3, 3, 4), ints([[1, 2], [0, 1], [3, 0]]), mode=REFLECT),
    Movement("square", Op.DILATE, lambda v: ([v.arg(3, 4), ints([2, 3]), v.arg()], [v.out()], {})),
    Movement("computed", Op.DILATE, lambda v: ([v.arg(2, 3, 2), fed([1, 2, 2]), v.arg()], [v.out()], {})),
    Movement(
        "edges_and_interior", Op.STABLEHLO_PAD,
        lambda v: ([v.arg(3, 4), v.arg()], [v.out()], {
            "edge_padding_low": [1, 0], "edge_padding_high": [2, 1], "interior_padding": [1, 2]}),
    ),
    Movement(
        "crops", Op.STABLEHLO_PAD,
        lambda v: ([v.arg(4, 5), v.arg()], [v.out()], {
            "edge_padding_low": [-1, -2], "edge_padding_high": [1, -1], "interior_padding": [0, 1]}),
    ),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


BORDERS = [
    case("pad", Op.PAD, [levels(2, 3, quantization=Q), const([[1, 0], [2, 1]], np.int32)], [Out(np.int8, Q)]),
    case(
        "padv2",
        Op.PADV2,
        [levels(2, 3, quantization=Q), const([[1, 0], [2, 1]], np.int32), const(9, np.int8, Q)],
        [Out(np.int8, Q)],
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", BORDERS, ids=str)
def test_a_quantised_border_is_real_zero_or_the_value(case):
    check(case, CPU)
