"""Element-wise arithmetic with numpy's broadcasting: of two inputs (ADD, ...) and of one (EXP, ...).

Quantised results are those of LiteRT's reference kernels (`levels.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops import levels
from runtime.ops.blocks import broadcast_blocks, flat_blocks
from runtime.ops.levels import pair_levels
from runtime.ops.shapes import broadcast_inputs, same_shape
from runtime.ops.spec import Array, Kernel, OpContext, operator
from runtime.ops.type_sets import QUANTIZED
from runtime.quantization import float_activation_range

_FLOATS_AND_INTEGERS = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64)
_ARITHMETIC = (*_FLOATS_AND_INTEGERS, *QUANTIZED)

_UFUNCS: Mapping[BuiltinOperator, np.ufunc] = {
    BuiltinOperator.ADD: np.add,
    BuiltinOperator.SUB: np.subtract,
    BuiltinOperator.MUL: np.multiply,
    BuiltinOperator.MAXIMUM: np.maximum,
    BuiltinOperator.MINIMUM: np.minimum,
}


@operator(BuiltinOperator.ADD, max_version=6, infer=broadcast_inputs, types=_ARITHMETIC)
def add(op: OpContext) -> Kernel:
    """x + z with a fused activation; float32, int32, int64, int8, uint8, int16."""
    return _binary(op, levels.total)


@operator(BuiltinOperator.SUB, max_version=5, infer=broadcast_inputs, types=_ARITHMETIC)
def subtract(op: OpContext) -> Kernel:
    """x - z with a fused activation; float32, int32, int64, int8, uint8, int16."""
    return _binary(op, levels.total)


@operator(BuiltinOperator.MUL, max_version=8, infer=broadcast_inputs, types=_ARITHMETIC)
def multiply(op: OpContext) -> Kernel:
    """x * z with a fused activation; float32, int32, int64, int8, uint8, int16."""
    return _binary(op, levels.product)


def _binary(op: OpContext, rule: Callable[[OpContext, Array, Array], Array]) -> Kernel:
    kind = op.require(*_FLOATS_AND_INTEGERS, *QUANTIZED)
    op.require_same_type(0, 1)
    if kind in QUANTIZED:
        return pair_levels(op, rule)
    clamp = float_activation_range(op.activation())
    if clamp is not None and kind is not TensorType.FLOAT32:
        raise op.unsupported(f"a fused activation on {kind.name}")
    return _run_ufunc(op, _UFUNCS[op.operator.opcode], clamp)


def _run_ufunc(op: OpContext, ufunc: np.ufunc, clamp: tuple[float, float] | None = None) -> Kernel:
    pieces = broadcast_blocks(op.write(), op.read(0), op.read(1), elements=1 << 16)

    def run() -> None:
        for y, x, z in pieces:
            ufunc(x, z, out=y)
            if clamp is not None:
                np.clip(y, *clamp, out=y)

    return run


@operator(
    BuiltinOperator.MAXIMUM,
    BuiltinOperator.MINIMUM,
    max_version=4,
    infer=broadcast_inputs,
    types=_ARITHMETIC,
)
def maximum_minimum(op: OpContext) -> Kernel:
    """The larger or smaller of both; int8 needs equal quantisation of inputs and output."""
    kind = op.require(*_FLOATS_AND_INTEGERS, *QUANTIZED)
    op.require_same_type(0, 1)
    if kind in QUANTIZED and op.input(0).quantization is not None:
        require_equal_quantization(op, op.input(0), op.input(1), op.output())
    return _run_ufunc(op, _UFUNCS[op.operator.opcode])


def require_equal_quantization(op: OpContext, first: object, *others: object) -> None:
    """Raise `UnsupportedOperatorError` unless all values have one scale and zero point."""
    for value in others:
        if getattr(value, "quantization", None) != getattr(first, "quantization", None):
            raise op.unsupported("inputs and output differ in scale or zero point")


@operator(
    BuiltinOperator.DIV, max_version=2, infer=broadcast_inputs, types=(TensorType.FLOAT32, TensorType.INT32)
)
def divide(op: OpContext) -> Kernel:
    """x / z with a fused activation; int32 towards zero, by zero an error."""
    kind = op.require(TensorType.FLOAT32, TensorType.INT32)
    op.require_same_type(0, 1)
    if kind is TensorType.INT32:
        return _divide_integers(op)
    return _run_ufunc(op, np.divide, float_activation_range(op.activation()))


def _divide_integers(op: OpContext) -> Kernel:
    x, z, y = op.read(0), op.read(1), op.write()

    def run() -> None:
        if not z.all():
            raise op.error("division by zero")
        np.copyto(y, np.trunc(x.astype(np.float64) / z), casting="unsafe")

    return run


@operator(
    BuiltinOperator.SQUARED_DIFFERENCE,
    max_version=2,
    infer=broadcast_inputs,
    types=(TensorType.FLOAT32, TensorType.INT32, TensorType.INT8),
)
def squared_difference(op: OpContext) -> Kernel:
    """(x - z)^2; float32, int32 and int8."""
    kind = op.require(TensorType.FLOAT32, TensorType.INT32, TensorType.INT8)
    op.require_same_type(0, 1)
    if kind is TensorType.INT8:
        return pair_levels(op, levels.squared_difference)
    pieces = broadcast_blocks(op.write(), op.read(0), op.read(1))

    def run() -> None:
        for y, x, z in pieces:
            np.subtract(x, z, out=y)
            np.multiply(y, y, out=y)

    return run


def _reciprocal_root(x: Array, out: Array) -> None:
    np.sqrt(x, out=out)
    np.divide(np.float32(1), out, out=out)


_UNARY: Mapping[BuiltinOperator, Callable[..., object]] = {
    BuiltinOperator.ABS: np.abs,
    BuiltinOperator.EXP: np.exp,
    BuiltinOperator.RSQRT: _reciprocal_root,
    BuiltinOperator.SQRT: np.sqrt,
    BuiltinOperator.SQUARE: np.square,
}


@operator(*_UNARY, max_version=5, infer=same_shape, types=(TensorType.FLOAT32,))
def unary(op: OpContext) -> Kernel:
    """One function of each element."""
    op.require(TensorType.FLOAT32)
    return _each(op)


@operator(
    BuiltinOperator.NEG,
    max_version=5,
    infer=same_shape,
    types=(TensorType.FLOAT32, TensorType.INT32, TensorType.INT64),
)
def negative(op: OpContext) -> Kernel:
    """-x; the least integer stays as it is."""
    op.require(TensorType.FLOAT32, TensorType.INT32, TensorType.INT64)
    return _each(op)


def _each(op: OpContext) -> Kernel:
    op.require_same_type(0)
    function = _UNARY.get(op.operator.opcode, np.negative)
    pieces = flat_blocks(op.write(), op.read(0))

    def run() -> None:
        for y, x in pieces:
            function(x, out=y)

    return run
