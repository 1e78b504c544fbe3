"""Activations: RELU family, PRELU, LEAKY_RELU, ELU, GELU, HARD_SWISH, LOGISTIC, TANH.

float32; int8 where the reference kernel is a rule per level, evaluated for all 256 levels while planning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops import levels
from runtime.ops.blocks import broadcast_blocks, channel_rows, flat_blocks
from runtime.ops.levels import level_table, pair_levels
from runtime.ops.shapes import broadcast_inputs, same_shape
from runtime.ops.spec import Array, Kernel, OpContext, operator
from runtime.ops.type_sets import QUANTIZED

BYTES = (TensorType.INT8, TensorType.UINT8)

_Function = Callable[[Array, Array, Array], object]

_CLAMPS: Mapping[BuiltinOperator, tuple[float, float]] = {
    BuiltinOperator.RELU: (0.0, math.inf),
    BuiltinOperator.RELU6: (0.0, 6.0),
    BuiltinOperator.RELU_N1_TO_1: (-1.0, 1.0),
    BuiltinOperator.RELU_0_TO_1: (0.0, 1.0),
}


@operator(*_CLAMPS, max_version=3, infer=same_shape, types=(TensorType.FLOAT32, *QUANTIZED))
def relu(op: OpContext) -> Kernel:
    """Clamp; int8 is rescaled to the output's quantisation first (`activations.cc`)."""
    kind = op.require(TensorType.FLOAT32, *QUANTIZED)
    op.require_same_type(0)
    low, high = _CLAMPS[op.operator.opcode]
    if kind in QUANTIZED:
        return level_table(op, lambda q: levels.relu(op, q, low, high))
    return _per_element(op, lambda x, y, _: np.clip(x, low, high, out=y))


def _per_element(op: OpContext, function: _Function) -> Kernel:
    """Run function(x, y, temporary) over cache-sized pieces."""
    pieces = flat_blocks(op.read(0), op.write())
    temporary = op.temporary((max((x.size for x, _ in pieces), default=0),))
    steps = [(x, y, temporary[: x.size]) for x, y in pieces]

    def run() -> None:
        for x, y, t in steps:
            function(x, y, t)

    return run


def _logistic(x: Array, y: Array, t: Array) -> None:
    np.negative(x, out=t)
    np.exp(t, out=t)
    np.add(t, np.float32(1), out=t)
    np.divide(np.float32(1), t, out=y)


def _hard_swish(x: Array, y: Array, t: Array) -> None:
    np.add(x, np.float32(3), out=t)
    np.clip(t, np.float32(0), np.float32(6), out=t)
    np.multiply(t, x, out=t)
    np.divide(t, np.float32(6), out=y)


def _elu(x: Array, y: Array, t: Array) -> None:
    np.minimum(x, np.float32(0), out=t)
    np.expm1(t, out=t)
    np.maximum(x, np.float32(0), out=y)
    np.add(y, t, out=y)


def _gelu_tanh(x: Array, y: Array, t: Array) -> None:
    np.multiply(x, x, out=t)
    np.multiply(t, np.float32(0.044715), out=t)
    np.add(t, np.float32(1), out=t)
    np.multiply(t, x, out=t)
    np.multiply(t, np.float32(math.sqrt(2 / math.pi)), out=t)
    np.tanh(t, out=t)
    np.add(t, np.float32(1), out=t)
    np.multiply(t, np.float32(0.5), out=t)
    np.multiply(t, x, out=y)


_FLOAT: Mapping[BuiltinOperator, _Function] = {
    BuiltinOperator.ELU: _elu,
    BuiltinOperator.HARD_SWISH: _hard_swish,
    BuiltinOperator.LOGISTIC: _logistic,
    BuiltinOperator.TANH: lambda x, y, _: np.tanh(x, out=y),
}


