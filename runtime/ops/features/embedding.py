"""Rows of tables: EMBEDDING_LOOKUP, EMBEDDING_LOOKUP_SPARSE, HASHTABLE_LOOKUP."""

from itertools import pairwise

import numpy as np

from runtime.model.schema import CombinerType
from runtime.ops.support import MOVABLE, Array, Kernel, Op, OpContext, Shape, TensorType, operator

_WEIGHTS = (TensorType.INT8, TensorType.UINT8, TensorType.INT4, TensorType.INT2)


def _check_rows(op: OpContext, ids: Array, rows: int) -> None:
    if ids.size and (ids.min() < 0 or ids.max() >= rows):
        raise op.error(f"a row outside the {rows} of the table")


def embedding_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [ids, *row]: one row of the table for each id."""
    op.require(TensorType.INT32, i=0)
    ids, table = op.input(0).shape, op.input(1).shape
    if len(ids) != 1 or len(table) < 2:
        raise op.error(f"ids of {list(ids)} in a table of {list(table)}")
    return ((*ids, *table[1:]),)


@operator(
    Op.EMBEDDING_LOOKUP,
    max_version=5,
    infer=embedding_shape,
    types=MOVABLE,
    data=1,
    note="int8, uint8, int4, int2 tables also to float32 and float16, with scales per tensor, row or block",
)
def embedding_lookup(op: OpContext) -> Kernel:
    """EMBEDDING_LOOKUP: rows as they are, or dequantised to float32 or float16 with their scales.

    An id outside the table raises `ShapeError` at run time.
    """
    ids, table, y = op.read(0), op.read(1), op.write()
    scales = None
    if op.input(1).type in _WEIGHTS and op.output().type in (TensorType.FLOAT32, TensorType.FLOAT16):
        scales = _scales(op)
        # Old files declare symmetric int8 tables as uint8; LiteRT reads their bytes as int8.
        table = table.view(np.int8)
    elif op.input(1).type is not op.output().type:
        raise op.unsupported(f"rows of {op.input(1).type.name} as {op.output().type.name}")
    rows = table.shape[0]

    def run() -> None:
        _check_rows(op, ids, rows)
        if scales is None:
            # With the mode "raise" numpy would buffer the output; the ids have been checked above.
            np.take(table, ids, axis=0, out=y, mode="clip")
        else:
            np.copyto(y, (table[ids] * scales[ids]).reshape(y.shape), casting="same_kind")

    return run


def _scales(op: OpContext) -> Array:
    """Return float32 scales that broadcast against the table: one for each row, or each block of a row."""
    table, q = op.input(1), op.input(1).quantization
    if q is not None and q.blocks is not None:
        stored = op.services.constant_of(q.blocks.scales)
        size = q.blocks.block_size
        if (
            stored is None
            or size < 1
            or len(table.shape) != 2
            or stored.shape != (table.shape[0], table.shape[1] // size)
        ):
            raise op.unsupported(f"blocks of {size} in a table of shape {list(table.shape)}")
        return np.repeat(stored.astype(np.float32), size, axis=1)
    if q is None or not q.scales or any(q.zero_points) or q.is_custom:
        raise op.unsupported("a table without scales, or with zero points")
    if len(q.scales) not in (1, table.shape[0]) or (len(q.scales) > 1 and q.quantized_dimension != 0):
        raise op.unsupported(f"{len(q.scales)} scales along dimension {q.quantized_dimension}")
    scales = np.broadcast_to(np.array(q.scales, np.float32), (table.shape[0],))
    return scales.reshape((-1, *(1,) * (len(table.shape) - 1)))


def sparse_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the dense shape without its last axis, followed by the shape of a row of the table."""
    for i in range(3):
        op.require(TensorType.INT32, i=i)
    ids, indices, table = op.input(0).shape, op.input(1).shape, op.input(4).shape
    dense = op.integers(2, "dense shape")
    rows = len(ids) == 1 and indices == (*ids, len(dense)) and op.input(3).shape == ids
    if not rows or len(table) < 2 or min(dense, default=0) < 0:
        raise op.error(f"ids {list(ids)}, indices {list(indices)}, dense {list(dense)}, table {list(table)}")
    return ((*dense[:-1], *table[1:]),)


