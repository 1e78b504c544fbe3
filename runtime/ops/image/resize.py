"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of [N, H, W, C]; the size is a constant [height, width]."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from runtime.ops.support import QUANTIZED, Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.blocks import BLOCK_ELEMENTS
from runtime.ops.support.shapes import image_shape

_TYPES = (TensorType.FLOAT32, *QUANTIZED)
_COPIED = (
    *_TYPES,
    TensorType.FLOAT16,
    TensorType.UINT16,
    TensorType.INT32,
    TensorType.UINT32,
    TensorType.BOOL,
)


_Positions: TypeAlias = Callable[[OpContext, int, int], tuple[Array, Array, Array]]
"""(operator, size, size of the output): returns (lower, upper, weight of upper) of each output position."""


def resize_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [N, height, width, C]. Raises `ShapeError` for a size or options that are not valid."""
    n, _, _, channels = image_shape(op)
    size = op.integers(1, "size")
    if len(size) != 2 or min(size) < 1:
        raise op.error(f"size {list(size)} is not [height, width]")
    if op.option("align_corners") and op.option("half_pixel_centers"):
        raise op.error("align_corners and half_pixel_centers exclude each other")
    return ((n, *size, channels),)


def _scale(op: OpContext, size: int, target: int) -> np.float32:
    if op.option("align_corners") and target > 1:
        return np.float32(size - 1) / np.float32(target - 1)
    return np.float32(size) / np.float32(target)


def _linear(op: OpContext, size: int, target: int) -> tuple[Array, Array, Array]:
    """Return (lower, upper, weight of upper) of each output position (`reference/resize_bilinear.h`).

    The weight is of the position before it is cut to the image: beyond the edge both neighbours are the same
    pixel, and any weight gives its value.
    """
    steps, scale = np.arange(target, dtype=np.float32), _scale(op, size, target)
    if op.option("half_pixel_centers"):
        position = (steps + np.float32(0.5)) * scale - np.float32(0.5)
    else:
        position = steps * scale
    lower = np.maximum(np.floor(position), 0).astype(np.intp)
    upper = np.minimum(np.ceil(position), size - 1).astype(np.intp)
    return np.minimum(lower, size - 1), upper, position - lower


@operator(Op.RESIZE_BILINEAR, max_version=4, infer=resize_shape, types=_TYPES)
def resize_bilinear(op: OpContext) -> Kernel:
    """RESIZE_BILINEAR: interpolate columns, then rows; float32, int8, uint8, int16.

    Quantised types follow the order and the roundings of the reference: int8 and int16 have positions of 10
    bits and weights of 20 (ResizeBilinearInteger), for which int16 needs int64.
    """
    op.require_same_type(0)
    kind = op.input().type
    if kind is TensorType.UINT8:
        return _bilinear_bytes(op)
    if kind is TensorType.FLOAT32:
        return _bilinear(op, _grid(op, _linear, np.float32, 1))
    dtype = np.int32 if kind is TensorType.INT8 else np.int64
    return _bilinear(op, _grid(op, _fixed_positions, dtype, 1024))


class _Grid(NamedTuple):
    """Neighbours of each output row and column in the input, and their weights, which add up to a unit."""

    top: Array
    bottom: Array
    up: Array
    down: Array
    left: Array
    right: Array
    back: Array
    across: Array


def _grid(op: OpContext, positions: _Positions, dtype: Any, unit: int) -> _Grid:
    x, y = op.input().shape, op.output().shape
    top, bottom, down = positions(op, x[1], y[1])
    left, right, across = positions(op, x[2], y[2])
    across, down = np.repeat(across.astype(dtype), x[3]), down[:, None].astype(dtype)
    # Two products instead of one of the difference: of two infinities that would be NaN.
    return _Grid(top, bottom, dtype(unit) - down, down, left, right, dtype(unit) - across, across)


def _bilinear(op: OpContext, g: _Grid) -> Kernel:
    """Interpolate in the weights' type; levels are divided by 2^20 at the end."""
    x, y, dtype = op.read(0), op.write(), g.down.dtype
    is_float = x.dtype == dtype
    wide = None if is_float else op.temporary(x.shape[1:], dtype)
    # Interpolating columns first needs one pass over the rows of the input, however often output rows use
    # them.
    rows, other = (op.temporary(_wide_rows(x, y), dtype) for _ in range(2))
    blocks, buffer = _row_blocks(op, y, dtype)
    some, high = None if is_float else buffer(), buffer()

    def run() -> None:
        for image, out in zip(x, y.reshape(len(y), y.shape[1], -1), strict=True):
            if wide is not None:
                np.copyto(wide, image)
            for columns, taken in ((g.left, rows), (g.right, other)):
                _take_columns(image if wide is None else wide, columns, taken)
            np.multiply(rows, g.back, out=rows)
            np.multiply(other, g.across, out=other)
            np.add(rows, other, out=rows)
            for block in blocks:
                above = high[: block.stop - block.start]
                low = out[block] if some is None else some[: len(above)]
                np.take(rows, g.top[block], axis=0, out=low, mode="clip")
                np.take(rows, g.bottom[block], axis=0, out=above, mode="clip")
                np.multiply(low, g.up[block], out=low)
                np.multiply(above, g.down[block], out=above)
                np.add(low, above, out=low)
                if some is not None:
                    # (low - (low < 0) + 2^19) >> 20 rounds to the nearest, ties away from zero.
                    np.less(low, 0, out=above, casting="unsafe")
                    np.subtract(low, above, out=low)
                    np.add(low, 1 << 19, out=low)
                    np.right_shift(low, 20, out=low)
                    np.copyto(out[block], low, casting="unsafe")

    return run


