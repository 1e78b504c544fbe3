"""Resizing against LiteRT's reference kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out, const, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, levels, random
from tests.runtime.ops.operands import whole

MODES = {"plain": {}, "align": {"align_corners": True}, "half": {"half_pixel_centers": True}}
SIZES = {"up": (13, 17), "down": (3, 4), "double": (10, 14), "one": (1, 1), "same": (5, 7)}


def resize(kind, mode, size) -> Case:
    opcode = Op[{"bilinear": "RESIZE_BILINEAR", "nearest": "RESIZE_NEAREST_NEIGHBOR"}[kind]]
    args = [random(2, 5, 7, 3), const(SIZES[size], np.int32)]
    return case(
        f"{kind}_{mode}_{size}", opcode, args, options=MODES[mode], version=3 if mode == "half" else 1
    )


Q = per_tensor(0.1, 4)
CASES = [
    *(resize(*names) for names in itertools.product(("bilinear", "nearest"), MODES, SIZES)),
    case("nearest_int8", Op.RESIZE_NEAREST_NEIGHBOR,
         [levels(1, 5, 7, 3, quantization=Q), const((8, 9), np.int32)], [Out(np.int8, Q)], version=2),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_resize_matches_litert(case, backend):
    check(case, backend)


def of_levels(dtype, opcode, mode, size) -> Case:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    x = whole(2, 5, 7, 19, dtype=dtype, low=low, high=high, quantization=Q)
    name = f"{opcode.name}_{np.dtype(dtype).name}_{mode}_{size}"
    return case(name, opcode, [x, const(SIZES[size], np.int32)], [Out(dtype, Q)], MODES[mode], version=3)


LEVELS = [
    *(of_levels(dtype, Op.RESIZE_BILINEAR, mode, size)
      for dtype, mode, size in itertools.product((np.int8, np.uint8), MODES, ("up", "down", "one"))),
    *(of_levels(dtype, Op.RESIZE_NEAREST_NEIGHBOR, mode, "up")
      for dtype, mode in itertools.product((np.int8, np.uint8), MODES)),
]  # fmt: skip


@pytest.mark.parametrize("case", LEVELS, ids=str)
def test_resized_levels_are_those_of_litert(case):
    check(case, CPU)


def resized(opcode: Op, options: dict[str, bool], size: tuple[int, int]) -> Case:
    name = f"{opcode.name} {' '.join(options) or 'plain'} {size}"
    return case(name, opcode, [random(1, 4, 5, 2), const(size, np.int32)], options=options, version=3)


RESIZES = [
    resized(opcode, options, size)
    for opcode, options, size in itertools.product(
        (Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR),
        ({}, {"align_corners": True}, {"half_pixel_centers": True}),
        ((7, 9), (2, 3), (1, 1), (4, 10)),
    )
]


@pytest.mark.parametrize("case", RESIZES, ids=str)
def test_resizing_aligns_corners_and_half_pixel_centres_as_litert_does(case):
    check(case, CPU)