@operator(Op.EMBEDDING_LOOKUP_SPARSE, infer=sparse_shape, types=(TensorType.FLOAT32,), data=4)
def embedding_lookup_sparse(op: OpContext) -> Kernel:
    """EMBEDDING_LOOKUP_SPARSE: weighted sums of the rows whose indices differ in the last entry alone.

    The option `combiner` chooses the sum, the mean by weights, or the sum over the root of squared weights.
    """
    op.require(TensorType.FLOAT32, i=3)
    ids, indices, weights, table = (op.read(i) for i in (0, 1, 3, 4))
    y, combiner = op.write(), op.option("combiner")
    dense = np.array(op.integers(2, "dense shape")[:-1], np.int64)
    rows = y.reshape((int(dense.prod()), *table.shape[1:]))

    def run() -> None:
        _check_rows(op, ids, table.shape[0])
        places = indices[:, :-1].astype(np.int64)
        if ((places < 0) | (places >= dense)).any():
            raise op.error(f"an index outside {dense.tolist()}")
        # Row-major: the stride of an axis is the product of those behind it.
        strides = np.append(np.cumprod(dense[:0:-1])[::-1], 1)[: dense.size]
        _combine(rows, places @ strides, table[ids], weights, combiner)

    return run


def _combine(rows: Array, buckets: Array, found: Array, weights: Array, combiner: CombinerType) -> None:
    """Add `found` [n, *row], weighted, to `rows` at `buckets` [n]; divide as the combiner says.

    Only neighbours of one bucket form a group, as in LiteRT: where a bucket comes back later, its second
    group adds to the result of the first, and divides all of it.
    """
    rows.fill(0)
    # -1 is no bucket, so that the first and the last group have edges too.
    edges = np.flatnonzero(np.diff(buckets, prepend=-1, append=-1))
    for first, last in pairwise(edges):
        row, total, squares = rows[buckets[first]], np.float32(0), np.float32(0)
        for value, weight in zip(found[first:last], weights[first:last], strict=True):
            row += value * weight
            total += weight
            squares += weight * weight
        if combiner is CombinerType.MEAN:
            row /= total
        elif combiner is CombinerType.SQRTN:
            row /= np.sqrt(squares)


def hashtable_lookup_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shapes of a row for each key that is looked up, and of one flag for each."""
    op.require(TensorType.INT32, i=0)
    op.require(TensorType.INT32, i=1)
    wanted, keys, values = (op.input(i).shape for i in range(3))
    if len(wanted) != 1 or len(keys) != 1 or values[:1] != keys:
        raise op.error(f"{list(wanted)} keys among {list(keys)}, values {list(values)}")
    return ((*wanted, *values[1:]), wanted)


@operator(Op.HASHTABLE_LOOKUP, infer=hashtable_lookup_shape, types=MOVABLE, data=2)
def hashtable_lookup(op: OpContext) -> Kernel:
    """HASHTABLE_LOOKUP: rows of the wanted keys, by binary search, and for each a hit of 1.

    A key that is not in the table gives zeros, or an empty string, and a hit of 0.
    """
    op.require_same_type(2)
    wanted, keys, values, y, hits = op.read(0), op.read(1), op.read(2), op.write(0), op.write(1)
    missing = b"" if op.input(2).type is TensorType.STRING else 0

    def run() -> None:
        # A key above all others would be one behind the last.
        places = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
        found = keys[places] == wanted if keys.size else np.zeros(wanted.shape, np.bool_)
        y[~found] = missing
        y[found] = values[places[found]]
        np.copyto(hits, found)

    return run
