"""Packs weights in the order in which the kernels read them, in plain numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.graph import LANES, ceil_div

Floats = NDArray[np.float32]


def panels(matrix: Floats, bias: Floats | None, width: int) -> Floats:
    """Pack a matrix [K, N] and a bias [N] as [ceil(N / width), 1 + K, width]: the bias, then the rows.

    Columns behind N are zeros, so that the padded lanes of the output become zeros too.
    """
    depth, columns = matrix.shape
    count = ceil_div(columns, width)
    padded = np.zeros((1 + depth, count * width), np.float32)
    padded[1:, :columns] = matrix
    if bias is not None:
        padded[0, :columns] = bias
    return padded.reshape(1 + depth, count, width).transpose(1, 0, 2)


def filter_matrix(weights: Floats, pixel_stride: int) -> Floats:
    """Turn a filter [O, h, w, I] into a matrix [h * w * pixel_stride, O]: a row for each element of a window.

    The rows of padded lanes are zeros: whatever finite number such a lane holds, it adds nothing.
    """
    out_channels, height, width, channels = weights.shape
    rows = np.zeros((height, width, pixel_stride, out_channels), np.float32)
    rows[:, :, :channels] = weights.transpose(1, 2, 3, 0)
    return rows.reshape(-1, out_channels)


def grouped_panels(weights: Floats, bias: Floats | None, width: int, channels: int, depth: int) -> Floats:
    """Pack a filter [O, h, w, I / groups] as [panels, 1 + h * w * depth, width], for a grouped convolution.

    A panel of `width` outputs reads `depth` input channels of `channels`, from `first_channel` on: those of
    all groups in the panel; the weights of foreign groups are zero.
    """
    out_channels, height, taps_w, group_in = weights.shape
    group_out = out_channels * group_in // channels
    count = ceil_div(out_channels, width)
    packed = np.zeros((count, 1 + height * taps_w * depth, width), np.float32)
    taps = packed[:, 1:].reshape(count, height, taps_w, depth, width)
    for output in range(out_channels):
        panel, column = divmod(output, width)
        start = output // group_out * group_in - first_channel(
            panel, width, group_in, group_out, channels, depth
        )
        taps[panel, :, :, start : start + group_in, column] = weights[output]
    if bias is not None:
        padded = np.zeros(count * width, np.float32)
        padded[:out_channels] = bias
        packed[:, 0] = padded.reshape(count, width)
    return packed


def first_channel(panel: int, width: int, group_in: int, group_out: int, channels: int, depth: int) -> int:
    """First input channel that a panel of a grouped convolution reads (as `conv/direct.cl` computes it)."""
    return min(panel * width // group_out * group_in, channels - depth)


def grouped_depth(width: int, out_channels: int, group_in: int, group_out: int, channels: int) -> int:
    """Input channels that a panel of `width` outputs must read so that every group in it is covered."""
    spans = [
        (min((panel + 1) * width, out_channels) - 1) // group_out - panel * width // group_out + 1
        for panel in range(ceil_div(out_channels, width))
    ]
    return min(max(spans) * group_in, channels)


def depthwise_blocks(weights: Floats, bias: Floats | None, channels: int) -> Floats:
    """Pack a filter [O, h, w, 1] and a bias [O] as [channels / 16, 1 + h * w, 16]: the bias, then the taps.

    Channels behind O are zeros.
    """
    out_channels, height, width, _ = weights.shape
    rows = np.zeros((1 + height * width, channels), np.float32)
    rows[1:, :out_channels] = weights.reshape(out_channels, height * width).T
    if bias is not None:
        rows[0, :out_channels] = bias
    return rows.reshape(1 + height * width, channels // LANES, LANES).transpose(1, 0, 2)
