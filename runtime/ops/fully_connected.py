"""FULLY_CONNECTED: one GEMM.

x [..., in], weights [out, in], bias [out] -> [batch, out], or [..., out] with keep_num_dims. float32; int8,
uint8 and int16 exactly as LiteRT's reference kernels; float activations with int8 or int4 weights (hybrid),
whose scales are per tensor, per channel or blockwise.
"""

from __future__ import annotations

import math

import numpy as np

from runtime.model.schema import BuiltinOperator, FullyConnectedOptionsWeightsFormat, TensorType
from runtime.ops.conv import check_bias
from runtime.ops.hybrid import RowQuantizer, channel_scales, filter_levels, is_hybrid
from runtime.ops.integer_gemm import (
    LEVELS,
    ExactGemm,
    OutputStage,
    centred_filter,
    integer_bias,
    level_zero,
    require_filter,
)
from runtime.ops.shapes import require_rank
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


@operator(
    BuiltinOperator.FULLY_CONNECTED,
    max_version=14,
    infer=fully_connected_shape,
    types=(TensorType.FLOAT32, *LEVELS),
    note="float32 with float32, int8 or int4 weights, blockwise ones too; int8 and int16 with int8 or int4",
)
def fully_connected(op: OpContext) -> Kernel:
    """y = x @ weights.T + bias, fused activation."""
    if op.option("weights_format") is not FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise op.unsupported("shuffled weights")
    kind = op.require(TensorType.FLOAT32, *LEVELS)
    if kind is not TensorType.FLOAT32:
        require_filter(op, kind)
        return _levels(op, kind)
    if is_hybrid(op):
        return _hybrid(op)
    op.require(TensorType.FLOAT32, i=1)
    return _float(op)


def _rows(op: OpContext) -> tuple[Array, Array]:
    """Input [batch, in] and output [batch, out]."""
    out_size, in_size = op.input(1).shape
    return op.read(0).reshape(-1, in_size), op.write().reshape(-1, out_size)


def _float(op: OpContext) -> Kernel:
    x, y = _rows(op)
    matrix = op.read(1).T
    end = _end(op, y)

    def run() -> None:
        np.matmul(x, matrix, out=y)
        end()

    return run


def _end(op: OpContext, y: Array) -> Kernel:
    """Bias, which may be computed at run time, and activation."""
    bias = None if op.optional(2) is None else op.read(2).reshape(-1)
    clamp = float_activation_range(op.activation())

    def end() -> None:
        if bias is not None:
            np.add(y, bias, out=y)
        if clamp is not None:
            np.clip(y, *clamp, out=y)

    return end


def _hybrid(op: OpContext) -> Kernel:
    x, y = _rows(op)
    q = op.input(1).quantization
    blockwise = q is not None and q.blocks is not None
    asymmetric = blockwise or bool(op.option("asymmetric_quantize_inputs"))
    quantizer = RowQuantizer(op, x, asymmetric=asymmetric)
    product = _blockwise(op, quantizer, y) if blockwise else _scaled_product(op, quantizer, y)
    end = _end(op, y)

    def run() -> None:
        quantizer()
        product()
        end()

    return run


def _scaled_product(op: OpContext, quantizer: RowQuantizer, y: Array) -> Kernel:
    matrix = filter_levels(op).T
    scales = channel_scales(op, y.shape[1])

    def product() -> None:
        np.matmul(quantizer.levels, matrix, out=y)
        np.multiply(y, quantizer.scales[:, None] * scales, out=y)

    return product


def _blockwise(op: OpContext, quantizer: RowQuantizer, y: Array) -> Kernel:
    """Each row of weights has a scale for every block of columns, kept in a tensor of its own."""
    q = op.input(1).quantization
    assert q is not None
    assert q.blocks is not None
    stored = op.services.constant_of(q.blocks.scales)
    weights = filter_levels(op)
    out_size, in_size = weights.shape
    block = q.blocks.block_size
    if block < 1 or in_size % block or stored is None or stored.size != out_size * (in_size // block):
        raise op.unsupported(f"weights {out_size}x{in_size} in blocks of {block} without a scale for each")
    scales = stored.astype(np.float32).reshape(out_size, in_size // block)
    matrix = (weights.reshape(out_size, -1, block) * scales[..., None]).reshape(out_size, in_size).T

    def product() -> None:
        np.matmul(quantizer.levels, matrix, out=y)
        np.multiply(y, quantizer.scales[:, None], out=y)

    return product


def _levels(op: OpContext, kind: TensorType) -> Kernel:
    x, y = _rows(op)
    channels = y.shape[1]
    gemm = ExactGemm(centred_filter(op), kind, level_zero(op), integer_bias(op, channels))
    columns, partial = op.temporary(x.shape, gemm.dtype), op.temporary(y.shape, gemm.dtype)
    total = op.temporary(y.shape, np.float64)
    finish = _output_stage(op)

    def run() -> None:
        np.copyto(columns, x)
        gemm(columns, partial, total)
        finish(total, y)

    return run


def _output_stage(op: OpContext) -> OutputStage:
    """One product in double precision, rounded half away from zero: other kernels round twice."""
    in_scale, _ = op.scale_and_zero_point(op.input(0))
    out_scale, out_zero = op.scale_and_zero_point(op.output())
    q = op.input(1).quantization
    assert q is not None
    low, high = activation_range(op.activation(), out_scale, out_zero, op.output().type)
    scale = _effective_scales(in_scale, q.scales, out_scale)

    def finish(total: Array, out: Array) -> None:
        np.multiply(total, scale, out=total)
        np.clip(round_half_away(total) + out_zero, low, high, out=total)
        np.copyto(out, total, casting="unsafe")

    return finish


def _effective_scales(in_scale: float, scales: tuple[float, ...], out_scale: float) -> Array:
    if len(scales) == 1:
        return np.array([float(np.float32(in_scale) * np.float32(scales[0])) / out_scale])
    return np.array([in_scale * s / out_scale for s in scales])
