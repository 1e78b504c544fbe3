"""Element-wise arithmetic of two inputs with numpy's broadcasting, and ADD_N of any number.

Quantised results are those of LiteRT's reference kernels (`levels.py`).
"""

from collections.abc import Callable, Mapping

import numpy as np

from runtime.ops.support import QUANTIZED, Array, Kernel, Op, OpContext, TensorType, levels, operator
from runtime.ops.support.blocks import pairwise
from runtime.ops.support.fused_activation import clamp_floats, fused_clamp
from runtime.ops.support.levels import pair_levels
from runtime.ops.support.shapes import broadcast_inputs, same_shape

_ARITHMETIC = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64, *QUANTIZED)
_WITH_HALVES = (*_ARITHMETIC, TensorType.FLOAT16)
_PRODUCTS = (*_WITH_HALVES, TensorType.UINT32, TensorType.COMPLEX64)

_UFUNCS: Mapping[Op, np.ufunc] = {Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply}


@operator(Op.ADD, max_version=6, infer=broadcast_inputs, types=_WITH_HALVES)
def add(op: OpContext) -> Kernel:
    """ADD: x + z, broadcast, with a fused activation."""
    return _binary(op, levels.total)


@operator(Op.SUB, max_version=5, infer=broadcast_inputs, types=_ARITHMETIC)
def subtract(op: OpContext) -> Kernel:
    """SUB: x - z, broadcast, with a fused activation."""
    return _binary(op, levels.total)


@operator(Op.MUL, max_version=8, infer=broadcast_inputs, types=_PRODUCTS)
def multiply(op: OpContext) -> Kernel:
    """MUL: x * z, broadcast, with a fused activation."""
    return _binary(op, levels.product)


def _binary(op: OpContext, rule: Callable[[OpContext, Array, Array], Array]) -> Kernel:
    op.require_same_type(0, 1)
    if op.input().type in QUANTIZED:
        return pair_levels(op, rule)
    return _run_ufunc(op, _UFUNCS[op.operator.opcode])


def _run_ufunc(op: OpContext, ufunc: np.ufunc) -> Kernel:
    clamp = fused_clamp(op)

    def apply(x: Array, z: Array, y: Array) -> None:
        ufunc(x, z, out=y)
        clamp(y)

    # One ufunc and a clamp are two light passes: larger pieces than usual, 256 KiB of float32, mean fewer
    # calls.
    return pairwise(op, apply, elements=1 << 16)


@operator(Op.MAXIMUM, Op.MINIMUM, max_version=4, infer=broadcast_inputs, types=_WITH_HALVES)
def maximum_minimum(op: OpContext) -> Kernel:
    """MAXIMUM, MINIMUM: the second where either is NaN; quantised types need equal quantisation."""
    op.require_same_type(0, 1)
    if op.input().type in QUANTIZED and op.input(0).quantization is not None:
        op.require_equal_quantization(op.input(0), op.input(1), op.output())
    precedes = np.greater if op.operator.opcode is Op.MAXIMUM else np.less
    return pairwise(op, lambda x, z, y: extremum(precedes, x, z, y))


def extremum(precedes: np.ufunc, x: Array, z: Array, y: Array) -> None:
    """Write x where it is the larger (or smaller), else z (`reference/maximum_minimum.h`).

    The comparison decides, as in C++; numpy's own `maximum` would pass a NaN of either side on.
    """
    first = precedes(x, z)
    np.copyto(y, z)
    np.copyto(y, x, where=first)


@operator(
    Op.DIV, max_version=2, infer=broadcast_inputs, types=(TensorType.FLOAT32, TensorType.INT32, *QUANTIZED)
)
def divide(op: OpContext) -> Kernel:
    """DIV: x / z, broadcast, with a fused activation; int32 towards zero, integers by zero an error."""
    kind = op.input().type
    op.require_same_type(0, 1)
    if kind is TensorType.INT32:
        return by_no_zero(op, _divide_integers(op))
    if kind in QUANTIZED:
        # The level that stands for 0 is the divisor's zero point.
        return by_no_zero(op, pair_levels(op, levels.quotient), op.scale_and_zero_point(op.input(1))[1])
    return _run_ufunc(op, np.divide)


def _divide_integers(op: OpContext) -> Kernel:
    x, z, y = op.read(0), op.read(1), op.write()
    clamp = fused_clamp(op)

    # numpy's integer division rounds down. A quotient in float64 truncates exactly: where it is not whole, it
    # differs from every integer by at least 1 / |z|, far more than its rounding of 2^-53.
    def run() -> None:
        np.copyto(y, np.trunc(x.astype(np.float64) / z), casting="unsafe")
        clamp(y)

    return run


def by_no_zero(op: OpContext, divide: Kernel, zero: int = 0, *, allowed: bool = False) -> Kernel:
    """Return `divide` behind a check: it raises `ShapeError` where a divisor is `zero`, unless `allowed`."""
    divisor = op.read(1)

    def run() -> None:
        if not allowed and (divisor == zero).any():
            raise op.error("division by zero")
        divide()

    return run


@operator(
    Op.SQUARED_DIFFERENCE,
    max_version=2,
    infer=broadcast_inputs,
    types=(TensorType.FLOAT32, TensorType.INT32, TensorType.INT8),
)
def squared_difference(op: OpContext) -> Kernel:
    """SQUARED_DIFFERENCE: (x - z)^2, broadcast; float32, int32, int8."""
    op.require_same_type(0, 1)
    if op.input().type is TensorType.INT8:
        return pair_levels(op, levels.squared_difference)
    return pairwise(op, lambda x, z, y: np.square(np.subtract(x, z, out=y), out=y))


@operator(Op.ADD_N, infer=same_shape, types=(TensorType.FLOAT32, TensorType.INT32))
def add_n(op: OpContext) -> Kernel:
    """ADD_N: add any number of inputs of one shape in their order; float32, int32.

    After each addition an overflow becomes the largest finite number, as in LiteRT.
    """
    for i in range(1, len(op.inputs)):
        op.require_operands(i)
        if op.input(i).shape != op.input().shape:
            raise op.error(f"input {i} of shape {list(op.input(i).shape)} beside {list(op.input().shape)}")
    values, y = [op.read(i) for i in range(len(op.inputs))], op.write()

    def run() -> None:
        np.copyto(y, values[0])
        for value in values[1:]:
            np.add(y, value, out=y)
            if y.dtype == np.float32:
                clamp_floats(y, None)

    return run
