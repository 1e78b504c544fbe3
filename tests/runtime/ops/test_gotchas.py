"""What operators are easily wrong about, each against LiteRT's reference kernels (checklist, row 11)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator, Padding
from tests.runtime.models import Out, const
from tests.runtime.ops.cases import CPU, Case, case, check, random

Op = BuiltinOperator
INT32 = np.int32
ONE_STEP = {"stride_w": 1, "stride_h": 1}


def resized(opcode: Op, options: dict[str, bool], size: tuple[int, int]) -> Case:
    name = f"{opcode.name} {' '.join(options) or 'plain'} {size}"
    return case(name, opcode, [random(1, 4, 5, 2), const(size, INT32)], options=options, version=3)


RESIZES = [
    resized(opcode, options, size)
    for opcode, options, size in itertools.product(
        (Op.RESIZE_BILINEAR, Op.RESIZE_NEAREST_NEIGHBOR),
        ({}, {"align_corners": True}, {"half_pixel_centers": True}),
        ((7, 9), (2, 3), (1, 1), (4, 10)),
    )
]


def convolved(name: str, image: tuple[int, ...], kernel: tuple[int, ...], **options: object) -> Case:
    """A convolution whose SAME padding is larger behind than before."""
    given = {**ONE_STEP, "padding": Padding.SAME, **options}
    return case(name, Op.CONV_2D, [random(*image), random(*kernel, seed=1), random(kernel[0])], options=given)


SAME_PADDING = [
    convolved("even kernel", (1, 6, 6, 2), (3, 2, 4, 2)),
    convolved("stride 2, odd image", (1, 7, 5, 2), (3, 3, 3, 2), stride_w=2, stride_h=2),
    convolved("stride 2, even image", (1, 8, 8, 2), (3, 3, 3, 2), stride_w=2, stride_h=2),
    convolved("dilated", (1, 9, 8, 2), (3, 3, 2, 2), dilation_w_factor=3, dilation_h_factor=2),
    convolved("stride beyond the kernel", (1, 9, 9, 1), (2, 1, 1, 1), stride_w=3, stride_h=4),
    *(
        case(f"{op.name} {size}", op, [random(1, 7, 8, 3)], options={
            "padding": Padding.SAME, "stride_w": 2, "stride_h": 3, "filter_width": size, "filter_height": 2})
        for op, size in itertools.product((Op.AVERAGE_POOL_2D, Op.MAX_POOL_2D), (2, 4))
    ),
]  # fmt: skip


def sliced(name: str, start: list[int], stop: list[int], steps: list[int], **masks: int) -> Case:
    bounds = [const(values, INT32) for values in (start, stop, steps)]
    options = {f"{key}_mask": value for key, value in masks.items()}
    return case(name, Op.STRIDED_SLICE, [random(4, 5, 6), *bounds], options=options)


STRIDED_SLICES = [
    sliced("plain", [1, 0, 2], [3, 4, 6], [1, 2, 3]),
    sliced("begin mask", [3, 3, 3], [4, 5, 6], [1, 1, 1], begin=0b011),
    sliced("end mask", [1, 1, 1], [0, 0, 0], [1, 1, 2], end=0b111),
    sliced("negative strides with masks", [0, -1, -2], [0, 0, 1], [-1, -2, -1], begin=0b001, end=0b011),
    sliced("negative bounds", [-3, -4, -100], [-1, 100, -1], [1, 1, 1]),
    sliced("shrink", [-1, 2, 0], [0, 3, 6], [1, 1, 1], shrink_axis=0b011),
    sliced("ellipsis", [1, 0, 1], [3, 0, 5], [1, 1, 2], ellipsis=0b010),
    sliced("ellipsis in front", [0, 1], [0, 4], [1, 1], ellipsis=0b01),
    sliced("new axis", [0, 1, 0], [0, 3, 4], [1, 1, 1], new_axis=0b001),
    sliced("new axis after an ellipsis", [0, 0, 1], [0, 0, 4], [1, 1, 1], ellipsis=0b001, new_axis=0b010),
    sliced("nothing left", [2, 0, 0], [2, 5, 6], [1, 1, 1]),
]


def over_axis(opcode: Op, axis: int, options: dict[str, object] | None = None) -> Case:
    return case(f"{opcode.name} {axis}", opcode, [random(2, 3, 4), const([axis], INT32)], options=options)


NEGATIVE_AXES = [
    *(over_axis(op, axis) for op in (Op.MEAN, Op.SUM, Op.REDUCE_MAX) for axis in (-1, -3)),
    case("CONCATENATION -1", Op.CONCATENATION, [random(2, 3), random(2, 5)], options={"axis": -1}),
    case("PACK -1", Op.PACK, [random(2, 3), random(2, 3, seed=1)], options={"axis": -1, "values_count": 2}),
    case("UNPACK -2", Op.UNPACK, [random(4, 2, 3)], [Out(), Out()], options={"axis": -2, "num": 2}),
    case("SPLIT -1", Op.SPLIT, [const(-1, INT32), random(2, 6)], [Out()] * 3, options={"num_splits": 3}),
    case("GATHER -1", Op.GATHER, [random(2, 5), const([4, 0], INT32)], options={"axis": -1}),
    case("EXPAND_DIMS -2", Op.EXPAND_DIMS, [random(2, 3), const(-2, INT32)]),
    case("SQUEEZE -2", Op.SQUEEZE, [random(2, 1, 3)], options={"squeeze_dims": (-2,)}),
    case("ARG_MAX -2", Op.ARG_MAX, [random(3, 4), const(-2, INT32)], [Out(np.int64)],
         options={"output_type": 4}),
    case("CUMSUM -1", Op.CUMSUM, [random(3, 4), const(-1, INT32)]),
    case("REVERSE_V2 -1", Op.REVERSE_V2, [random(3, 4), const([-1], INT32)]),
    case("ONE_HOT -1", Op.ONE_HOT, [const([2, 0, 1], INT32), const(3, INT32), const(5.0), const(-1.0)],
         options={"axis": -1}),
]  # fmt: skip

KEPT_DIMENSIONS = [
    case(f"{op.name} {axes} {keep}", op, [random(2, 3, 4), const(axes, INT32)], options={"keep_dims": keep})
    for op, axes, keep in itertools.product(
        (Op.MEAN, Op.SUM, Op.REDUCE_MIN), ([0], [0, 2], [1, 1], [0, 1, 2]), (False, True)
    )
]

EMPTY = [
    case("ADD", Op.ADD, [random(0, 3), random(0, 3)]),
    case("CONCATENATION", Op.CONCATENATION, [random(0, 3), random(2, 3)], options={"axis": 0}),
    case("SUM of none", Op.SUM, [random(2, 0), const([1], INT32)]),
    case("RESHAPE", Op.RESHAPE, [random(0, 4), const([2, 0], INT32)]),
    case("TRANSPOSE", Op.TRANSPOSE, [random(0, 4), const([1, 0], INT32)]),
    case("RELU", Op.RELU, [random(3, 0)]),
    case("TILE", Op.TILE, [random(2, 3), const([0, 2], INT32)]),
]

SCALARS = [
    case("ADD to a vector", Op.ADD, [random(), random(3)]),
    case("MUL of scalars", Op.MUL, [random(), random(seed=1)]),
    case("MEAN of all", Op.MEAN, [random(2, 3), const([0, 1], INT32)]),
    case("RESHAPE to a scalar", Op.RESHAPE, [random(1, 1), const(np.zeros(0), INT32)]),
    case("EXPAND_DIMS of a scalar", Op.EXPAND_DIMS, [random(), const(0, INT32)]),
    case("PACK of scalars", Op.PACK, [random(), random(seed=1)], options={"axis": 0, "values_count": 2}),
    case("GATHER by a scalar", Op.GATHER, [random(4, 3), const(2, INT32)], options={"axis": 0}),
    case("RANK of a scalar", Op.RANK, [random()], [Out(INT32)]),
]

GROUPS = [convolved(f"{groups} groups", (1, 6, 5, 12), (24, 3, 3, 12 // groups)) for groups in (2, 3, 6, 12)]

MULTIPLIERS = [
    case(
        f"multiplier {multiplier}, option {option}",
        Op.DEPTHWISE_CONV_2D,
        [random(1, 6, 5, 3), random(1, 3, 3, 3 * multiplier, seed=1), random(3 * multiplier)],
        options={**ONE_STEP, "depth_multiplier": option},
    )
    for multiplier, option in ((1, 1), (2, 2), (5, 5))
]

GOTCHAS = {
    "resize": RESIZES,
    "same": SAME_PADDING,
    "strided": STRIDED_SLICES,
    "negative": NEGATIVE_AXES,
    "keep": KEPT_DIMENSIONS,
    "empty": EMPTY,
    "scalar": SCALARS,
    "groups": GROUPS,
    "multiplier": MULTIPLIERS,
}


def params(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("example", GOTCHAS[kind], ids=str)


@params("resize")
def test_resizing_aligns_corners_and_half_pixel_centres_as_litert_does(example):
    check(example, CPU)


@params("same")
def test_same_padding_is_larger_behind(example):
    check(example, CPU)


@params("strided")
def test_masks_of_strided_slices_match_litert(example):
    check(example, CPU)


@params("negative")
def test_negative_axes(example):
    check(example, CPU)


@params("keep")
def test_kept_dimensions_and_repeated_axes(example):
    check(example, CPU)


@params("empty")
def test_empty_tensors(example):
    check(example, CPU)


@params("scalar")
def test_scalars(example):
    check(example, CPU)


@params("groups")
def test_groups_of_a_convolution(example):
    check(example, CPU)


@params("multiplier")
def test_depth_multipliers(example):
    check(example, CPU)
