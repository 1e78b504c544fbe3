"""Packs the weights of products in panels or rows, in the type in which the model's file holds them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Value, ceil_div, round_up
from runtime.delegates.gpu.graph.weights import WeightType, pairs_of_levels
from runtime.delegates.gpu.lowering import spec

Floats = NDArray[np.float32]


def panels(matrix: spec.Array, width: int) -> spec.Array:
    """Pack a matrix [K, N] as [ceil(N / width), K, width].

    Columns behind N are zeros, so that the padded lanes of the output become zeros too.
    """
    depth, columns = matrix.shape
    count = ceil_div(columns, width)
    padded = matrix
    if columns % width:
        padded = np.zeros((depth, count * width), matrix.dtype)
        padded[:, :columns] = matrix
    return padded.reshape(depth, count, width).transpose(1, 0, 2)


def filter_matrix(weights: spec.Array, pixel_stride: int) -> spec.Array:
    """Turn a filter [O, h, w, I] into a matrix [h * w * pixel_stride, O]: a row for each element of a window.

    The rows of padded lanes are zeros: whatever finite number such a lane holds, it adds nothing.
    """
    out_channels, height, width, channels = weights.shape
    rows = np.zeros((height, width, pixel_stride, out_channels), weights.dtype)
    rows[:, :, :channels] = weights.transpose(1, 2, 3, 0)
    return rows.reshape(-1, out_channels)


def grouped_panels(weights: spec.Array, width: int, channels: int, depth: int) -> spec.Array:
    """Pack a filter [O, h, w, I / groups] as [panels, h * w * depth, width], for a grouped convolution.

    A panel of `width` outputs reads `depth` input channels of `channels`, from `first_channel` on: those of
    all groups in the panel; the weights of foreign groups are zero.
    """
    out_channels, height, taps_w, group_in = weights.shape
    group_out = out_channels * group_in // channels
    count = ceil_div(out_channels, width)
    taps = np.zeros((count, height, taps_w, depth, width), weights.dtype)
    for output in range(out_channels):
        panel, column = divmod(output, width)
        start = output // group_out * group_in - first_channel(
            panel, width, group_in, group_out, channels, depth
        )
        taps[panel, :, :, start : start + group_in, column] = weights[output]
    return taps.reshape(count, -1, width)


def first_channel(panel: int, width: int, group_in: int, group_out: int, channels: int, depth: int) -> int:
    """First input channel that a panel of a grouped convolution reads (as `conv/direct.cl` computes it)."""
    # The last panels begin earlier, so that none reads channels behind the last.
    return min(panel * width // group_out * group_in, channels - depth)


def grouped_depth(width: int, out_channels: int, group_in: int, group_out: int, channels: int) -> int:
    """Input channels that a panel of `width` outputs must read so that every group in it is covered."""
    spans = [
        (min((panel + 1) * width, out_channels) - 1) // group_out - panel * width // group_out + 1
        for panel in range(ceil_div(out_channels, width))
    ]
    return min(max(spans) * group_in, channels)


def depthwise_panels(weights: spec.Array) -> spec.Array:
    """Pack a filter [O, h, w, 1] as [ceil(O / 16), h * w, 16]; channels behind O are zeros."""
    return panels(weights.reshape(len(weights), -1).T, LANES)


_PAIR = 2
"""Levels of I4 in a byte. In rows each byte holds neighbours, so that four columns are two bytes; those of
panels are shared within the 16 columns that a kernel reads at once, which takes fewer instructions there."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a product and its bias, one for each output.

    `codes` gives the stored numbers, zero points taken off, so that a packer may fill gaps with zeros: in the
    numpy type of `type`, those of U8 in int16. `scales` and `zeros` hold a number for each output.
    `is_narrow`: the file holds narrow weights, also where `type` is float32 by the option `weights`.
    """

    type: WeightType
    codes: Callable[[], spec.Array]
    bias: Callable[[], Floats | None]
    scales: Floats | None = None
    zeros: Floats | None = None
    is_narrow: bool = False

    def arranged(self, arrange: Callable[[spec.Array], spec.Array]) -> "Weights":
        """Return the weights in another order or shape, e.g. as a matrix; their outputs stay the same."""
        return replace(self, codes=lambda: arrange(self.codes()))

    def panels(
        self, name: str, count: int, rows: int, width: int, pack: Callable[[spec.Array], spec.Array]
    ) -> spec.PackedConstant:
        """Return the constant that kernels read by `PANEL_HEAD` and `WEIGHTS16` of `kernels/common.cl`.

        `pack` turns the codes into [count, rows, width]; column c of panel p is output p * width + c.
        """
        return self._packed(name, (count, rows, width), pack, LANES)

    def rows(self, name: str, depth: int, columns: int) -> spec.PackedConstant:
        """Return the constant that kernels of work-groups read by `WEIGHTS4` of `kernels/portable.cl`.

        The codes must be a matrix [depth, columns]; columns are padded with zeros to 16.
        """
        width = round_up(columns)
        return self._packed(name, (1, depth, width), lambda codes: panels(codes, width), _PAIR)

    def _packed(
        self, name: str, shape: tuple[int, int, int], pack: Callable[[spec.Array], spec.Array], lanes: int
    ) -> spec.PackedConstant:
        """Panels of (count, rows, width); levels of I4 share their bytes within so many `lanes`."""
        count, rows, width = shape
        size = count * panel_bytes(self.type, rows, width)

        def make() -> spec.Array:
            found = np.empty((count, size // count), np.uint8)
            start = 4 * self.type.head_rows * width
            found[:, :start].view(np.float32)[...] = self._heads(count, width)
            self._store(pack(self.codes()), found[:, start:], lanes)
            return found

        return spec.PackedConstant(name, size, make, ElementType.U8, self.type)

    def _heads(self, count: int, width: int) -> Floats:
        """Return the rows in front of the panels, [count, head rows * width], with zeros at the end."""
        rows = (self.bias(), self.scales, self.zeros)[: self.type.head_rows]
        padded = np.zeros((len(rows), count * width), np.float32)
        for target, row in zip(padded, rows, strict=True):
            if row is not None:
                target[: len(row)] = row
        return padded.reshape(-1, count, width).transpose(1, 0, 2).reshape(count, -1)

    def _store(self, found: spec.Array, target: spec.Array, lanes: int) -> None:
        """Write panels [count, rows, width] into the bytes of `target`, [count, bytes]."""
        count, _, width = found.shape
        if self.type is WeightType.I4:
            target[...] = pairs_of_levels(found, lanes).reshape(count, -1)
            return
        if self.type is WeightType.U8:
            zeros = np.zeros(count * width, np.int16)
            if self.zeros is not None:
                zeros[: len(self.zeros)] = self.zeros
            # Codes come with their zero points taken off, but the kernel expects the file's bytes.
            found = found + zeros.reshape(count, 1, width)
        target.view(self.type.dtype).reshape(found.shape)[...] = found


def panel_bytes(kind: WeightType, rows: int, width: int) -> int:
    """Bytes of a panel of a head and `rows` rows, `width` columns each."""
    return 4 * kind.head_rows * width + rows * width * kind.bits // 8


def weights_of(value: Value, outputs: int, bias: Callable[[], Floats | None]) -> Weights:
    """Return the weights in a constant, whose dimension `outputs` counts the outputs of the product.

    Levels whose scales follow another dimension are widened here: a panel has a scale for each column.
    """
    stored = value.stored
    if stored is None:
        return Weights(WeightType.F32, lambda: _content(value), bias)
    if stored.scales is None or stored.zeros is None:
        return Weights(stored.type, lambda: stored.codes, bias, is_narrow=True)
    scales, zeros = stored.by_slice(stored.scales, outputs), stored.by_slice(stored.zeros, outputs)
    if scales is None or zeros is None:
        return Weights(WeightType.F32, lambda: _content(value), bias, is_narrow=True)
    if stored.type is not WeightType.U8:
        return Weights(stored.type, lambda: stored.codes, bias, scales, is_narrow=True)
    extents = [1] * stored.codes.ndim
    extents[outputs] = -1
    # A byte minus a zero point needs nine bits.
    shift = zeros.astype(np.int16).reshape(extents)
    return Weights(stored.type, lambda: stored.codes - shift, bias, scales, zeros, is_narrow=True)


def _content(value: Value) -> spec.Array:
    if value.data is None:
        raise ValueError(f"value {value.id} is not a constant")
    return value.data
