"""FULLY_CONNECTED and BATCH_MATMUL: one GEMM each.

x [..., in], weights [out, in], bias [out] -> [batch, out], or [..., out] with keep_num_dims.
"""

from __future__ import annotations

import math

import numpy as np

from runtime.model.schema import BuiltinOperator, FullyConnectedOptionsWeightsFormat, TensorType
from runtime.ops.conv import ExactGemm, check_bias, int8_bias
from runtime.ops.shapes import broadcast, require_rank
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator
from runtime.quantization import activation_range, float_activation_range, round_half_away


def fully_connected_shape(op: OpContext) -> tuple[Shape, ...]:
    """[batch, out], or the input's leading dimensions with keep_num_dims."""
    out_size, in_size = require_rank(op, 1, 2)
    shape = op.input(0).shape
    check_bias(op, out_size)
    if op.option("keep_num_dims"):
        if not shape or shape[-1] != in_size:
            raise op.error(f"input of shape {list(shape)} for weights of {in_size} columns")
        return ((*shape[:-1], out_size),)
    elements = math.prod(shape)
    if in_size < 1 or elements % in_size:
        raise op.error(f"input of {elements} elements for weights of {in_size} columns")
    return ((elements // in_size, out_size),)


@operator(BuiltinOperator.FULLY_CONNECTED, max_version=14, infer=fully_connected_shape)
def fully_connected(op: OpContext) -> Kernel:
    """y = x @ weights.T + bias, fused activation."""
    if op.option("weights_format") is not FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise op.unsupported("shuffled weights")
    if op.require(TensorType.FLOAT32, TensorType.INT8) is TensorType.INT8:
        return _fully_connected_int8(op)
    op.require_same_type(0, 1)
    weights = op.read(1)
    matrix = weights.T
    x, y = op.read(0).reshape(-1, weights.shape[1]), op.write().reshape(-1, weights.shape[0])
    bias = None if op.optional(2) is None else op.read(2).reshape(-1)
    clamp = float_activation_range(op.activation())

    def run() -> None:
        np.matmul(x, matrix, out=y)
        if bias is not None:
            np.add(y, bias, out=y)
        if clamp is not None:
            np.clip(y, *clamp, out=y)

    return run


def _fully_connected_int8(op: OpContext) -> Kernel:
    """As the reference resolver of LiteRT does it: one product in double precision, rounded half away."""
    op.require_same_type(0, 1)
    weights = op.constant(1, "weights")
    channels = weights.shape[0]
    x, y = op.read(0).reshape(-1, weights.shape[1]), op.write().reshape(-1, channels)
    in_scale, in_zero = op.scale_and_zero_point(op.input(0))
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    q = op.input(1).quantization
    if q is None or q.blocks is not None or q.is_custom or any(q.zero_points):
        raise op.unsupported("weights without scales, or with a zero point other than 0")
    low, high = activation_range(op.activation(), out_scale, out_zero, TensorType.INT8)
    scale = _effective_scales(in_scale, q.scales, out_scale)
    gemm = ExactGemm(weights, in_zero, int8_bias(op, channels))
    columns, partial = op.temporary(x.shape), op.temporary(y.shape)
    total = op.temporary(y.shape, np.float64)

    def run() -> None:
        np.copyto(columns, x)
        gemm(columns, partial, total)
        np.multiply(total, scale, out=total)
        np.clip(round_half_away(total) + out_zero, low, high, out=total)
        np.copyto(y, total, casting="unsafe")

    return run


def _effective_scales(in_scale: float, scales: tuple[float, ...], out_scale: float) -> Array:
    if len(scales) == 1:
        return np.array([float(np.float32(in_scale) * np.float32(scales[0])) / out_scale])
    return np.array([in_scale * s / out_scale for s in scales])


def batch_matmul_shape(op: OpContext) -> tuple[Shape, ...]:
    """Leading dimensions broadcast; [..., m, k] times [..., k, n]."""
    left, right = op.input(0).shape, op.input(1).shape
    if len(left) < 2 or len(right) < 2:
        raise op.error(f"shapes {list(left)} and {list(right)}, rank 2 at least is needed")
    rows, inner = (left[-1], left[-2]) if op.option("adj_x") else (left[-2], left[-1])
    depth, columns = (right[-1], right[-2]) if op.option("adj_y") else (right[-2], right[-1])
    if inner != depth:
        raise op.error(f"shapes {list(left)} and {list(right)} do not chain")
    return ((*broadcast(op, left[:-2], right[:-2]), rows, columns),)


@operator(BuiltinOperator.BATCH_MATMUL, max_version=4, infer=batch_matmul_shape)
def batch_matmul(op: OpContext) -> Kernel:
    """Matrix product of the last two dimensions; `adj_x`, `adj_y` transpose them. float32."""
    op.require(TensorType.FLOAT32)
    op.require_same_type(0, 1)
    x = op.read(0).swapaxes(-1, -2) if op.option("adj_x") else op.read(0)
    z = op.read(1).swapaxes(-1, -2) if op.option("adj_y") else op.read(1)
    y = op.write()

    def run() -> None:
        np.matmul(x, z, out=y)

    return run
