"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of [N, H, W, C]; the size is a constant [height, width]."""

from collections.abc import Callable
from typing import Any

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

    Quantised types follow the order and the roundings of the reference.
    """
    kind = op.input().type
    op.require_same_type(0)
    if kind in (TensorType.INT8, TensorType.INT16):
        return _bilinear_levels(op)
    if kind is TensorType.UINT8:
        return _bilinear_bytes(op)
    x, y = op.read(0), op.write()
    top, bottom, down = _linear(op, x.shape[1], y.shape[1])
    left, right, across = _linear(op, x.shape[2], y.shape[2])
    across = np.repeat(across.astype(np.float32), x.shape[3])
    down = down[:, None].astype(np.float32)
    # Two products instead of one of the difference: of two infinities that would be NaN.
    up, back = np.float32(1) - down, np.float32(1) - across
    # Interpolating columns first needs one pass over the rows of the input, however often output rows use
    # them.
    rows, other = (op.temporary(_wide_rows(x, y)) for _ in range(2))
    blocks, buffer = _row_blocks(op, y, np.float32)
    high = buffer()

    def run() -> None:
        for image, out in zip(x, y.reshape(len(y), y.shape[1], -1), strict=True):
            _take_columns(image, left, rows)
            _take_columns(image, right, other)
            np.multiply(rows, back, out=rows)
            np.multiply(other, across, out=other)
            np.add(rows, other, out=rows)
            for block in blocks:
                low, above = out[block], high[: block.stop - block.start]
                np.take(rows, top[block], axis=0, out=low, mode="clip")
                np.take(rows, bottom[block], axis=0, out=above, mode="clip")
                np.multiply(low, up[block], out=low)
                np.multiply(above, down[block], out=above)
                np.add(low, above, out=low)

    return run


def _wide_rows(x: Array, y: Array) -> Shape:
    """Return the shape of an image of x whose columns are already those of y: [H, Wo * C]."""
    return (x.shape[1], y.shape[2] * y.shape[3])


def _take_columns(image: Array, columns: Array, rows: Array) -> None:
    """Copy `columns` of image [H, W, C] into `rows` [H, Wo * C] of the same dtype."""
    np.take(image, columns, axis=1, out=rows.reshape(len(rows), columns.size, -1), mode="clip")


def _row_blocks(op: OpContext, y: Array, dtype: Any) -> tuple[list[slice], Callable[[], Array]]:
    """Return blocks of output rows that stay in the cache, and a function that allocates for the largest."""
    _, height, width, channels = y.shape
    step = max(1, min(height, BLOCK_ELEMENTS // max(1, width * channels)))
    blocks = [slice(i, min(i + step, height)) for i in range(0, height, step)]
    return blocks, lambda: op.temporary((step, width * channels), dtype)


def _bilinear_bytes(op: OpContext) -> Kernel:
    """Interpolate uint8 in single precision, with 0.5 added before truncation.

    The four corners are weighted and added in the order of ResizeBilinear in `reference/resize_bilinear.h`,
    on which float32 sums depend.
    """
    x, y = op.read(0), op.write()
    top, bottom, down = _linear(op, x.shape[1], y.shape[1])
    left, right, across = _linear(op, x.shape[2], y.shape[2])
    across = np.repeat(across.astype(np.float32), x.shape[3])
    down = down[:, None].astype(np.float32)
    up, back = np.float32(1) - down, np.float32(1) - across
    floats = op.temporary(x.shape[1:])
    lefts, rights = (op.temporary(_wide_rows(x, y)) for _ in range(2))
    blocks, buffer = _row_blocks(op, y, np.float32)
    some, sums = buffer(), buffer()
    corners = (
        (lefts, top, up, back),
        (lefts, bottom, down, back),
        (rights, top, up, across),
        (rights, bottom, down, across),
    )

    def run() -> None:
        for image, out in zip(x, y.reshape(len(y), y.shape[1], -1), strict=True):
            np.copyto(floats, image)
            _take_columns(floats, left, lefts)
            _take_columns(floats, right, rights)
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


def _bilinear_levels(op: OpContext) -> Kernel:
    """Interpolate int8, int16 with positions of 10 bits and weights of 20 (ResizeBilinearInteger).

    int16 times 2^20 needs int64. Halves are rounded away from zero.
    """
    x, y = op.read(0), op.write()
    dtype = np.int32 if x.dtype == np.int8 else np.int64
    top, bottom, down = _fixed_positions(op, x.shape[1], y.shape[1])
    left, right, across = _fixed_positions(op, x.shape[2], y.shape[2])
    across = np.repeat(across.astype(dtype), x.shape[3])
    down = down[:, None].astype(dtype)
    wide = op.temporary(x.shape[1:], dtype)
    rows, other = (op.temporary(_wide_rows(x, y), dtype) for _ in range(2))
    blocks, buffer = _row_blocks(op, y, dtype)
    low, high = buffer(), buffer()

    def run() -> None:
        for image, out in zip(x, y.reshape(len(y), y.shape[1], -1), strict=True):
            np.copyto(wide, image)
            _take_columns(wide, left, rows)
            _take_columns(wide, right, other)
            np.multiply(rows, 1024 - across, out=rows)
            np.multiply(other, across, out=other)
            np.add(rows, other, out=rows)
            for block in blocks:
                below, total = (a[: block.stop - block.start] for a in (high, low))
                np.take(rows, top[block], axis=0, out=total, mode="clip")
                np.take(rows, bottom[block], axis=0, out=below, mode="clip")
                np.multiply(total, 1024 - down[block], out=total)
                np.multiply(below, down[block], out=below)
                np.add(total, below, out=total)
                # (total - (total < 0) + 2^19) >> 20 rounds to the nearest, ties away from zero.
                np.less(total, 0, out=below, casting="unsafe")
                np.subtract(total, below, out=total)
                np.add(total, 1 << 19, out=total)
                np.right_shift(total, 20, out=total)
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
