"""STABLEHLO_SCATTER: updates joined into an operand at computed places."""

import numpy as np

from runtime.ops.movement.stablehlo_gather import check_map, index_vectors, vectors_last
from runtime.ops.support import REAL_NUMBERS, Array, Kernel, Op, OpContext, Shape, TensorType, operator

_JOINS = {
    Op.STABLEHLO_ADD: np.add,
    Op.STABLEHLO_MULTIPLY: np.multiply,
    Op.STABLEHLO_MAXIMUM: np.maximum,
    Op.STABLEHLO_MINIMUM: np.minimum,
}


def stablehlo_scatter_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the operand's shape. Raises `ShapeError` where the updates do not fit it."""
    shape, updates, (batch, _) = op.input().shape, op.input(2).shape, index_vectors(op, 1)
    windows, inserted = op.option("update_window_dims"), set(op.option("inserted_window_dims"))
    check_map(op, 1, tuple(op.option("scatter_dims_to_operand_dims")), len(shape))
    outside = tuple(d for i, d in enumerate(updates) if i not in set(windows))
    kept = [d for i, d in enumerate(shape) if i not in inserted]
    in_range = all(0 <= w < len(updates) for w in windows) and len(set(windows)) == len(windows)
    sizes = [updates[w] for w in windows] if in_range else None
    if sizes is None or outside != batch or len(sizes) != len(kept):
        raise op.error(f"updates of {list(updates)} with windows {list(windows)} for shape {list(shape)}")
    return (shape,)


def _join(op: OpContext) -> np.ufunc | None:
    """Return the ufunc of the update computation, None where it replaces.

    Raises `UnsupportedOperatorError` for a computation of more than one operator, or of another one.
    """
    try:
        body = op.services.operators_of(op.option("update_computation_subgraph_index"))
    except IndexError:
        raise op.error("its update computation is not a subgraph of the model") from None
    if not body:
        return None
    if len(body) > 1 or body[0].opcode not in _JOINS:
        names = ", ".join(o.name for o in body)
        raise op.unsupported(f"updates computed by {names}: one add, multiply, maximum or minimum is needed")
    return _JOINS[body[0].opcode]


@operator(
    Op.STABLEHLO_SCATTER,
    infer=stablehlo_scatter_shape,
    types=(TensorType.FLOAT16, *REAL_NUMBERS),
    note="indices int32, int64",
)
def stablehlo_scatter(op: OpContext) -> Kernel:
    """STABLEHLO_SCATTER: updates joined into the operand in row-major order, those outside left out."""
    op.require_same_type(0, 2)
    x, indices, updates, y = op.read(0), op.read(1), op.read(2), op.write()
    join, (_, axis) = _join(op), index_vectors(op, 1)
    targets = list(op.option("scatter_dims_to_operand_dims"))
    windows = list(op.option("update_window_dims"))
    inserted = set(op.option("inserted_window_dims"))
    vectors = vectors_last(indices, axis)
    outer = [i for i in range(updates.ndim) if i not in set(windows)]
    places = np.moveaxis(np.indices(updates.shape), 0, -1).reshape(-1, updates.ndim)
    # The place of every update inside its window is known while planning; a run adds only the starts.
    offsets = np.zeros((len(places), y.ndim), np.int64)
    offsets[:, [i for i in range(y.ndim) if i not in inserted]] = places[:, windows]
    rows = tuple(places[:, outer].T)
    flat, bounds = y.reshape(-1), np.array(y.shape, np.int64)

    def run() -> None:
        np.copyto(y, x)
        found = offsets.copy()
        found[:, targets] += vectors[rows]
        inside = ((found >= 0) & (found < bounds)).all(axis=1)
        # A scalar operand has no index to ravel, and one place.
        where = np.ravel_multi_index(tuple(found[inside].T), y.shape) if y.ndim else np.zeros(1, np.int64)
        _apply(flat, where, updates.reshape(-1)[inside], join)

    return run


def _apply(flat: Array, where: Array, values: Array, join: np.ufunc | None) -> None:
    if join is None:
        flat[where] = values
    else:
        join.at(flat, where, values)
