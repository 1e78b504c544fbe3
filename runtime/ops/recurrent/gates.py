"""Products of step inputs with the weights of several gates at once, in float or hybrid arithmetic."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from runtime.model.schema import ActivationFunctionType
from runtime.ops.matmul.hybrid import RowQuantizer
from runtime.ops.support import Array, Kernel, OpContext, TensorType
from runtime.ops.support.quantization import EXACT_FLOAT32_TERMS

Product: TypeAlias = Callable[[], Array]
"""Returns the product of the values that the bound rows hold now, in memory [rows, gates * units] that the
next call reuses."""

WEIGHT_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.UINT8)


def present(op: OpContext, i: int) -> bool:
    """Return whether the operator has its optional input `i`; an empty tensor counts as absent."""
    value = op.optional(i)
    return value is not None and value.elements > 0


def weights(op: OpContext, i: int, shape: tuple[int, ...]) -> Array:
    """Return the float32 weights of input `i`. Raises `ShapeError` unless they have `shape`."""
    op.require(TensorType.FLOAT32, i=i)
    if op.input(i).shape != shape:
        raise op.error(f"input {i} has shape {list(op.input(i).shape)}, {list(shape)} is needed")
    return op.read(i)


def state(op: OpContext, i: int, shape: tuple[int, ...]) -> Array:
    """Return the memory of the state in input `i`. Raises `ShapeError` unless it has `shape`."""
    if op.input(i).shape != shape:
        raise op.error(f"state {i} has shape {list(op.input(i).shape)}, {list(shape)} is needed")
    return op.read(i)


def real_vector(op: OpContext, i: int, size: int) -> Array:
    """Return the vector of input `i`, float32 [size]; a quantised one (hybrid peephole) is dequantised."""
    if op.input(i).shape != (size,):
        raise op.error(f"input {i} has shape {list(op.input(i).shape)}, [{size}] is needed")
    if op.require(*WEIGHT_TYPES, i=i) is TensorType.FLOAT32:
        return op.read(i)
    scale, _ = op.scale_and_zero_point(op.input(i))
    return _levels(op, i) * np.float32(scale)


def joined(op: OpContext, inputs: Sequence[int]) -> Callable[[], Array]:
    """Return a function that joins float inputs; computed ones are read again at every call."""
    parts = [op.read(i) for i in inputs]
    whole = np.concatenate(parts)
    if all(op.input(i).constant is not None for i in inputs):
        return lambda: whole
    return lambda: np.concatenate(parts, out=whole)


def _levels(op: OpContext, i: int) -> Array:
    """Return hybrid weights as int8 levels in float32; old files declare the same bytes uint8."""
    return op.constant(i, "weights").view(np.int8).astype(np.float32)


def products(
    op: OpContext, x: Array, gates: Sequence[int], units: int, *, asymmetric: bool = False
) -> Product:
    """Return the product of `x` [rows, n] with the matrices [units, n] in the inputs `gates`, side by side.

    Vectors [units] instead of matrices are diagonals. Quantised weights make the product hybrid: `x` is
    quantised row by row. Raises `UnsupportedOperatorError`, `ShapeError`.
    """
    kinds = {op.require(*WEIGHT_TYPES, i=i) for i in gates}
    shapes = {op.input(i).shape for i in gates}
    product = op.temporary((x.shape[0], len(gates) * units))
    if shapes == {(units,)} and x.shape[1] == units:
        return _diagonal(op, x, gates, product)
    if shapes != {(units, x.shape[1])} or len(kinds) > 1:
        raise op.error(f"weights of {sorted(shapes)} for {units} units and {x.shape[1]} inputs")
    if kinds == {TensorType.FLOAT32}:
        matrix = joined(op, gates)
        return lambda: np.matmul(x, matrix().T, out=product)
    return _hybrid(op, x, gates, product, asymmetric=asymmetric)


def _diagonal(op: OpContext, x: Array, gates: Sequence[int], product: Array) -> Product:
    rows = [real_vector(op, i, x.shape[1]) for i in gates]
    pairs = list(zip(rows, np.split(product, len(rows), axis=1), strict=True))

    def run() -> Array:
        for row, part in pairs:
            np.multiply(x, row, out=part)
        return product

    return run


def _hybrid(op: OpContext, x: Array, gates: Sequence[int], product: Array, *, asymmetric: bool) -> Product:
    # Levels of activations less a zero point take one bit more.
    exact_terms = EXACT_FLOAT32_TERMS // 2 if asymmetric else EXACT_FLOAT32_TERMS
    dtype = np.float32 if x.shape[1] <= exact_terms else np.float64
    matrix = np.concatenate([_levels(op, i) for i in gates]).T.astype(dtype)
    scales = [np.float32(op.scale_and_zero_point(op.input(i))[0]) for i in gates]
    columns = np.repeat(np.array(scales, np.float32), product.shape[1] // len(gates))
    quantizer = RowQuantizer(op, x, asymmetric=asymmetric)
    rows, scaled = quantizer.scales[:, None], op.temporary(product.shape)

    def run() -> Array:
        quantizer()
        if dtype is np.float32:
            np.matmul(quantizer.levels, matrix, out=product)
        else:
            np.copyto(product, np.matmul(quantizer.levels.astype(dtype), matrix), casting="same_kind")
        np.multiply(rows, columns, out=scaled)
        return np.multiply(product, scaled, out=product)

    return run


def sequence_products(
    op: OpContext,
    sources: Sequence[tuple[Array, Sequence[int]]],
    units: int,
    biases: Sequence[int],
    *,
    asymmetric: bool,
) -> tuple[Kernel, Array]:
    """Return a kernel and the memory that it fills: what sequences add to the gates of every step.

    `sources`: sequences [time, batch, n], each with the inputs that hold its weights; their products add to
    the vectors [units] in the inputs `biases`, if there are any. The memory is float32
    [time, batch, gates * units]: one product for all steps, as only the states wait for the step before.
    """
    time, batch = sources[0][0].shape[:2]
    # Copies: where the batch comes first, x is a view with its axes swapped, which has no rows to reshape to.
    bound = [(x, op.temporary(x.shape)) for x, _ in sources]
    first, *others = [
        products(op, rows.reshape(time * batch, x.shape[2]), gates, units, asymmetric=asymmetric)
        for (x, rows), (_, gates) in zip(bound, sources, strict=True)
    ]
    start = joined(op, biases) if biases else lambda: np.float32(0)
    width = len(sources[0][1]) * units
    total = op.temporary((time * batch, width))

    def fill() -> None:
        for x, rows in bound:
            np.copyto(rows, x)
        np.add(start(), first(), out=total)
        for product in others:
            np.add(total, product(), out=total)

    return fill, total.reshape(time, batch, width)


def sigmoid(x: Array) -> None:
    """Write 1 / (1 + exp(-x)) to x. (`np.negative` of numpy 2.4 errs in place on a column of a matrix.)"""
    np.multiply(x, np.float32(-1), out=x)
    np.exp(x, out=x)
    np.add(x, 1, out=x)
    np.divide(1, x, out=x)


def activate(op: OpContext) -> Callable[[Array, Array], Array]:
    """Return the activation from x to y, maybe one array. Raises `UnsupportedOperatorError` for SIGN_BIT."""
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
