"""Cutting arrays into pieces that stay in a core's cache while several numpy passes go over them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.value import Array, Shape

BLOCK_ELEMENTS = 16 << 10


def flat_blocks(*arrays: Array, elements: int = BLOCK_ELEMENTS) -> list[tuple[Array, ...]]:
    """Contiguous arrays of one size, as tuples of flat views of at most `elements` items each."""
    flat = [a.reshape(-1) for a in arrays]
    return [tuple(a[i : i + elements] for a in flat) for i in range(0, flat[0].size, elements)]


def broadcast_blocks(out: Array, *inputs: Array, elements: int = BLOCK_ELEMENTS) -> list[tuple[Array, ...]]:
    """Tuples (out, *inputs) of views over pieces of a broadcast operation; flat where shapes agree."""
    if all(a.shape == out.shape for a in inputs):
        return flat_blocks(out, *inputs, elements=elements)
    return _split(tuple(np.broadcast_to(a, out.shape) for a in inputs), out, elements)


def _split(inputs: tuple[Array, ...], out: Array, elements: int) -> list[tuple[Array, ...]]:
    axis = next((i for i, d in enumerate(out.shape) if d > 1), None)
    if axis is None or out.size <= elements:
        return [(out, *inputs)] if out.size else []
    step = max(1, elements * out.shape[axis] // out.size)
    pieces = []
    for start in range(0, out.shape[axis], step):
        where = (slice(None),) * axis + (slice(start, start + step),)
        pieces.append((out[where], *(a[where] for a in inputs)))
    if step > 1 or out.shape[axis] == out.size:
        return pieces
    return [q for p in pieces for q in _split(p[1:], p[0], elements)]


def pairwise(
    op: OpContext, apply: Callable[[Array, Array, Array], object], elements: int = BLOCK_ELEMENTS
) -> Kernel:
    """`apply(x, z, y)`, as ufuncs are called, on the pieces of both inputs, broadcast, and of the output."""
    pieces = broadcast_blocks(op.write(), op.read(0), op.read(1), elements=elements)

    def run() -> None:
        for y, x, z in pieces:
            apply(x, z, y)

    return run


def channel_rows(shape: Shape) -> tuple[int, int]:
    """(rows, pixels per row) so that [.., C] can be seen as rows of several pixels: a longer inner loop."""
    if len(shape) < 2:
        return 1, 1
    pixels = int(np.prod(shape[:-1]))
    width = shape[-2]
    return (pixels // width if width else 0), width
