"""Products of step inputs with the weights of several gates at once, in float or hybrid arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from runtime.model.schema import ActivationFunctionType, TensorType
from runtime.ops.matmul.hybrid import RowQuantizer
from runtime.ops.spec import Array, OpContext

Accumulate: TypeAlias = Callable[[Array], None]
"""Adds the products of what the bound step input holds now to an accumulator [batch, units]."""

WEIGHT_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.UINT8)
_EXACT_FLOAT32_TERMS = 512


def weights(op: OpContext, i: int, shape: tuple[int, ...]) -> Array:
    """float32 weights of input `i`, which must have `shape`. Raises `ShapeError`."""
    op.require(TensorType.FLOAT32, i=i)
    if op.input(i).shape != shape:
        raise op.error(f"input {i} has shape {list(op.input(i).shape)}, {list(shape)} is needed")
    return op.read(i)


def real_vector(op: OpContext, i: int, size: int) -> Array:
    """float32 vector of input `i`; quantised ones (hybrid peepholes) are dequantised."""
    if op.input(i).shape != (size,):
        raise op.error(f"input {i} has shape {list(op.input(i).shape)}, [{size}] is needed")
    if op.require(*WEIGHT_TYPES, i=i) is TensorType.FLOAT32:
        return op.read(i)
    scale, _ = op.scale_and_zero_point(op.input(i))
    return _levels(op, i) * np.float32(scale)


def _levels(op: OpContext, i: int) -> Array:
    """Hybrid weights as int8 levels; old files declare them uint8."""
    return op.constant(i, "weights").view(np.int8).astype(np.float32)


def products(
    op: OpContext, x: Array, gates: Sequence[int], units: int, *, asymmetric: bool = False
) -> Accumulate:
    """Products of `x` [batch, n] with the matrices [units, n] in the inputs `gates`, side by side.

    Vectors [units] instead of matrices are diagonals. Quantised weights make the product hybrid: `x` is
    quantised row by row. Raises `UnsupportedOperatorError`, `ShapeError`.
    """
    kinds = {op.require(*WEIGHT_TYPES, i=i) for i in gates}
    shapes = {op.input(i).shape for i in gates}
    if shapes == {(units,)} and x.shape[1] == units:
        return _diagonal(op, x, gates)
    if shapes != {(units, x.shape[1])} or len(kinds) > 1:
        raise op.error(f"weights of {sorted(shapes)} for {units} units and {x.shape[1]} inputs")
    if kinds == {TensorType.FLOAT32}:
        return _real(op, x, gates)
    return _hybrid(op, x, gates, units, asymmetric=asymmetric)


def _real(op: OpContext, x: Array, gates: Sequence[int]) -> Accumulate:
    matrix = np.concatenate([op.read(i) for i in gates]).T
    product = np.empty((x.shape[0], matrix.shape[1]), np.float32)

    def run(total: Array) -> None:
        np.matmul(x, matrix, out=product)
        np.add(total, product, out=total)

    return run


def _diagonal(op: OpContext, x: Array, gates: Sequence[int]) -> Accumulate:
    rows = [real_vector(op, i, x.shape[1]) for i in gates]

    def run(total: Array) -> None:
        for part, row in zip(np.split(total, len(rows), axis=1), rows, strict=True):
            np.add(part, x * row, out=part)

    return run


def _hybrid(op: OpContext, x: Array, gates: Sequence[int], units: int, *, asymmetric: bool) -> Accumulate:
    dtype = np.float32 if x.shape[1] <= _EXACT_FLOAT32_TERMS else np.float64
    matrix = np.concatenate([_levels(op, i) for i in gates]).T.astype(dtype)
    scales = [np.float32(op.scale_and_zero_point(op.input(i))[0]) for i in gates]
    columns = np.repeat(np.array(scales, np.float32), units)
    quantizer = RowQuantizer(op, x, asymmetric=asymmetric)

    def run(total: Array) -> None:
        quantizer()
        sums = np.matmul(quantizer.levels.astype(dtype, copy=False), matrix).astype(np.float32, copy=False)
        np.add(total, sums * (quantizer.scales[:, None] * columns), out=total)

    return run


def sigmoid(x: Array) -> None:
    """1 / (1 + exp(-x)) in place. (`np.negative` of numpy 2.4 errs in place on a column of a matrix.)"""
    np.multiply(x, np.float32(-1), out=x)
    np.exp(x, out=x)
    np.add(x, 1, out=x)
    np.divide(1, x, out=x)


def activate(op: OpContext) -> Callable[[Array, Array], Array]:
    """The option's activation as (x, y), which may be one array. Raises `UnsupportedOperatorError`."""
    found = op.option("fused_activation_function")
    if found is ActivationFunctionType.SIGN_BIT:
        raise op.unsupported("fused activation SIGN_BIT is not defined")
    if found is ActivationFunctionType.TANH:
        return lambda x, y: np.tanh(x, out=y)
    bounds = {
        ActivationFunctionType.NONE: (-np.inf, np.inf),
        ActivationFunctionType.RELU: (0, np.inf),
        ActivationFunctionType.RELU6: (0, 6),
        ActivationFunctionType.RELU_N1_TO_1: (-1, 1),
    }[found]
    return lambda x, y: np.clip(x, *bounds, out=y)
