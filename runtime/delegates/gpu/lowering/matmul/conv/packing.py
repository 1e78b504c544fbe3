"""Brings weights of any type in the order in which the kernels read them, in plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.gpu.graph.graph import LANES, ceil_div

Array = NDArray[Any]
Floats = NDArray[np.float32]


def panels(matrix: Array, width: int) -> Array:
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


def filter_matrix(weights: Array, pixel_stride: int) -> Array:
    """Turn a filter [O, h, w, I] into a matrix [h * w * pixel_stride, O]: a row for each element of a window.

    The rows of padded lanes are zeros: whatever finite number such a lane holds, it adds nothing.
    """
    out_channels, height, width, channels = weights.shape
    rows = np.zeros((height, width, pixel_stride, out_channels), weights.dtype)
    rows[:, :, :channels] = weights.transpose(1, 2, 3, 0)
    return rows.reshape(-1, out_channels)


def grouped_panels(weights: Array, width: int, channels: int, depth: int) -> Array:
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
    return min(panel * width // group_out * group_in, channels - depth)


def grouped_depth(width: int, out_channels: int, group_in: int, group_out: int, channels: int) -> int:
    """Input channels that a panel of `width` outputs must read so that every group in it is covered."""
    spans = [
        (min((panel + 1) * width, out_channels) - 1) // group_out - panel * width // group_out + 1
        for panel in range(ceil_div(out_channels, width))
    ]
    return min(max(spans) * group_in, channels)


def depthwise_panels(weights: Array) -> Array:
    """Pack a filter [O, h, w, 1] as [ceil(O / 16), h * w, 16]; channels behind O are zeros."""
    return panels(weights.reshape(len(weights), -1).T, LANES)
