"""LSH_PROJECTION: bits that are alike for inputs that are alike (`lsh_projection.cc`)."""

import numpy as np

from runtime.model.schema import LSHProjectionType
from runtime.ops.features.fingerprint import fingerprint64
from runtime.ops.support import PLAIN, Array, Kernel, Op, OpContext, Shape, TensorType, operator


def projection_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of one signature for each hash function (SPARSE), or of each of their bits (DENSE)."""
    op.require(TensorType.FLOAT32)
    functions, items, kind = op.input(0).shape, op.input(1).shape, op.option("type")
    if len(functions) != 2 or functions[1] > 32 or not items:
        raise op.error(f"hash functions {list(functions)} for items {list(items)}")
    weights = op.optional(2)
    if weights is not None and weights.shape != items[:1]:
        raise op.error(f"weights {list(weights.shape)} for items {list(items)}")
    if kind is LSHProjectionType.UNKNOWN:
        raise op.unsupported("a projection of unknown type")
    return ((functions[0] if kind is LSHProjectionType.SPARSE else functions[0] * functions[1],),)


@operator(Op.LSH_PROJECTION, infer=projection_shape, types=PLAIN, data=1)
def lsh_projection(op: OpContext) -> Kernel:
    """LSH_PROJECTION: for every seed one bit, the sign of the weighted sum of the items' hashes; int32.

    SPARSE joins the bits of a hash function to a number and adds an offset of 2^bits for each function, so
    that signatures of different functions never agree.
    """
    if op.output().type is not TensorType.INT32:
        raise op.unsupported(f"signatures of type {op.output().type.name}")
    seeds, items, y = op.read(0), op.read(1), op.write()
    weights = None if op.optional(2) is None else op.read(2)
    is_sparse = op.option("type") is LSHProjectionType.SPARSE
    count, bits = seeds.shape

    def run() -> None:
        rows = [row.tobytes() for row in items]
        found = np.array([_bit(s.tobytes(), rows, weights) for s in seeds.reshape(-1)], np.int64)
        if not is_sparse:
            y[:] = found
            return
        places = np.int64(1) << np.arange(bits - 1, -1, -1, dtype=np.int64)
        signatures = found.reshape(count, bits) @ places + np.arange(count) * (1 << bits)
        np.copyto(y, signatures.astype(np.uint32).view(np.int32))

    return run


def _bit(seed: bytes, rows: list[bytes], weights: Array | None) -> bool:
    score = 0.0
    for i, row in enumerate(rows):
        found = fingerprint64(seed + row)
        # The reference adds the hash as a signed number.
        value = float(found - (1 << 64) if found >> 63 else found)
        score += value if weights is None else float(weights[i]) * value
    return score > 0
