"""Operators that move elements: shapes, joins, slices, pads, repeats, orders, blocks, in every type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, MirrorPadMode, TensorType
from tests.runtime.models import Arg, Out, const
from tests.runtime.ops.properties import types as t
from tests.runtime.ops.properties.rows import PLAIN, Built, Row
from tests.runtime.ops.properties.strategies import Operands, fixed_or_fed, index_type, shapes

Op = BuiltinOperator
Build = Callable[[DrawFn, Operands], Built]


def signed(draw: DrawFn, axis: int, rank: int) -> int:
    """Draw an axis as it is, or counted from the end."""
    return axis - rank if draw(st.booleans()) else axis


def parts(draw: DrawFn, total: int, count: int) -> list[int]:
    """`count` sizes that add up to `total`, zeros among them."""
    cuts = sorted(draw(st.integers(0, total)) for _ in range(count - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, total], strict=True)]


def reshape(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 4, 4, 0 if o.type is not TensorType.STRING else 1))
    size = int(np.prod(x))
    target = list(draw(st.permutations(x)))
    if len(target) > 1 and draw(st.booleans()):
        target[:2] = [target[0] * target[1]]
    if size and target and draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    if target and draw(st.booleans()):
        return [o.arg(*x)], [o.out()], {"new_shape": target}
    return [o.arg(*x), fixed_or_fed(draw, target, np.int32)], [o.out()], {}


def squeeze(draw: DrawFn, o: Operands) -> Built:
    x = tuple(1 if draw(st.booleans()) else n for n in draw(shapes(1, 5, 4)))
    ones = [i for i, n in enumerate(x) if n == 1]
    chosen = [signed(draw, i, len(x)) for i in ones if draw(st.booleans())]
    return [o.arg(*x)], [o.out()], {"squeeze_dims": chosen} if chosen else {}


def expand_dims(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(0 if o.type is not TensorType.STRING else 1, 4, 4))
    axis = draw(st.integers(-len(x) - 1, len(x)))
    return [o.arg(*x), fixed_or_fed(draw, axis, index_type(draw))], [o.out()], {}


def transpose(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 6, 4))
    order = draw(st.permutations(range(len(x))))
    return [o.arg(*x), fixed_or_fed(draw, np.array(order, np.int32), np.int32)], [o.out()], {}


def concatenation(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 4, 4))
    axis = draw(st.integers(0, len(x) - 1))
    sizes = [
        draw(st.integers(0 if o.type is not TensorType.STRING else 1, 4))
        for _ in range(draw(st.integers(1, 4)))
    ]
    args = [o.arg(*x[:axis], n, *x[axis + 1 :]) for n in sizes]
    return args, [o.out()], {"axis": signed(draw, axis, len(x))}


def pack(draw: DrawFn, o: Operands) -> Built:
    x, count = draw(shapes(0, 4, 4)), draw(st.integers(1, 4))
    axis = signed(draw, draw(st.integers(0, len(x))), len(x) + 1)
    return [o.arg(*x) for _ in range(count)], [o.out()], {"values_count": count, "axis": axis}


def unpack(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 4, 4))
    axis = draw(st.integers(0, len(x) - 1))
    return (
        [o.arg(*x)],
        [o.out() for _ in range(x[axis])],
        {"num": x[axis], "axis": signed(draw, axis, len(x))},
    )


def split(draw: DrawFn, o: Operands) -> Built:
    x, count = list(draw(shapes(1, 4, 3))), draw(st.integers(1, 3))
    axis = draw(st.integers(0, len(x) - 1))
    x[axis] *= count
    place = fixed_or_fed(draw, signed(draw, axis, len(x)), np.int32)
    return [place, o.arg(*x)], [o.out() for _ in range(count)], {"num_splits": count}


def split_v(draw: DrawFn, o: Operands) -> Built:
    x, count = list(draw(shapes(1, 4, 5))), draw(st.integers(1, 3))
    axis = draw(st.integers(0, len(x) - 1))
    x[axis] += count
    sizes = [n + 1 for n in parts(draw, x[axis] - count, count)]
    if draw(st.booleans()):
        sizes[draw(st.integers(0, count - 1))] = -1
    args = [
        o.arg(*x),
        fixed_or_fed(draw, sizes, index_type(draw)),
        fixed_or_fed(draw, signed(draw, axis, len(x)), np.int32),
    ]
    return args, [o.out() for _ in range(count)], {"num_splits": count}


def cut(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 5, 5))
    begin = [draw(st.integers(0, n - 1)) for n in x]
    size = [draw(st.sampled_from([-1, draw(st.integers(1, n - b))])) for n, b in zip(x, begin, strict=True)]
    dtype = index_type(draw)
    return [o.arg(*x), fixed_or_fed(draw, begin, dtype), fixed_or_fed(draw, size, dtype)], [o.out()], {}


def strided(*, offset: bool) -> Build:
    """Every mask but the ellipsis and the new axis, which `masked` draws; no result is empty."""

    def build(draw: DrawFn, o: Operands) -> Built:
        x = draw(shapes(1, 4, 6))
        begin, end, strides, shrink = [], [], [], 0
        for i, n in enumerate(x):
            step = 1 if offset else draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
            first = draw(st.integers(0, n - 1))
            if draw(st.integers(0, 5)) == 0 and not offset:
                shrink |= 1 << i
                step = 1
            last = draw(st.integers(first + 1, n) if step > 0 else st.integers(-1, first - 1))
            begin.append(signed(draw, first, n))
            end.append(last - first if offset else last - n if last < 0 else signed(draw, last, n) or n)
            strides.append(step)
        bits = st.integers(0, (1 << len(x)) - 1)
        options = {
            "shrink_axis_mask": shrink,
            "begin_mask": draw(bits) & ~shrink,
            "end_mask": draw(bits) & ~shrink,
        }
        if offset:
            options |= {"offset": True, "begin_mask": 0, "end_mask": 0}
        fixed = offset or draw(st.booleans())
        places = [Arg(np.array(v, np.int32), constant=fixed) for v in (begin, end)]
        return [o.arg(*x), *places, const(strides, np.int32)], [o.out()], options

    return build


def masked(draw: DrawFn, o: Operands) -> Built:
    """Draw an ellipsis, new axes before and behind it."""
    x = draw(shapes(2, 4, 4))
    places = draw(st.integers(1, min(3, len(x))))
    ellipsis = draw(st.integers(0, places - 1))
    new = sum(1 << i for i in range(places) if i != ellipsis and draw(st.integers(0, 2)) == 0)
    if len(x) + new.bit_count() > 5:
        new = 0
    args = [
        o.arg(*x),
        const([0] * places, np.int32),
        const([1] * places, np.int32),
        const([1] * places, np.int32),
    ]
    return args, [o.out()], {"ellipsis_mask": 1 << ellipsis, "new_axis_mask": new}


def update(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 4, 5))
    part = tuple(draw(st.integers(1, n)) for n in x)
    start = [draw(st.integers(-2, n + 1)) for n in x]
    return [o.arg(*x), o.arg(*part), fixed_or_fed(draw, start, index_type(draw))], [o.out()], {}


def _edges(draw: DrawFn, rank: int, most: Callable[[int], int]) -> list[list[int]]:
    return [[draw(st.integers(0, most(i))) for _ in range(2)] for i in range(rank)]


def pad(*, value: bool, ranks: int = 5) -> Build:
    def build(draw: DrawFn, o: Operands) -> Built:
        x = draw(shapes(1, ranks, 4))
        edges = fixed_or_fed(draw, _edges(draw, len(x), lambda _: 2), index_type(draw))
        more = [o.arg(1)] if value else []
        return [o.arg(*x), edges, *more], [o.out()], {}

    return build


def mirror_pad(draw: DrawFn, o: Operands) -> Built:
    mode = draw(st.sampled_from([MirrorPadMode.REFLECT, MirrorPadMode.SYMMETRIC]))
    less = 1 if mode is MirrorPadMode.REFLECT else 0
    x = draw(shapes(1, 4, 4, 1 + less))
    edges = _edges(draw, len(x), lambda i: x[i] - less)
    return [o.arg(*x), fixed_or_fed(draw, edges, index_type(draw))], [o.out()], {"mode": mode}


def dilate(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 4, 4))
    steps = [draw(st.integers(1, 3)) for _ in x]
    return [o.arg(*x), fixed_or_fed(draw, steps, np.int32), o.arg()], [o.out()], {}


def tile(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 4, 3))
    times = [draw(st.integers(1, 3)) for _ in x]
    return [o.arg(*x), fixed_or_fed(draw, times, index_type(draw))], [o.out()], {}


def broadcast_to(draw: DrawFn, o: Operands) -> Built:
    target = draw(shapes(1, 6, 3))
    x = tuple(1 if draw(st.integers(0, 2)) == 0 else n for n in target)[draw(st.integers(0, len(target))) :]
    return [o.arg(*x), fixed_or_fed(draw, target, index_type(draw))], [o.out()], {}


def fill(draw: DrawFn, o: Operands) -> Built:
    return [fixed_or_fed(draw, np.array(draw(shapes(1, 4, 4))), index_type(draw)), o.arg()], [o.out()], {}


def plain(opcode_shape: tuple[int, int, int] = (0, 4, 4)) -> Build:
    """One operand of any shape."""

    def build(draw: DrawFn, o: Operands) -> Built:
        return [o.arg(*draw(shapes(*opcode_shape)))], [o.out()], {}

    return build


def told(dtypes: Sequence[TensorType], option: str | None) -> Build:
    """Draw an operator that reports a shape."""

    def build(draw: DrawFn, o: Operands) -> Built:
        result = draw(st.sampled_from(dtypes))
        dtype = np.int64 if result is TensorType.INT64 else np.int32
        options: dict[str, Any] = {option: result} if option else {}
        return [o.arg(*draw(shapes(1, 5, 4)))], [Out(dtype)], options

    return build


def reverse(draw: DrawFn, o: Operands) -> Built:
    """Neighbouring axes only, which is what LiteRT has."""
    x = draw(shapes(1, 4, 4))
    first = draw(st.integers(0, len(x) - 1))
    axes = range(first, draw(st.integers(first, len(x) - 1)) + 1)
    return [o.arg(*x), const([signed(draw, a, len(x)) for a in axes], np.int32)], [o.out()], {}


def reverse_sequence(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(2, 4, 4))
    along, batch = draw(st.permutations(range(len(x))))[:2]
    lengths = [draw(st.integers(0, x[along])) for _ in range(x[batch])]
    args = [o.arg(*x), Arg(np.array(lengths, index_type(draw)))]
    return args, [o.out()], {"seq_dim": along, "batch_dim": batch}


def blocks(*, to_depth: bool) -> Build:
    def build(draw: DrawFn, o: Operands) -> Built:
        n, height, width, channels = draw(shapes(4, 4, 3))
        size = draw(st.integers(1, 3))
        small, large = (n, height, width, channels * size * size), (n, height * size, width * size, channels)
        return [o.arg(*(large if to_depth else small))], [o.out()], {"block_size": size}

    return build


def to_batch(draw: DrawFn, o: Operands) -> Built:
    spatial = draw(st.integers(1, 2))
    sizes = [draw(st.integers(1, 3)) for _ in range(spatial)]
    sides, edges = [], []
    for block in sizes:
        whole = block * draw(st.integers(1, 3))
        before, inside, after = parts(draw, whole - 1, 3)
        sides.append(inside + 1)
        edges.append([before, after])
    x = (draw(st.integers(1, 2)), *sides, draw(st.integers(1, 3)))
    args = [o.arg(*x), fixed_or_fed(draw, sizes, np.int32), fixed_or_fed(draw, edges, np.int32)]
    return args, [o.out()], {}


def from_batch(draw: DrawFn, o: Operands) -> Built:
    spatial = draw(st.integers(1, 2))
    sizes = [draw(st.integers(1, 3)) for _ in range(spatial)]
    sides = [draw(st.integers(1, 3)) for _ in range(spatial)]
    crops = []
    for block, side in zip(sizes, sides, strict=True):
        before, _, after = parts(draw, block * side - 1, 3)
        crops.append([before, after])
    x = (int(np.prod(sizes)) * draw(st.integers(1, 2)), *sides, draw(st.integers(1, 3)))
    args = [o.arg(*x), fixed_or_fed(draw, sizes, np.int32), fixed_or_fed(draw, crops, np.int32)]
    return args, [o.out()], {}


def matrix_diag(draw: DrawFn, o: Operands) -> Built:
    return [o.arg(*draw(shapes(1, 3, 4)))], [o.out()], {}


def matrix_set_diag(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(2, 4, 4))
    return [o.arg(*x), o.arg(*x[:-2], min(x[-2:]))], [o.out()], {}


_STATED = (TensorType.INT32, TensorType.INT64)

ROWS = [
    Row("any", Op.RESHAPE, t.ALL, reshape, refusals=0.2),
    Row("any", Op.SQUEEZE, t.ALL, squeeze),
    Row("any", Op.EXPAND_DIMS, t.ALL, expand_dims),
    Row("any", Op.TRANSPOSE, t.TRANSPOSED, transpose),
    Row("any", Op.CONCATENATION, t.JOINED, concatenation),
    Row("any", Op.PACK, t.PACKED, pack),
    Row("any", Op.UNPACK, t.UNPACKED, unpack),
    Row("any", Op.SPLIT, t.SPLIT, split),
    Row("any", Op.SPLIT_V, t.SPLIT_V, split_v),
    Row("any", Op.SLICE, t.SLICED, cut),
    Row("strides", Op.STRIDED_SLICE, t.STRIDED, strided(offset=False), refusals=0.15),
    Row("masks", Op.STRIDED_SLICE, t.STRIDED, masked),
    Row("offset", Op.STRIDED_SLICE, t.STRIDED, strided(offset=True), version=8, resolver=PLAIN),
    Row("any", Op.DYNAMIC_UPDATE_SLICE, t.UPDATED, update),
    Row("zero", Op.PAD, t.PADDED, pad(value=False)),
    Row("value", Op.PADV2, t.PADDED, pad(value=True)),
    Row("any", Op.MIRROR_PAD, t.MIRRORED, mirror_pad),
    Row("any", Op.DILATE, t.DILATED, dilate),
    Row("any", Op.TILE, t.TILED, tile),
    Row("any", Op.BROADCAST_TO, t.BROADCAST, broadcast_to, version=2),
    Row("any", Op.FILL, t.FILLED, fill),
    Row("any", Op.ZEROS_LIKE, t.ZEROED, plain()),
    Row("any", Op.SHAPE, t.ALL, told(_STATED, "out_type")),
    Row("any", Op.RANK, t.ALL, told(_STATED[:1], None)),
    Row("any", Op.REVERSE_V2, t.REVERSED, reverse),
    Row("any", Op.REVERSE_SEQUENCE, t.REVERSED_SEQUENCE, reverse_sequence),
    Row("any", Op.SPACE_TO_DEPTH, t.BLOCKS, blocks(to_depth=True)),
    Row("any", Op.DEPTH_TO_SPACE, t.BLOCKS, blocks(to_depth=False)),
    Row("any", Op.SPACE_TO_BATCH_ND, t.BATCH_BLOCKS, to_batch),
    Row("any", Op.BATCH_TO_SPACE_ND, t.BATCH_BLOCKS, from_batch),
    Row("any", Op.MATRIX_DIAG, t.DIAGONAL, matrix_diag),
    Row("any", Op.MATRIX_SET_DIAG, t.DIAGONAL, matrix_set_diag),
]
