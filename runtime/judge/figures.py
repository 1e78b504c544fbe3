"""Measures an output's distance from its reference: overall, at its worst, in slices, systematically.

All arrays are real, dequantised and of the output's shape; errors are y - r.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

TILE: Final = 8
"""Values of a tile's side. Chosen: kernels compute tiles of 4 to 16 pixels at once; half or twice as much,
and a wrong one is still most of a slice."""

LEAST_OF_SLICE: Final = 8
"""Values that a slice has at least. Of fewer, its norm says no more than its largest value does."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Errors of one output of one input set.

    `rms` and `mean` are in the output's unit; `slope` is the share by which the output grows with its
    reference beyond it; `mean_error` and `slope_error` are their standard errors, as of independent errors.
    `largest`, at `place` of the flat output, and the root mean squares of its `slices`, by the way in which
    it is divided, are of errors over the weight of their place (`weights`).
    """

    rms: float
    largest: float
    place: int
    mean: float
    mean_error: float
    slope: float
    slope_error: float
    slices: Mapping[str, Reals]


def figures(error: Reals, reference: Reals) -> Figures:
    """Measure the errors of an output that has at least one value; all values are finite."""
    mean = float(error.mean())
    slope, slope_error, rest = _slope(error - mean, reference - reference.mean())
    weighted = error / weights(reference)
    place = int(np.argmax(np.abs(weighted)))
    return Figures(
        rms=root_mean_square(error),
        largest=float(np.abs(weighted.flat[place])),
        place=place,
        mean=mean,
        mean_error=rest / math.sqrt(error.size),
        slope=slope,
        slope_error=slope_error,
        slices=dict(slice_norms(weighted)),
    )


def weights(reference: Reals) -> Reals:
    """Return by how much an error counts less at each place: 1 at a value that is small beside the others.

    Errors grow with the values: a peak may be off by as large a share of itself as the others are.
    """
    norm = root_mean_square(reference)
    return np.hypot(1.0, reference / norm) if norm > 0.0 else np.ones_like(reference)


def root_mean_square(values: Reals) -> float:
    """Return the root of the mean of the squares; 0 of nothing."""
    return float(np.linalg.norm(values.reshape(-1))) / math.sqrt(values.size) if values.size else 0.0


def _slope(error: Reals, values: Reals) -> tuple[float, float, float]:
    """Return the slope of centred errors over centred values, its standard error, and the rest's norm.

    The standard error is that of the jackknife (HC3): of an output with one large value, this value alone
    makes the slope, and the ordinary error would be far too small.
    """
    squares = values**2
    total = float(squares.sum())
    # A flat output has no slope: what varies by less than its own rounding is flat.
    if total <= 1e-30 or values.size < 3:
        return 0.0, 0.0, root_mean_square(error)
    slope = float((error * values).sum()) / total
    rest = error - slope * values
    # At a leverage of 1 the line goes through the value, whatever it is, and nothing is left to scale.
    leverage = np.minimum(1.0 / values.size + squares / total, 1.0 - 1e-9)
    jackknifed = values * rest / (1.0 - leverage)
    return slope, float(np.linalg.norm(jackknifed.reshape(-1))) / total, root_mean_square(rest)


def slice_norms(values: Reals) -> Iterator[tuple[str, Reals]]:
    """Yield the root mean squares of the slices of each way to divide an array: axes, tiles, runs of values.

    An axis of length 1 divides nothing. Slices of fewer than `LEAST_OF_SLICE` values are left out.
    """
    squares = np.square(values).reshape([n for n in values.shape if n > 1] or [1])
    if squares.ndim == 1:
        if squares.size >= 2 * LEAST_OF_SLICE:
            yield "run", np.sqrt(_blocks(squares, 0))
        return
    for axis, length in enumerate(squares.shape):
        if squares.size // length >= LEAST_OF_SLICE:
            others = tuple(a for a in range(squares.ndim) if a != axis)
            is_last = axis == squares.ndim - 1
            yield "channel" if is_last else f"row of axis {axis}", np.sqrt(squares.mean(axis=others))
    # The pixels of a picture, the last two axes of anything flat.
    first = max(0, squares.ndim - 3)
    if min(squares.shape[first : first + 2]) >= 2 * TILE:
        tiles = _blocks(_blocks(squares, first), first + 1)
        yield "tile", np.sqrt(tiles.mean(axis=-1) if squares.ndim > 2 else tiles)


def _blocks(values: Reals, axis: int) -> Reals:
    """Return the means of blocks of `TILE` along an axis, the last one perhaps shorter."""
    starts = np.arange(0, values.shape[axis], TILE)
    lengths = np.diff([*starts, values.shape[axis]])
    shape = [-1 if a == axis else 1 for a in range(values.ndim)]
    return np.asarray(np.add.reduceat(values, starts, axis=axis) / lengths.reshape(shape))


def relative_norm(error: Reals, r: Reals) -> float | None:
    """Return ||error|| / ||r||; 0 where both are zero, None where only r is."""
    off, norm = float(np.linalg.norm(error.reshape(-1))), float(np.linalg.norm(r.reshape(-1)))
    if norm > 0.0:
        return off / norm
    return 0.0 if off == 0.0 else None


def cosine(r: Reals, y: Reals) -> float:
    """Return the cosine of two outputs; 1 where both are zero, 0 where one is."""
    norm_r, norm_y = float(np.linalg.norm(r.reshape(-1))), float(np.linalg.norm(y.reshape(-1)))
    if norm_r > 0.0 and norm_y > 0.0:
        # Divided first: the product of two large norms could overflow. Rounding may give a little over 1.
        return min(1.0, float(np.vdot(r / norm_r, y / norm_y)))
    return 1.0 if norm_r == norm_y else 0.0


def top1(r: Reals, y: Reals) -> float | None:
    """Return the share of rows whose largest value is at the same place; None for rows of one value."""
    if r.ndim == 0 or r.shape[-1] < 2 or not r.size:
        return None
    return float(np.mean(np.argmax(r, axis=-1) == np.argmax(y, axis=-1)))
