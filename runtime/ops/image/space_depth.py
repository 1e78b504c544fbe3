"""Pixels between space, depth and batch: SPACE_TO_DEPTH, SPACE_TO_BATCH_ND and their inverses."""

import math

import numpy as np

from runtime.ops.movement.copies import copies, copy, quantized_zero
from runtime.ops.support import INDICES, MOVABLE, PLAIN, Kernel, Op, OpContext, Shape, operator
from runtime.ops.support.shapes import require_rank


def _block(op: OpContext) -> int:
    block: int = op.option("block_size")
    if block < 1:
        raise op.error(f"a block of {block}")
    return block


def space_to_depth_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [N, H / b, W / b, C * b * b]. Raises `ShapeError` for an image that blocks do not divide."""
    (n, height, width, channels), block = require_rank(op, 0, 4), _block(op)
    if height % block or width % block:
        raise op.error(f"an image of {height}x{width} has no blocks of {block}")
    return ((n, height // block, width // block, channels * block * block),)


@operator(Op.SPACE_TO_DEPTH, max_version=2, infer=space_to_depth_shape, types=MOVABLE)
def space_to_depth(op: OpContext) -> Kernel:
    """SPACE_TO_DEPTH: each block of pixels becomes one pixel, with the block's channels row by row."""
    op.require_same_type(0)
    x, y, block = op.read(0), op.write(), _block(op)
    n, height, width, channels = x.shape
    source = x.reshape(n, height // block, block, width // block, block, channels).transpose(0, 1, 3, 2, 4, 5)
    return copy(y.reshape(source.shape), source)


def depth_to_space_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [N, H * b, W * b, C / b / b]. Raises `ShapeError` for channels that do not fill blocks."""
    (n, height, width, channels), block = require_rank(op, 0, 4), _block(op)
    if channels % (block * block):
        raise op.error(f"{channels} channels do not fill blocks of {block}")
    return ((n, height * block, width * block, channels // (block * block)),)


@operator(Op.DEPTH_TO_SPACE, max_version=2, infer=depth_to_space_shape, types=MOVABLE)
def depth_to_space(op: OpContext) -> Kernel:
    """DEPTH_TO_SPACE: each pixel becomes a block of pixels, the inverse of SPACE_TO_DEPTH."""
    op.require_same_type(0)
    x, y, block = op.read(0), op.write(), _block(op)
    n, height, width, channels = x.shape
    source = x.reshape(n, height, width, block, block, channels // (block * block))
    source = source.transpose(0, 1, 3, 2, 4, 5)
    return copy(y.reshape(source.shape), source)


def _blocks_and_edges(op: OpContext) -> tuple[Shape, list[tuple[int, int]]]:
    op.require(*INDICES, i=1)
    op.require(*INDICES, i=2)
    blocks, edges = op.integers(1, "block shape"), op.integers(2, "paddings")
    rank = len(op.input().shape)
    fits = op.input(2).shape == (len(blocks), 2) and rank > len(blocks) and len(op.input(1).shape) == 1
    if not fits or min(blocks, default=1) < 1 or min(edges, default=0) < 0:
        raise op.error(f"blocks {list(blocks)} and edges {list(edges)} for rank {rank}")
    return blocks, list(zip(edges[::2], edges[1::2], strict=True))


def space_to_batch_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the padded axes divided by their blocks, and the batch times their product."""
    shape, (blocks, edges) = op.input().shape, _blocks_and_edges(op)
    padded = [d + sum(e) for d, e in zip(shape[1:], edges, strict=False)]
    if any(p % b for p, b in zip(padded, blocks, strict=True)):
        raise op.error(f"padded axes {padded} are not multiples of the blocks {list(blocks)}")
    spatial = (p // b for p, b in zip(padded, blocks, strict=True))
    return ((shape[0] * math.prod(blocks), *spatial, *shape[1 + len(blocks) :]),)


@operator(Op.SPACE_TO_BATCH_ND, max_version=4, infer=space_to_batch_shape, types=PLAIN)
def space_to_batch(op: OpContext) -> Kernel:
    """SPACE_TO_BATCH_ND: pixels at the same place of their blocks form an image of the batch.

    The border is real zero, the zero point of quantised types.
    """
    op.require_same_type(0)
    x, y, (blocks, edges) = op.read(0), op.write(), _blocks_and_edges(op)
    m, batch, rest = len(blocks), x.shape[0], x.shape[1 + len(blocks) :]
    sizes = [d + sum(e) for d, e in zip(x.shape[1:], edges, strict=False)]
    padded = op.temporary((batch, *sizes, *rest), x.dtype) if any(map(sum, edges)) else x
    inside = padded[(slice(None), *(slice(a, s - b) for (a, b), s in zip(edges, sizes, strict=True)))]
    split = [n for s, b in zip(sizes, blocks, strict=True) for n in (s // b, b)]
    cut = padded.reshape(batch, *split, *rest)
    # Axes of `cut`: batch, then pairs (block index, place inside the block). Places go before the batch.
    order = (*range(2, 2 * m + 2, 2), 0, *range(1, 2 * m + 1, 2), *range(2 * m + 1, cut.ndim))
    source = cut.transpose(order)
    move = (y.reshape(source.shape), source)
    if padded is x:
        return copies([move])
    border = np.full(1, quantized_zero(op.output()), x.dtype)
    return copies([(padded, border), (inside, x), move])


def batch_to_space_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the axes times their blocks, cropped, and the batch divided by their product."""
    shape, (blocks, crops) = op.input().shape, _blocks_and_edges(op)
    product = math.prod(blocks)
    spatial = [d * b - sum(c) for d, b, c in zip(shape[1:], blocks, crops, strict=False)]
    if shape[0] % product or min(spatial, default=0) < 0:
        raise op.error(f"blocks {list(blocks)} and crops {crops} for shape {list(shape)}")
    return ((shape[0] // product, *spatial, *shape[1 + len(blocks) :]),)


@operator(Op.BATCH_TO_SPACE_ND, max_version=4, infer=batch_to_space_shape, types=PLAIN)
def batch_to_space(op: OpContext) -> Kernel:
    """BATCH_TO_SPACE_ND: images of the batch interleave to blocks of pixels, cropped at the border.

    It is the inverse of SPACE_TO_BATCH_ND.
    """
    op.require_same_type(0)
    x, y, (blocks, crops) = op.read(0), op.write(), _blocks_and_edges(op)
    m, batch, rest = len(blocks), x.shape[0] // math.prod(blocks), x.shape[1 + len(blocks) :]
    cut = x.reshape(*blocks, batch, *x.shape[1:])
    # Axes of `cut`: places inside the blocks, batch, block indices. Each place goes behind its block index.
    pairs = [n for i in range(m) for n in (m + 1 + i, i)]
    woven = cut.transpose(m, *pairs, *range(2 * m + 1, cut.ndim))
    sizes = [d * b for d, b in zip(x.shape[1:], blocks, strict=False)]
    if not any(map(sum, crops)):
        return copy(y.reshape(woven.shape), woven)
    whole = op.temporary((batch, *sizes, *rest), x.dtype)
    kept = whole[(slice(None), *(slice(a, s - b) for (a, b), s in zip(crops, sizes, strict=True)))]
    return copies([(whole.reshape(woven.shape), woven), (y, kept)])
