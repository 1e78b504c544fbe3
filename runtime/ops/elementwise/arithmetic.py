"""Element-wise arithmetic of two inputs with numpy's broadcasting.

Quantised results are those of LiteRT's reference kernels (`levels.py`).
"""

from collections.abc import Callable, Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support import QUANTIZED, Array, Kernel, OpContext, levels, operator
from runtime.ops.support.blocks import pairwise
from runtime.ops.support.fused_activation import fused_clamp
from runtime.ops.support.levels import pair_levels
from runtime.ops.support.shapes import broadcast_inputs

_FLOATS_AND_INTEGERS = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64)
_ARITHMETIC = (*_FLOATS_AND_INTEGERS, *QUANTIZED)
_WITH_HALVES = (*_ARITHMETIC, TensorType.FLOAT16)
_PRODUCTS = (*_WITH_HALVES, TensorType.UINT32, TensorType.COMPLEX64)

_UFUNCS: Mapping[BuiltinOperator, np.ufunc] = {
    BuiltinOperator.ADD: np.add,
    BuiltinOperator.SUB: np.subtract,
    BuiltinOperator.MUL: np.multiply,
}


@operator(BuiltinOperator.ADD, max_version=6, infer=broadcast_inputs, types=_WITH_HALVES)
def add(op: OpContext) -> Kernel:
    """ADD: x + z, broadcast, with a fused activation."""
    op.require(*_WITH_HALVES)
    return _binary(op, levels.total)


@operator(BuiltinOperator.SUB, max_version=5, infer=broadcast_inputs, types=_ARITHMETIC)
def subtract(op: OpContext) -> Kernel:
    """SUB: x - z, broadcast, with a fused activation."""
    op.require(*_ARITHMETIC)
    return _binary(op, levels.total)


@operator(BuiltinOperator.MUL, max_version=8, infer=broadcast_inputs, types=_PRODUCTS)
def multiply(op: OpContext) -> Kernel:
    """MUL: x * z, broadcast, with a fused activation."""
    op.require(*_PRODUCTS)
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


@operator(
    BuiltinOperator.MAXIMUM,
    BuiltinOperator.MINIMUM,
    max_version=4,
    infer=broadcast_inputs,
    types=_WITH_HALVES,
)
def maximum_minimum(op: OpContext) -> Kernel:
    """MAXIMUM, MINIMUM: the second where either is NaN; quantised types need equal quantisation."""
    kind = op.require(*_WITH_HALVES)
    op.require_same_type(0, 1)
    if kind in QUANTIZED and op.input(0).quantization is not None:
        op.require_equal_quantization(op.input(0), op.input(1), op.output())
    return extremum_of_pairs(op, largest=op.operator.opcode is BuiltinOperator.MAXIMUM)


def extremum_of_pairs(op: OpContext, *, largest: bool) -> Kernel:
    """Return a kernel for x where it is the larger (or smaller), else z (`reference/maximum_minimum.h`).

    The comparison decides, as in C++; numpy's own `maximum` would pass a NaN of either side on.
    """
    precedes = np.greater if largest else np.less

    def apply(x: Array, z: Array, y: Array) -> None:
        first = precedes(x, z)
        np.copyto(y, z)
        np.copyto(y, x, where=first)

    return pairwise(op, apply)


_QUOTIENTS = (TensorType.FLOAT32, TensorType.INT32, *QUANTIZED)


@operator(BuiltinOperator.DIV, max_version=2, infer=broadcast_inputs, types=_QUOTIENTS)
def divide(op: OpContext) -> Kernel:
    """DIV: x / z, broadcast, with a fused activation; int32 towards zero, integers by zero an error."""
    kind = op.require(*_QUOTIENTS)
    op.require_same_type(0, 1)
    if kind is TensorType.INT32:
        return _divide_integers(op)
    if kind in QUANTIZED:
        return _divide_levels(op)
    return _run_ufunc(op, np.divide)


def _divide_integers(op: OpContext) -> Kernel:
    x, z, y = op.read(0), op.read(1), op.write()
    clamp = fused_clamp(op)

    # numpy's integer division rounds down. A quotient in float64 truncates exactly: where it is not whole, it
    # differs from every integer by at least 1 / |z|, far more than its rounding of 2^-53.
    def run() -> None:
        if not z.all():
            raise op.error("division by zero")
        np.copyto(y, np.trunc(x.astype(np.float64) / z), casting="unsafe")
        clamp(y)

    return run


def _divide_levels(op: OpContext) -> Kernel:
    _, zero = op.scale_and_zero_point(op.input(1))
    divide_pairs, divisor = pair_levels(op, levels.quotient), op.read(1)

    def run() -> None:
        if (divisor == zero).any():
            raise op.error("division by zero")
        divide_pairs()

    return run


@operator(
    BuiltinOperator.SQUARED_DIFFERENCE,
    max_version=2,
    infer=broadcast_inputs,
    types=(TensorType.FLOAT32, TensorType.INT32, TensorType.INT8),
)
def squared_difference(op: OpContext) -> Kernel:
    """SQUARED_DIFFERENCE: (x - z)^2, broadcast; float32, int32, int8."""
    kind = op.require(TensorType.FLOAT32, TensorType.INT32, TensorType.INT8)
    op.require_same_type(0, 1)
    if kind is TensorType.INT8:
        return pair_levels(op, levels.squared_difference)
    return pairwise(op, _squared_difference)


def _squared_difference(x: Array, z: Array, y: Array) -> None:
    np.subtract(x, z, out=y)
    np.multiply(y, y, out=y)
