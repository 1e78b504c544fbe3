"""Pieces of arrays that stay in a core's cache while several numpy passes go over them."""

from collections.abc import Callable, Sequence

import numpy as np

from runtime.ops.support.context import Kernel, OpContext
from runtime.ops.support.value import Array, Shape

BLOCK_ELEMENTS = 16 << 10
"""Elements of a piece: 64 KiB of float32 for each array of an operation. Chosen, so that input, output and a
temporary fit a second-level cache together; more spills to memory, less pays numpy's call more often."""


def flat_blocks(*arrays: Array, elements: int = BLOCK_ELEMENTS) -> list[tuple[Array, ...]]:
    """Split contiguous arrays of one size into tuples of flat views of at most `elements` items each."""
    flat = [a.reshape(-1) for a in arrays]
    return [tuple(a[i : i + elements] for a in flat) for i in range(0, flat[0].size, elements)]


def broadcast_blocks(out: Array, *inputs: Array, elements: int = BLOCK_ELEMENTS) -> list[tuple[Array, ...]]:
    """Split a broadcast operation into tuples (out, *inputs) of views; they are flat where shapes agree."""
    if all(a.shape == out.shape for a in inputs):
        return flat_blocks(out, *inputs, elements=elements)
    return _split(tuple(np.broadcast_to(a, out.shape) for a in inputs), out, elements)


def _split(inputs: tuple[Array, ...], out: Array, elements: int) -> list[tuple[Array, ...]]:
    axis = next((i for i, d in enumerate(out.shape) if d > 1), None)
    if axis is None or out.size <= elements:
        return [(out, *inputs)] if out.size else []
    # Cut along the first axis that has a choice; only where one entry of it is still too large, cut inside.
    step = max(1, elements * out.shape[axis] // out.size)
    pieces = []
    for start in range(0, out.shape[axis], step):
        where = (slice(None),) * axis + (slice(start, start + step),)
        pieces.append((out[where], *(a[where] for a in inputs)))
    if step > 1 or out.shape[axis] == out.size:
        return pieces
    return [q for p in pieces for q in _split(p[1:], p[0], elements)]


def over(pieces: Sequence[tuple[Array, ...]], apply: Callable[..., object]) -> Kernel:
    """Return a kernel that calls `apply` with the arrays of every piece."""

    def run() -> None:
        for piece in pieces:
            apply(*piece)

    return run


def in_turn(*kernels: Kernel) -> Kernel:
    """Return a kernel that runs others one after the other."""

    def run() -> None:
        for kernel in kernels:
            kernel()

    return run


def pairwise(
    op: OpContext, apply: Callable[[Array, Array, Array], object], elements: int = BLOCK_ELEMENTS
) -> Kernel:
    """Return a kernel that calls `apply(x, z, y)`, as ufuncs are called, on pieces of a broadcast operation.

    x and z are pieces of inputs 0 and 1, y of output 0; all three have one shape.
    """
    pieces = broadcast_blocks(op.write(), op.read(0), op.read(1), elements=elements)
    return over([(x, z, y) for y, x, z in pieces], apply)


def pairs_of_one_type(op: OpContext, apply: Callable[..., object]) -> Kernel:
    """Return `pairwise` of two inputs that must have one type."""
    op.require_operands(1)
    return pairwise(op, apply)


def channel_rows(shape: Shape) -> tuple[int, int]:
    """Return (rows, pixels per row) of [.., C]: a row of several pixels gives numpy a longer inner loop."""
    if len(shape) < 2:
        return 1, 1
    pixels = int(np.prod(shape[:-1]))
    width = shape[-2]
    return (pixels // width if width else 0), width
