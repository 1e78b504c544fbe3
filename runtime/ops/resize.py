"""RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR of [N, H, W, C]; the size is a constant [height, width]."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.elementwise import require_equal_quantization
from runtime.ops.shapes import image_shape
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator
from runtime.ops.type_sets import QUANTIZED

_TYPES = (TensorType.FLOAT32, *QUANTIZED)


def resize_shape(op: OpContext) -> tuple[Shape, ...]:
    """[N, height, width, C]."""
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
    """(lower, upper, weight of upper) of each output position, as `reference/resize_bilinear.h`."""
    steps, scale = np.arange(target, dtype=np.float32), _scale(op, size, target)
    if op.option("half_pixel_centers"):
        position = (steps + np.float32(0.5)) * scale - np.float32(0.5)
    else:
        position = steps * scale
    lower = np.maximum(np.floor(position), 0).astype(np.intp)
    upper = np.minimum(np.ceil(position), size - 1).astype(np.intp)
    return np.minimum(lower, size - 1), upper, position - lower


@operator(BuiltinOperator.RESIZE_BILINEAR, max_version=4, infer=resize_shape, types=_TYPES)
def resize_bilinear(op: OpContext) -> Kernel:
    """Columns first, then rows; of levels in the order and with the roundings of the reference."""
    kind = op.require(TensorType.FLOAT32, *QUANTIZED)
    op.require_same_type(0)
    if kind in (TensorType.INT8, TensorType.INT16):
        return _bilinear_levels(op)
    if kind is TensorType.UINT8:
        return _bilinear_bytes(op)
    x, y = op.read(0), op.write()
    n, height, width, channels = x.shape
    _, out_height, out_width, _ = y.shape
    top, bottom, weight_h = _linear(op, height, out_height)
    left, right, weight_w = _linear(op, width, out_width)
    weight_w = weight_w[:, None].astype(np.float32)
    weight_h = weight_h[:, None, None].astype(np.float32)
    rows = op.temporary((n, height, out_width, channels))
    other = op.temporary(rows.shape)
    below = op.temporary(y.shape)

    def run() -> None:
        np.take(x, left, axis=2, out=rows, mode="clip")
        np.take(x, right, axis=2, out=other, mode="clip")
        np.subtract(other, rows, out=other)
        np.multiply(other, weight_w, out=other)
        np.add(rows, other, out=rows)
        np.take(rows, top, axis=1, out=y, mode="clip")
        np.take(rows, bottom, axis=1, out=below, mode="clip")
        np.subtract(below, y, out=below)
        np.multiply(below, weight_h, out=below)
        np.add(y, below, out=y)

    return run


def _bilinear_bytes(op: OpContext) -> Kernel:
    """uint8 is interpolated in single precision and rounded (ResizeBilinear of the same file)."""
    x, y = op.read(0), op.write()
    top, bottom, down = _linear(op, x.shape[1], y.shape[1])
    left, right, across = _linear(op, x.shape[2], y.shape[2])
    down, across = (w.astype(np.float32) for w in (down[:, None, None], across[:, None]))
    up, back = np.float32(1) - down, np.float32(1) - across
    corners = ((top, left, up, back), (bottom, left, down, back), (top, right, up, across),
               (bottom, right, down, across))  # fmt: skip

    def run() -> None:
        for image, out in zip(x, y, strict=True):
            total = np.zeros(out.shape, np.float32)
            for rows, columns, by_row, by_column in corners:
                total += image[rows[:, None], columns] * by_row * by_column
            np.copyto(out, total + np.float32(0.5), casting="unsafe")

    return run


def _bilinear_levels(op: OpContext) -> Kernel:
    """10-bit positions, 20-bit weights, halves away from zero (ResizeBilinearInteger)."""
    x, y = op.read(0), op.write()
    top, bottom, down = _fixed_positions(op, x.shape[1], y.shape[1])
    left, right, across = _fixed_positions(op, x.shape[2], y.shape[2])
    down, across = down[:, None, None], across[:, None]

    def run() -> None:
        for image, out in zip(x, y, strict=True):
            wide = image.astype(np.int64)
            upper = wide[top[:, None], left] * (1024 - across) + wide[top[:, None], right] * across
            lower = wide[bottom[:, None], left] * (1024 - across) + wide[bottom[:, None], right] * across
            total = upper * (1024 - down) + lower * down
            rounded = total + np.where(total > 0, 1 << 19, -(1 << 19))
            np.copyto(out, np.sign(rounded) * (np.abs(rounded) >> 20), casting="unsafe")

    return run


def _fixed_positions(op: OpContext, size: int, target: int) -> tuple[Array, Array, Array]:
    """(lower, upper, weight of upper in 1/1024) of each output position."""
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
    """Source index of each output position, as `reference/resize_nearest_neighbor.h`."""
    scale = _scale(op, size, target)
    offset = np.float32(0.5 if op.option("half_pixel_centers") else 0)
    position = (np.arange(target, dtype=np.float32) + offset) * scale
    rounding = np.float32(0.5 if op.option("align_corners") else 0)
    return np.asarray(np.minimum(np.floor(position + rounding).astype(np.intp), size - 1))


@operator(BuiltinOperator.RESIZE_NEAREST_NEIGHBOR, max_version=4, infer=resize_shape, types=_TYPES)
def resize_nearest_neighbor(op: OpContext) -> Kernel:
    """A copy of the nearest pixel; levels need equal quantisation."""
    kind = op.require(TensorType.FLOAT32, *QUANTIZED)
    op.require_same_type(0)
    if kind in QUANTIZED:
        require_equal_quantization(op, op.input(), op.output())
    x, y = op.read(0), op.write()
    rows = _nearest(op, x.shape[1], y.shape[1])
    columns = _nearest(op, x.shape[2], y.shape[2])
    wide = op.temporary((x.shape[0], x.shape[1], y.shape[2], x.shape[3]), x.dtype)

    def run() -> None:
        np.take(x, columns, axis=2, out=wide, mode="clip")
        np.take(wide, rows, axis=1, out=y, mode="clip")

    return run
