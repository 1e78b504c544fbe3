"""Activations: RELU family, PRELU, LEAKY_RELU, ELU, GELU, HARD_SWISH, LOGISTIC, TANH.

Each takes float32 of any shape, some float16; quantised types go through a rule of the reference kernel that
is evaluated for every level while planning.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from runtime.ops.elementwise.level_functions import sigmoid_int16, through_function
from runtime.ops.support import QUANTIZED, Array, Kernel, Op, OpContext, TensorType, levels, operator
from runtime.ops.support.blocks import broadcast_blocks, channel_rows, flat_blocks, over, pairwise
from runtime.ops.support.levels import level_table, pair_levels
from runtime.ops.support.shapes import broadcast_inputs, same_shape

BYTES = (TensorType.INT8, TensorType.UINT8)
_HALVES = (TensorType.FLOAT32, TensorType.FLOAT16)

_Function = Callable[[Array, Array, Array], object]

_CLAMPS: Mapping[Op, tuple[float, float]] = {
    Op.RELU: (0.0, math.inf),
    Op.RELU6: (0.0, 6.0),
    Op.RELU_N1_TO_1: (-1.0, 1.0),
    Op.RELU_0_TO_1: (0.0, 1.0),
}


@operator(*_CLAMPS, max_version=3, infer=same_shape, types=(TensorType.FLOAT32, *QUANTIZED))
def relu(op: OpContext) -> Kernel:
    """Clamp to the operator's range; levels are rescaled to the output's quantisation (`activations.cc`)."""
    kind = op.input().type
    op.require_same_type(0)
    low, high = _CLAMPS[op.operator.opcode]
    if kind in QUANTIZED:
        return level_table(op, lambda q: levels.relu(op, q, low, high))
    return _per_element(op, lambda x, y, _: np.clip(x, low, high, out=y))


def _per_element(op: OpContext, function: _Function) -> Kernel:
    """Return a kernel that calls function(x, y, temporary), all float32 and flat, on cache-sized pieces."""
    pieces = flat_blocks(op.read(0), op.write())
    temporary = op.temporary((max((x.size for x, _ in pieces), default=0),))
    steps = [(x, y, temporary[: x.size]) for x, y in pieces]
    if op.input().type is TensorType.FLOAT16:
        return _widened(function, steps)
    return over(steps, function)


def _widened(function: _Function, steps: Sequence[tuple[Array, Array, Array]]) -> Kernel:
    """Return a kernel that computes float16 in single precision and rounds the result once."""

    def run() -> None:
        for x, y, t in steps:
            result = np.empty(x.shape, np.float32)
            function(x.astype(np.float32), result, t)
            np.copyto(y, result, casting="same_kind")

    return run


def _logistic(x: Array, y: Array, t: Array) -> None:
    # Where exp overflows, below about -88, the quotient is 0 instead of a denormal number.
    np.negative(x, out=t)
    with np.errstate(over="ignore"):
        np.exp(t, out=t)
    np.add(t, np.float32(1), out=t)
    np.divide(np.float32(1), t, out=y)


def _hard_swish(x: Array, y: Array, t: Array) -> None:
    np.add(x, np.float32(3), out=t)
    np.clip(t, np.float32(0), np.float32(6), out=t)
    np.multiply(t, x, out=t)
    np.divide(t, np.float32(6), out=y)


def _elu(x: Array, y: Array, t: Array) -> None:
    # The sum of the two halves needs no mask: on either side of zero one of them is 0. NaN passes both clips.
    np.clip(x, -math.inf, 0, out=t)
    np.expm1(t, out=t)
    np.clip(x, 0, math.inf, out=y)
    np.add(y, t, out=y)


def _gelu_tanh(x: Array, y: Array, t: Array) -> None:
    """Write 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), with x factored out of the cubic."""
    np.multiply(x, x, out=t)
    np.multiply(t, np.float32(0.044715), out=t)
    np.add(t, np.float32(1), out=t)
    np.multiply(t, x, out=t)
    np.multiply(t, np.float32(math.sqrt(2 / math.pi)), out=t)
    np.tanh(t, out=t)
    np.add(t, np.float32(1), out=t)
    np.multiply(t, np.float32(0.5), out=t)
    np.multiply(t, x, out=y)


@operator(Op.ELU, infer=same_shape, types=(TensorType.FLOAT32, *BYTES))
def elu(op: OpContext) -> Kernel:
    """ELU: x where positive, else e^x - 1; float32, int8, uint8."""
    op.require_same_type(0)
    if op.input().type is TensorType.FLOAT32:
        return _per_element(op, _elu)
    return level_table(op, lambda q: levels.through_float(op, q, _elu))


@operator(Op.HARD_SWISH, infer=same_shape, types=(TensorType.FLOAT32, *BYTES))
def hard_swish(op: OpContext) -> Kernel:
    """HARD_SWISH: x min(max(x + 3, 0), 6) / 6; float32, int8, uint8."""
    op.require_same_type(0)
    if op.input().type is TensorType.FLOAT32:
        return _per_element(op, _hard_swish)
    return level_table(op, lambda q: levels.hard_swish(op, q))


_SIGMOIDS: Mapping[Op, _Function] = {Op.LOGISTIC: _logistic, Op.TANH: lambda x, y, _: np.tanh(x, out=y)}


@operator(*_SIGMOIDS, max_version=3, infer=same_shape, types=(*_HALVES, *QUANTIZED))
def sigmoid(op: OpContext) -> Kernel:
    """LOGISTIC: 1 / (1 + e^-x), and TANH; float32, float16, int8, uint8, int16."""
    kind = op.input().type
    op.require_same_type(0)
    if kind is TensorType.INT16:
        return sigmoid_int16(op)
    function = _SIGMOIDS[op.operator.opcode]
    if kind in BYTES:
        return level_table(op, lambda q: levels.through_float(op, q, function))
    return _per_element(op, function)


_ERFC_SLOPE = np.float32(0.55 * math.sqrt(0.5))
"""0.55 z as a multiple of |x|, z = |x| / sqrt 2, in t = 1 / (1 + 0.55 z) below."""

_ERFC_SERIES = tuple(
    np.float32(v) for v in (0.10733123, -0.51806636, 0.75976084, -0.041464186, 0.39085755, 0.30158095)
)
"""erfc(z) = exp(-z^2) p(t), t = 1 / (1 + 0.55 z), for z >= 0: p without a constant term, highest power first,
fitted to an error below 2e-8."""

_ERFC_END = np.float32(40)
"""erfc(z / sqrt 2) is 0 in single precision from here on; where x is larger, gelu(x) is x."""


def _gelu_exact(x: Array, y: Array, t: Array) -> None:
    """Write max(x, 0) - 0.5 |x| erfc(|x| / sqrt 2), which equals x Phi(x) without cancellation below zero.

    numpy has no erf; erfc is a polynomial times exp(-x^2 / 2), so that its relative error stays small where
    it is small itself.
    """
    np.abs(x, out=t)
    np.multiply(t, _ERFC_SLOPE, out=t)
    np.add(t, np.float32(1), out=t)
    np.divide(np.float32(1), t, out=t)
    np.multiply(t, _ERFC_SERIES[0], out=y)
    for coefficient in _ERFC_SERIES[1:]:
        np.add(y, coefficient, out=y)
        np.multiply(y, t, out=y)
    np.multiply(x, x, out=t)
    np.multiply(t, np.float32(-0.5), out=t)
    np.exp(t, out=t)
    np.multiply(y, t, out=y)
    # |x| is cut off where erfc is 0 already, as +inf times 0 would be NaN. Of -inf it is NaN in LiteRT too.
    np.clip(x, -math.inf, _ERFC_END, out=t)
    np.abs(t, out=t)
    np.multiply(y, t, out=y)
    np.multiply(y, np.float32(0.5), out=y)
    np.clip(x, 0, math.inf, out=t)
    np.subtract(t, y, out=y)
    # Below zero the difference vanishes as +0.
    np.copysign(y, x, out=y)


@operator(Op.GELU, max_version=3, infer=same_shape, types=(*_HALVES, *QUANTIZED))
def gelu(op: OpContext) -> Kernel:
    """GELU: 0.5 x (1 + erf(x / sqrt 2)), or the tanh form that option `approximate` asks for."""
    kind = op.input().type
    op.require_same_type(0)
    function = _gelu_tanh if op.option("approximate") else _gelu_exact
    if kind in QUANTIZED:
        return through_function(op, lambda x: _single(function, x))
    return _per_element(op, function)


def _single(function: _Function, x: Array) -> Array:
    y = np.empty(x.shape, np.float32)
    function(x.astype(np.float32), y, np.empty_like(y))
    return y


@operator(Op.LEAKY_RELU, max_version=2, infer=same_shape, types=(TensorType.FLOAT32, *QUANTIZED))
def leaky_relu(op: OpContext) -> Kernel:
    """LEAKY_RELU: x where positive, else alpha * x; float32, int8, uint8, int16."""
    kind = op.input().type
    op.require_same_type(0)
    alpha = np.float32(op.option("alpha"))
    if kind in QUANTIZED:
        return level_table(op, lambda q: levels.leaky_relu(op, q, alpha))

    def function(x: Array, y: Array, t: Array) -> None:
        np.multiply(x, alpha, out=t)
        np.maximum(x, t, out=y)

    def of_any_slope(x: Array, y: Array, t: Array) -> None:
        np.multiply(x, alpha, out=y)
        np.copyto(y, x, where=x > 0)

    # Of slopes in (0, 1] the larger of x and its product is the result, which needs no mask.
    return _per_element(op, function if 0 < alpha <= 1 else of_any_slope)


@operator(Op.PRELU, infer=broadcast_inputs, types=(TensorType.FLOAT32, *QUANTIZED))
def prelu(op: OpContext) -> Kernel:
    """PRELU: x where positive, else alpha * x with alpha broadcast to x; float32, int8, uint8, int16."""
    kind = op.input().type
    op.require_same_type(0)
    op.require(TensorType.INT8 if kind is TensorType.INT16 else kind, i=1)
    if kind in QUANTIZED:
        return pair_levels(op, levels.prelu)
    x, alpha, y = op.read(0), op.read(1), op.write()
    if op.input(1).constant is None or not np.isfinite(alpha).all():
        return _prelu_of_any_slopes(op)
    # One slope per channel: whole rows of pixels at once, as a row of C channels alone is a short inner loop.
    if alpha.size == x.shape[-1] == alpha.shape[-1]:
        rows, width = channel_rows(x.shape)
        alpha = np.tile(alpha.reshape(-1), width)
        x, y = x.reshape(rows, -1), y.reshape(rows, -1)
    pieces = broadcast_blocks(y, x, alpha)
    temporary = op.temporary((max((p[0].size for p in pieces), default=0),))
    steps = [(*p, temporary[: p[0].size].reshape(p[0].shape)) for p in pieces]

    def run() -> None:
        for out, value, slope, t in steps:
            np.clip(value, -math.inf, 0, out=t)
            np.multiply(t, slope, out=t)
            np.clip(value, 0, math.inf, out=out)
            np.add(out, t, out=out)

    return run


def _prelu_of_any_slopes(op: OpContext) -> Kernel:
    """Return a kernel for slopes that may be infinite or NaN.

    The sum of clipped halves would multiply such a slope by 0, and make NaN of an x that is not negative.
    """

    def apply(x: Array, slope: Array, y: Array) -> None:
        sloped = x * slope
        np.copyto(y, x)
        np.copyto(y, sloped, where=x < 0)

    return pairwise(op, apply)