@operator(*_FLOAT, max_version=3, infer=same_shape, types=(TensorType.FLOAT32, *BYTES))
def activation(op: OpContext) -> Kernel:
    """ELU, HARD_SWISH, LOGISTIC, TANH."""
    kind = op.require(TensorType.FLOAT32, *BYTES)
    op.require_same_type(0)
    if kind is TensorType.FLOAT32:
        return _per_element(op, _FLOAT[op.operator.opcode])
    if op.operator.opcode is BuiltinOperator.HARD_SWISH:
        return level_table(op, lambda q: levels.hard_swish(op, q))
    function = _FLOAT[op.operator.opcode]
    return level_table(op, lambda q: levels.through_float(op, q, function))


def _erf_series() -> Array:
    """Chebyshev coefficients of erf(x) / x in x^2 / 8 - 1, for |x| <= 4; the error is below 1e-9."""
    nodes = np.polynomial.chebyshev.chebpts1(28)
    x = np.sqrt(8 * (nodes + 1))
    values = np.array([math.erf(v) for v in x]) / x
    return np.polynomial.chebyshev.chebfit(nodes, values, 27)


def _gelu_exact(x: Array, y: Array, t: Array, series: Array) -> None:
    """0.5 x (1 + erf(x / sqrt 2)); erf is 1 to single precision beyond 4."""
    wide = np.clip(x.astype(np.float64) * math.sqrt(0.5), -4, 4)
    erf = wide * np.polynomial.chebyshev.chebval(wide * wide / 8 - 1, series)
    np.multiply(0.5 * x, 1 + erf, out=y, casting="same_kind")


@operator(BuiltinOperator.GELU, max_version=3, infer=same_shape, types=(TensorType.FLOAT32,))
def gelu(op: OpContext) -> Kernel:
    """0.5 x (1 + erf(x / sqrt 2)), or the tanh form that option `approximate` asks for; float32."""
    op.require(TensorType.FLOAT32)
    op.require_same_type(0)
    if op.option("approximate"):
        return _per_element(op, _gelu_tanh)
    series = _erf_series()
    return _per_element(op, lambda x, y, t: _gelu_exact(x, y, t, series))


@operator(BuiltinOperator.LEAKY_RELU, max_version=2, infer=same_shape, types=(TensorType.FLOAT32, *QUANTIZED))
def leaky_relu(op: OpContext) -> Kernel:
    """x where positive, else alpha * x; float32 and int8."""
    kind = op.require(TensorType.FLOAT32, *QUANTIZED)
    op.require_same_type(0)
    alpha = np.float32(op.option("alpha"))
    if kind in QUANTIZED:
        return level_table(op, lambda q: levels.leaky_relu(op, q, alpha))

    def function(x: Array, y: Array, t: Array) -> None:
        np.minimum(x, np.float32(0), out=t)
        np.multiply(t, alpha, out=t)
        np.maximum(x, np.float32(0), out=y)
        np.add(y, t, out=y)

    return _per_element(op, function)


@operator(BuiltinOperator.PRELU, max_version=1, infer=broadcast_inputs, types=(TensorType.FLOAT32, *BYTES))
def prelu(op: OpContext) -> Kernel:
    """x where positive, else alpha * x with alpha broadcast to x; float32 and int8."""
    kind = op.require(TensorType.FLOAT32, *BYTES)
    op.require_same_type(0, 1)
    if kind in BYTES:
        return pair_levels(op, levels.prelu)
    x, alpha, y = op.read(0), op.read(1), op.write()
    if op.input(1).constant is not None and alpha.size == x.shape[-1] == alpha.shape[-1]:
        rows, width = channel_rows(x.shape)
        alpha = np.tile(alpha.reshape(-1), width)
        x, y = x.reshape(rows, -1), y.reshape(rows, -1)
    pieces = broadcast_blocks(y, x, alpha)
    temporary = op.temporary((max((p[0].size for p in pieces), default=0),))
    steps = [(*p, temporary[: p[0].size].reshape(p[0].shape)) for p in pieces]

    def run() -> None:
        for out, value, slope, t in steps:
            np.minimum(value, np.float32(0), out=t)
            np.multiply(t, slope, out=t)
            np.maximum(value, np.float32(0), out=out)
            np.add(out, t, out=out)

    return run