def _wide_rows(x: Array, y: Array) -> Shape:
    """Return the shape of an image of x whose columns are already those of y: [H, Wo * C]."""
    return (x.shape[1], y.shape[2] * y.shape[3])


def _take_columns(image: Array, columns: Array, rows: Array) -> None:
    """Copy `columns` of image [H, W, C] into `rows` [H, Wo * C] of the same dtype."""
    # All columns lie inside: "clip" is chosen because numpy buffers the output with the mode "raise".
    np.take(image, columns, axis=1, out=rows.reshape(len(rows), columns.size, -1), mode="clip")


def _row_blocks(op: OpContext, y: Array, dtype: Any) -> tuple[list[slice], Callable[[], Array]]:
    """Return blocks of output rows that stay in the cache, and a function that allocates for the largest."""
    _, height, width, channels = y.shape
    step = max(1, min(height, BLOCK_ELEMENTS // max(1, width * channels)))
    blocks = [slice(i, min(i + step, height)) for i in range(0, height, step)]
    return blocks, lambda: op.temporary((step, width * channels), dtype)


def _bilinear_bytes(op: OpContext) -> Kernel:
    """Interpolate uint8 in single precision, with 0.5 added before truncation.

    The corners are added in the order of `reference/resize_bilinear.h`, on which float32 sums depend.
    """
    x, y, g = op.read(0), op.write(), _grid(op, _linear, np.float32, 1)
    floats = op.temporary(x.shape[1:])
    lefts, rights = (op.temporary(_wide_rows(x, y)) for _ in range(2))
    blocks, buffer = _row_blocks(op, y, np.float32)
    some, sums = buffer(), buffer()
    corners = [
        (rows, source, by_row, by_column)
        for rows, by_column in ((lefts, g.back), (rights, g.across))
        for source, by_row in ((g.top, g.up), (g.bottom, g.down))
    ]

    def run() -> None:
        for image, out in zip(x, y.reshape(len(y), y.shape[1], -1), strict=True):
            np.copyto(floats, image)
            _take_columns(floats, g.left, lefts)
            _take_columns(floats, g.right, rights)
            for block in blocks:
                part, total = (a[: block.stop - block.start] for a in (some, sums))
                total.fill(0)
                for rows, source, by_row, by_column in corners:
                    np.take(rows, source[block], axis=0, out=part, mode="clip")
                    np.multiply(part, by_row[block], out=part)
                    np.multiply(part, by_column, out=part)
                    np.add(total, part, out=total)
                np.add(total, np.float32(0.5), out=total)
                np.copyto(out[block], total, casting="unsafe")

    return run


def _fixed_positions(op: OpContext, size: int, target: int) -> tuple[Array, Array, Array]:
    """Return (lower, upper, weight of upper in 1/1024) of each output position.

    `ComputeInterpolationValuesInteger` of `reference/resize_bilinear.h`; C's division truncates towards zero.
    """
    if op.option("align_corners") and target > 1:
        scale = (1024 * (size - 1) + (target - 1) // 2) // (target - 1)
    else:
        scale = (1024 * size + target // 2) // target
    position = np.arange(target, dtype=np.int64) * scale
    if op.option("half_pixel_centers"):
        # (i + 1/2) * scale - 1/2, in units of 1/1024.
        position += scale // 2 - 512
    lower = np.maximum(np.sign(position) * (np.abs(position) // 1024), 0)
    upper = np.minimum((position + 1023) // 1024, size - 1)
    return lower, upper, position - 1024 * lower


def _nearest(op: OpContext, size: int, target: int) -> Array:
    """Return the source index of each output position (`reference/resize_nearest_neighbor.h`)."""
    scale = _scale(op, size, target)
    offset = np.float32(0.5 if op.option("half_pixel_centers") else 0)
    position = (np.arange(target, dtype=np.float32) + offset) * scale
    rounding = np.float32(0.5 if op.option("align_corners") else 0)
    return np.asarray(np.minimum(np.floor(position + rounding).astype(np.intp), size - 1))


@operator(Op.RESIZE_NEAREST_NEIGHBOR, max_version=4, infer=resize_shape, types=_COPIED)
def resize_nearest_neighbor(op: OpContext) -> Kernel:
    """RESIZE_NEAREST_NEIGHBOR: copies of the nearest pixels; quantised types need equal quantisation."""
    kind = op.input().type
    op.require_same_type(0)
    if kind in QUANTIZED:
        op.require_equal_quantization(op.input(), op.output())
    x, y = op.read(0), op.write()
    rows = _nearest(op, x.shape[1], y.shape[1])
    columns = _nearest(op, x.shape[2], y.shape[2])
    wide = op.temporary((x.shape[0], x.shape[1], y.shape[2], x.shape[3]), x.dtype)

    def run() -> None:
        np.take(x, columns, axis=2, out=wide, mode="clip")
        np.take(wide, rows, axis=1, out=y, mode="clip")

    return run
