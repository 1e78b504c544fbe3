"""BATCH_MATMUL: matrix products of the last two dimensions; the leading ones broadcast.

float32; int8 and int16 exactly as LiteRT's `reference/batch_matmul.h`; float32 by constant int8 (hybrid).
"""

import numpy as np

from runtime.ops.matmul.hybrid import RowQuantizer, is_hybrid
from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.parallel import lane_count, shares, together
from runtime.ops.support.quantization import RANGES, Requantizer, WideRequantizer, quantize_multipliers
from runtime.ops.support.shapes import broadcast


def batch_matmul_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [..., m, n] for [..., m, k] times [..., k, n]; the leading dimensions broadcast."""
    left, right = op.input(0).shape, op.input(1).shape
    if len(left) < 2 or len(right) < 2:
        raise op.error(f"shapes {list(left)} and {list(right)}, rank 2 at least is needed")
    rows, inner = (left[-1], left[-2]) if op.option("adj_x") else (left[-2], left[-1])
    depth, columns = (right[-1], right[-2]) if op.option("adj_y") else (right[-2], right[-1])
    if inner != depth:
        raise op.error(f"shapes {list(left)} and {list(right)} do not chain")
    return ((*broadcast(op, left[:-2], right[:-2]), rows, columns),)


@operator(
    Op.BATCH_MATMUL,
    max_version=4,
    infer=batch_matmul_shape,
    types=(TensorType.FLOAT32, TensorType.INT8, TensorType.INT16),
    note="both operands of one type; float32 or int16 by int8",
)
def batch_matmul(op: OpContext) -> Kernel:
    """BATCH_MATMUL: matrix products; `adj_x`, `adj_y` transpose the last two dimensions of an operand."""
    kind = op.input().type
    if is_hybrid(op):
        return _hybrid(op)
    op.require(kind, *((TensorType.INT8,) if kind is TensorType.INT16 else ()), i=1)
    x = op.read(0).swapaxes(-1, -2) if op.option("adj_x") else op.read(0)
    z = op.read(1).swapaxes(-1, -2) if op.option("adj_y") else op.read(1)
    if kind is not TensorType.FLOAT32:
        return _levels(op, kind, x, z)
    return together([_products(*part) for part in _shared(op, x, z, op.write())])


def _products(x: Array, z: Array, y: Array) -> Kernel:
    return lambda: np.matmul(x, z, out=y)


def _shared(op: OpContext, x: Array, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
    """Return operands and result of each thread: parts of the first batch axis, or rows of one matrix."""
    lanes = lane_count(op, y.size * x.shape[-1])
    # Without a batch the rows of the matrix are shared, and each lane multiplies by the whole of z.
    axis = next((i for i, d in enumerate(y.shape[:-2]) if d > 1), y.ndim - 2)
    if lanes == 1:
        return [(x, z, y)]
    before = (slice(None),) * axis
    full_x, full_z = np.broadcast_to(x, (*y.shape[:-2], *x.shape[-2:])), z
    if axis < y.ndim - 2:
        full_z = np.broadcast_to(z, (*y.shape[:-2], *z.shape[-2:]))
    parts = []
    for part in shares(y.shape[axis], lanes):
        where = (*before, slice(part.start, part.stop))
        parts.append((full_x[where], full_z[where] if axis < y.ndim - 2 else full_z, y[where]))
    return parts


def _levels(op: OpContext, kind: TensorType, x: Array, z: Array) -> Kernel:
    """Return the kernel of quantised operands, whose sums of products are exact in float64.

    Products of int8 have at most 16 bits, of int16 by int16 32; float64 holds integers up to 2^53.
    """
    y = op.write()
    (scale_x, zero_x), (scale_z, zero_z) = (op.scale_and_zero_point(op.input(i)) for i in (0, 1))
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    # GetQuantizedConvolutionMultipler: a product in single precision, a quotient in double.
    real = float(np.float32(scale_x) * np.float32(scale_z)) / out_scale
    multipliers, shifts = quantize_multipliers([real])
    wide_x, wide_z = op.temporary(x.shape, np.float64), op.temporary(z.shape, np.float64)
    total = op.temporary(y.shape, np.float64)
    finish = (
        WideRequantizer(multipliers, shifts, RANGES[kind])
        if kind is TensorType.INT16
        else Requantizer(multipliers, shifts, out_zero, RANGES[kind], op.temporary((2 * y.size,), np.float64))
    )

    def run() -> None:
        np.subtract(x, float(zero_x), out=wide_x)
        np.subtract(z, float(zero_z), out=wide_z)
        np.matmul(wide_x, wide_z, out=total)
        finish(total, y)

    return run


def _hybrid(op: OpContext) -> Kernel:
    """Return the hybrid kernel: each row of the first operand, after `adj_x`, is quantised by itself."""
    given, y = op.read(0), op.write()
    turned = given.swapaxes(-1, -2) if op.option("adj_x") else given
    x = op.temporary(turned.shape) if op.option("adj_x") else given
    rows = x.reshape(-1, x.shape[-1])
    quantizer = RowQuantizer(op, rows, asymmetric=bool(op.option("asymmetric_quantize_inputs")))
    levels = quantizer.levels.reshape(x.shape)
    scale, zero = op.scale_and_zero_point(op.input(1))
    z = op.read(1).swapaxes(-1, -2) if op.option("adj_y") else op.read(1)
    matrix = op.temporary(z.shape)
    scales = quantizer.scales.reshape(*x.shape[:-1], 1)

    def run() -> None:
        # The quantiser takes rows, which a transposed view does not have.
        if x is not given:
            np.copyto(x, turned)
        quantizer()
        np.subtract(z, np.float32(zero), out=matrix)
        np.matmul(levels, matrix, out=y)
        np.multiply(y, scales * np.float32(scale), out=y)

    return run
