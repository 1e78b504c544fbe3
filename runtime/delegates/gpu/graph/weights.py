"""Weights in the types in which model files hold them, and the numbers that these stand for.

Kernels read weights as they are stored and widen them in registers, so that a file of fp16 or int8 weights
takes half or a quarter of the memory, and gives the bits that its dequantised weights would give.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.model.graph import Tensor
from runtime.model.schema import TensorType


class WeightType(Enum):
    """The type of a weight in memory; its value is the define WEIGHT of `kernels/common.cl`.

    I8 and I4 are levels about zero, U8 are levels with a zero point; two of I4 share a byte.
    """

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    I8 = "I8"
    U8 = "U8"
    I4 = "I4"

    @property
    def bits(self) -> int:
        """Bits of a weight in memory."""
        return _BITS[self]

    @property
    def head_rows(self) -> int:
        """Rows of floats in front of a panel of weights: the bias; scales; zero points."""
        return {WeightType.I8: 2, WeightType.I4: 2, WeightType.U8: 3}.get(self, 1)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of codes on the host: uint16 for the bits of bfloat16, int8 for I4."""
        return np.dtype(_DTYPES[self])


_BITS = {
    WeightType.F32: 32,
    WeightType.F16: 16,
    WeightType.BF16: 16,
    WeightType.I8: 8,
    WeightType.U8: 8,
    WeightType.I4: 4,
}

_DTYPES = {
    WeightType.F32: np.float32,
    WeightType.F16: np.float16,
    WeightType.BF16: np.uint16,
    WeightType.I8: np.int8,
    WeightType.U8: np.uint8,
    WeightType.I4: np.int8,
}


_SIGN = 128
"""The sign bit of a byte: inverted, it adds 128 to an int8, which is then a uint8."""


# Compared by identity, as `==` of arrays gives an array.
@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A constant of real numbers as a file holds it.

    `codes` has the logical shape. Of integers a number is (code - zero) * scale, rounded once to float32; it
    has one scale and zero point, or one for each slice along `axis`, or of a matrix a scale [rows, blocks]
    for every `block` columns. `rounding` makes the codes of real numbers whenever they are asked for: many
    are packed once or, where they lie in a file already, never.
    """

    type: WeightType
    numbers: NDArray[Any]
    scales: NDArray[np.float32] | None = None
    zeros: NDArray[np.float32] | None = None
    axis: int = 0
    block: int | None = None
    rounding: Callable[[NDArray[np.float32]], NDArray[Any]] | None = None

    @property
    def codes(self) -> NDArray[Any]:
        """Return the numbers of `type`."""
        return self.numbers if self.rounding is None else self.rounding(self.numbers)

    def by_slice(self, numbers: NDArray[np.float32], axis: int) -> NDArray[np.float32] | None:
        """Scales or zero points, one for each slice along `axis`; None where they follow something else."""
        if self.block is not None or (numbers.size > 1 and axis % self.numbers.ndim != self.axis):
            return None
        return np.broadcast_to(numbers, (self.numbers.shape[axis],))

    def widened(self) -> NDArray[np.float32]:
        """Return the real numbers."""
        if self.type is WeightType.BF16:
            return (self.codes.astype(np.uint32) << 16).view(np.float32)
        if self.scales is None or self.zeros is None:
            return self.codes.astype(np.float32, copy=False)
        if self.block is not None:
            blocks = self.codes.reshape(*self.scales.shape, self.block) * self.scales[..., None]
            return blocks.reshape(self.codes.shape)
        extents = [1] * self.codes.ndim
        if self.scales.size > 1:
            extents[self.axis] = -1
        return (self.codes - self.zeros.reshape(extents)) * self.scales.reshape(extents)


_LEVELS = frozenset({TensorType.INT8, TensorType.UINT8, TensorType.INT4, TensorType.UINT4, TensorType.INT2})
"""Types of quantised weights that kernels widen."""

_SIGNED = frozenset({TensorType.INT8, TensorType.INT4, TensorType.INT2})
"""Those whose levels stand as int8 in numpy, the others as uint8."""


def stored(
    tensor: Tensor, codes: NDArray[Any], scales_of_blocks: NDArray[Any] | None = None
) -> Stored | None:
    """Return a file's constant in the form that kernels widen; None for another type, or without a scale.

    `codes` are the tensor's elements, those of less than a byte one in each byte. Where its scales stand in a
    tensor of their own, `scales_of_blocks` holds them.
    """
    if tensor.type is TensorType.FLOAT16:
        return Stored(WeightType.F16, codes)
    q = tensor.quantization
    if q is not None and q.blocks is not None and scales_of_blocks is not None:
        return _in_blocks(tensor, codes, scales_of_blocks, q.blocks.block_size)
    if tensor.type not in _LEVELS or q is None or q.is_custom or q.blocks is not None or not q.scales:
        return None
    scales, zeros = np.array(q.scales, np.float32), np.array(q.zero_points, np.float32)
    zeros = zeros if zeros.size == scales.size else np.zeros_like(scales)
    if tensor.type not in _SIGNED:
        return Stored(WeightType.U8, codes, scales, zeros, q.quantized_dimension)
    if not zeros.any():
        # Levels of two bits are held in four as well.
        kind = WeightType.I8 if tensor.type is TensorType.INT8 else WeightType.I4
        return Stored(kind, codes, scales, zeros, q.quantized_dimension)
    # A zero point of its own: moved by 128, levels and zero points are those of bytes without a sign.
    moved = codes.view(np.uint8) ^ np.uint8(_SIGN)
    return Stored(WeightType.U8, moved, scales, zeros + _SIGN, q.quantized_dimension)


_LEAST_BLOCK = {WeightType.I8: 4, WeightType.I4: 8}
"""Levels of which a block is a multiple: kernels read as many at once."""


def _in_blocks(tensor: Tensor, codes: NDArray[Any], scales: NDArray[Any], block: int) -> Stored | None:
    """Return a matrix of levels about zero, None in another form; LiteRT's kernel takes no zero points."""
    kind = {TensorType.INT8: WeightType.I8, TensorType.INT4: WeightType.I4}.get(tensor.type)
    if kind is None or codes.ndim != 2 or block < 1 or block % _LEAST_BLOCK[kind] or codes.shape[1] % block:
        return None
    blocks = codes.shape[1] // block
    if scales.size != len(codes) * blocks:
        return None
    of_blocks = scales.astype(np.float32).reshape(len(codes), blocks)
    return Stored(kind, codes, of_blocks, np.zeros(1, np.float32), block=block)


_LEVELS_BELOW_ZERO = 8
"""Levels of I4 below zero: added, they make every level a number of four bits, and `levels16_I4` of
`kernels/common.cl` takes them off again."""


def pairs_of_levels(codes: NDArray[Any], lanes: int) -> NDArray[Any]:
    """Levels of I4 as bytes, half as many: of each `lanes` levels the first half stand in the low bits."""
    moved = (codes + _LEVELS_BELOW_ZERO).astype(np.uint8)
    halves = moved.reshape(*codes.shape[:-1], -1, 2, lanes // 2)
    return (halves[..., 0, :] | halves[..., 1, :] << 4).reshape(*codes.shape[:-1], -1)
