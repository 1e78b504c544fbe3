"""Repeating a tensor: TILE, BROADCAST_TO and STABLEHLO_BROADCAST_IN_DIM."""

import numpy as np

from runtime.ops.movement.copies import copy
from runtime.ops.support import INDICES, MOVABLE, Kernel, Op, OpContext, Shape, operator
from runtime.ops.support.shapes import broadcast


def tile_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return each dimension times its multiple."""
    op.require(*INDICES, i=1)
    shape, multiples = op.input().shape, op.integers(1, "multiples")
    if len(multiples) != len(shape) or min(multiples, default=0) < 0:
        raise op.error(f"multiples {list(multiples)} for shape {list(shape)}")
    return (tuple(d * m for d, m in zip(shape, multiples, strict=True)),)


@operator(Op.TILE, max_version=3, infer=tile_shape, types=MOVABLE)
def tile(op: OpContext) -> Kernel:
    """TILE: the input repeated along each axis."""
    op.require_same_type(0)
    x, multiples = op.read(0), op.integers(1, "multiples")
    # With an axis of 1 before every axis of x the repetition is a broadcast, one copy for all axes.
    blocks = [n for m, d in zip(multiples, x.shape, strict=True) for n in (m, d)]
    source = x.reshape([n for d in x.shape for n in (1, d)])
    return copy(op.write().reshape(blocks), source)


def broadcast_to_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape in input 1, to which the input must broadcast."""
    op.require(*INDICES, i=1)
    shape, target = op.input().shape, op.integers(1, "shape")
    if min(target, default=0) < 0 or broadcast(op, shape, target) != target:
        raise op.error(f"shape {list(shape)} does not broadcast to {list(target)}")
    return (target,)


@operator(Op.BROADCAST_TO, max_version=4, infer=broadcast_to_shape, types=MOVABLE)
def broadcast_to(op: OpContext) -> Kernel:
    """BROADCAST_TO: dimensions of 1 are repeated, by numpy's rule."""
    op.require_same_type(0)
    y = op.write()
    return copy(y, np.broadcast_to(op.read(0), y.shape))


def broadcast_in_dim_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the declared shape, in which each dimension of the input, or a 1 of it, has its place."""
    shape, target = op.input().shape, op.output().shape
    places = tuple(int(place) for place in op.option("broadcast_dimensions"))
    fits = len(places) == len(set(places)) == len(shape) and all(0 <= p < len(target) for p in places)
    if (
        not fits
        or min(target, default=0) < 0
        or any(extent not in (1, target[place]) for extent, place in zip(shape, places, strict=True))
    ):
        raise op.error(f"shape {list(shape)} does not broadcast to {list(target)} at {list(places)}")
    return (target,)


@operator(Op.STABLEHLO_BROADCAST_IN_DIM, infer=broadcast_in_dim_shape, types=MOVABLE)
def broadcast_in_dim(op: OpContext) -> Kernel:
    """STABLEHLO_BROADCAST_IN_DIM, as StableHLO specifies it: dimension i of the input becomes `places[i]`.

    LiteRT's interpreter has it on GPUs only.
    """
    op.require_same_type(0)
    x, y = op.read(0), op.write()
    places = [int(place) for place in op.option("broadcast_dimensions")]
    order = sorted(range(len(places)), key=places.__getitem__)
    extents = dict(zip(places, x.shape, strict=True))
    spread = x.transpose(order).reshape([extents.get(axis, 1) for axis in range(y.ndim)])
    return copy(y, np.broadcast_to(spread, y.shape))
