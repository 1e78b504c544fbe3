"""SVDF: a bank of filters of low rank over time, each a feature filter and a filter over its history."""

import numpy as np

from runtime.model.schema import ActivationFunctionType
from runtime.ops.recurrent.fixed_point import narrow, narrow_to_byte
from runtime.ops.recurrent.gates import activate, present, products, weights
from runtime.ops.support import Array, Kernel, Op, OpContext, TensorType, operator
from runtime.ops.support.quantization import QuantizedMultiplier, quantize_multiplier

_INPUT, _FEATURE, _TIME, _BIAS, _STATE = range(5)


def _sizes(op: OpContext) -> tuple[int, int, int]:
    """Return (filters, memory, units) as weights and rank state them. Raises `ShapeError`."""
    x, feature, time = (op.input(i).shape for i in (_INPUT, _FEATURE, _TIME))
    rank: int = op.option("rank")
    if len(x) != 2 or len(feature) != 2 or len(time) != 2 or x[1] != feature[1] or feature[0] != time[0]:
        raise op.error(f"input {list(x)}, feature weights {list(feature)}, time weights {list(time)}")
    if rank < 1 or feature[0] % rank or op.input(_STATE).shape != (x[0], feature[0] * time[1]):
        raise op.error(f"rank {rank}, state {list(op.input(_STATE).shape)} for {feature[0]} filters")
    return feature[0], time[1], feature[0] // rank


@operator(
    Op.SVDF,
    max_version=4,
    infer=lambda op: ((op.input().shape[0], _sizes(op)[2]),),
    types=(TensorType.FLOAT32, TensorType.INT8),
    note="float32 with int8 or uint8 feature weights: hybrid; int8 with int16 state",
    stateful=True,
)
def svdf(op: OpContext) -> Kernel:
    """SVDF: the history moves on by one step, then every filter is applied to it; float32, int8."""
    return _integer(op) if op.input().type is TensorType.INT8 else _real(op)


def _real(op: OpContext) -> Kernel:
    """Return the kernel of floats: the state holds the last `memory` features of every filter."""
    filters, memory, units = _sizes(op)
    x, y = op.read(_INPUT), op.write()
    state = op.read(_STATE).reshape(len(x), filters, memory)
    asymmetric = bool(op.option("asymmetric_quantize_inputs"))
    feature = products(op, x, [_FEATURE], filters, asymmetric=asymmetric)
    time = _time_weights(op, (filters, memory))
    bias = weights(op, _BIAS, (units,)) if present(op, _BIAS) else np.float32(0)
    finish = activate(op)

    def run() -> None:
        latest = feature()
        # The slices overlap; numpy assigns as if it had read all of the right side first.
        state[..., :-1] = state[..., 1:]
        state[..., -1] = latest
        seen = np.einsum("bfm,fm->bf", state, time)
        # The `rank` filters of a unit lie side by side.
        y[:] = seen.reshape(len(x), units, -1).sum(axis=2) + bias
        finish(y, y)

    return run


def _time_weights(op: OpContext, shape: tuple[int, int]) -> Array:
    if op.input(_TIME).type is TensorType.FLOAT32:
        return weights(op, _TIME, shape)
    op.require(TensorType.INT8, TensorType.UINT8, i=_TIME)
    scale, _ = op.scale_and_zero_point(op.input(_TIME))
    # A uint8 tensor holds signed levels here, as `svdf.cc` reads it.
    return op.constant(_TIME, "time weights").view(np.int8).astype(np.float32) * np.float32(scale)


def _integer(op: OpContext) -> Kernel:
    """Return the kernel of int8 in and out, int16 history (`reference/svdf.h`, EvalIntegerSVDF).

    Sums of products are exact in float64.
    """
    for i, wanted in ((_FEATURE, TensorType.INT8), (_TIME, TensorType.INT16), (_STATE, TensorType.INT16)):
        op.require(wanted, i=i)
    if op.option("fused_activation_function") is not ActivationFunctionType.RELU:
        raise op.unsupported("integer filters without RELU")
    filters, memory, units = _sizes(op)
    x, y = op.read(_INPUT), op.write()
    state = op.read(_STATE).reshape(len(x), filters, memory)
    feature, time = (op.constant(i, "weights").astype(np.float64) for i in (_FEATURE, _TIME))
    in_scale, in_zero, out_scale, out_zero = op.scales()
    scales = [np.float32(op.scale_and_zero_point(op.input(i))[0]) for i in (_FEATURE, _TIME, _STATE)]
    into = _multiplier(np.float32(in_scale) * scales[0] / scales[2])
    out_of = _multiplier(scales[2] * scales[1] / np.float32(out_scale))
    bias = op.constant(_BIAS, "bias").astype(np.int64) if present(op, _BIAS) else np.int64(0)

    def run() -> None:
        sums = np.subtract(x, in_zero, dtype=np.float64) @ feature.T
        state[..., :-1] = state[..., 1:]
        state[..., -1] = narrow(into(sums.astype(np.int64)))
        seen = (state * time).reshape(len(x), units, -1).sum(axis=2)
        levels = out_of(seen.astype(np.int64) + bias) + out_zero
        np.copyto(y, narrow_to_byte(levels), casting="same_kind")

    return run


def _multiplier(scale: np.float32) -> QuantizedMultiplier:
    return QuantizedMultiplier(*quantize_multiplier(float(scale)))
