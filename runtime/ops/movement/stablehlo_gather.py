"""STABLEHLO_GATHER: slices at computed starts, assembled as the StableHLO specification says."""

import numpy as np

from runtime.ops.support import INDICES, MOVABLE, Array, Kernel, Op, OpContext, Shape, operator


def index_vectors(op: OpContext, i: int) -> tuple[Shape, int]:
    """Return (batch shape, axis of the vectors) of the indices in input `i`.

    The axis may lie behind the last one: each index then is a vector of one entry.
    """
    op.require(*INDICES, i=i)
    shape, axis = op.input(i).shape, op.option("index_vector_dim")
    if not 0 <= axis <= len(shape):
        raise op.error(f"index vectors along axis {axis} of {list(shape)}")
    return (*shape[:axis], *shape[axis + 1 :]), axis


def vectors_last(indices: Array, axis: int) -> Array:
    """Return a view of the indices with their vectors along the last axis."""
    return indices[..., None] if axis == indices.ndim else np.moveaxis(indices, axis, -1)


def check_map(op: OpContext, i: int, targets: tuple[int, ...], rank: int) -> None:
    """Raise `ShapeError` unless the vectors' entries address different axes of an operand of `rank`."""
    shape, axis = op.input(i).shape, op.option("index_vector_dim")
    length = 1 if axis == len(shape) else shape[axis]
    if length != len(targets) or len(set(targets)) != length or not all(0 <= t < rank for t in targets):
        raise op.error(f"index vectors of {length} entries for the axes {list(targets)} of rank {rank}")


def stablehlo_gather_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of slices along `offset_dims` and the indices' batch along the other axes."""
    shape, (batch, _) = op.input().shape, index_vectors(op, 1)
    sizes, collapsed = op.option("slice_sizes"), set(op.option("collapsed_slice_dims"))
    offsets = tuple(op.option("offset_dims"))
    check_map(op, 1, tuple(op.option("start_index_map")), len(shape))
    window = [s for i, s in enumerate(sizes) if i not in collapsed]
    fits = len(sizes) == len(shape) and all(0 <= s <= d for s, d in zip(sizes, shape, strict=True))
    if not fits or any(sizes[c] != 1 for c in collapsed) or len(offsets) != len(window):
        raise op.error(f"slices of {list(sizes)} without {sorted(collapsed)} for shape {list(shape)}")
    rank = len(window) + len(batch)
    if len(set(offsets)) != len(offsets) or not all(0 <= o < rank for o in offsets):
        raise op.error(f"offset dimensions {list(offsets)} of rank {rank}")
    by_axis = dict(zip(offsets, window, strict=True))
    rest = iter(batch)
    return (tuple(by_axis[i] if i in by_axis else next(rest) for i in range(rank)),)


@operator(Op.STABLEHLO_GATHER, infer=stablehlo_gather_shape, types=MOVABLE, note="indices int32, int64")
def stablehlo_gather(op: OpContext) -> Kernel:
    """STABLEHLO_GATHER: slices of the operand; starts are moved so that each lies inside it."""
    op.require_same_type(0)
    x, indices, y = op.read(0), op.read(1), op.write()
    _, axis = index_vectors(op, 1)
    targets, sizes = list(op.option("start_index_map")), op.option("slice_sizes")
    collapsed = set(op.option("collapsed_slice_dims"))
    windows = [i for i in range(x.ndim) if i not in collapsed]
    room = np.array(x.shape) - np.array(sizes)
    vectors = vectors_last(indices, axis)
    batch = vectors.shape[:-1]
    target = np.moveaxis(y, list(op.option("offset_dims")), range(len(batch), y.ndim))
    # Starts [batch.., 1..] plus steps along each window axis broadcast to one index array per operand axis.
    steps: list[Array | int] = [0] * x.ndim
    for place, i in enumerate(windows):
        steps[i] = np.arange(sizes[i]).reshape((-1, *(1,) * (len(windows) - place - 1)))

    def run() -> None:
        starts = np.zeros((*batch, x.ndim), np.int64)
        starts[..., targets] = vectors
        np.clip(starts, 0, room, out=starts)
        spread = starts.reshape((*batch, *(1,) * len(windows), x.ndim))
        np.copyto(target, x[tuple(spread[..., i] + steps[i] for i in range(x.ndim))])

    return run
