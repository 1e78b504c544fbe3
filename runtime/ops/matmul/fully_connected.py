"""FULLY_CONNECTED: one GEMM.

x [..., in], weights [out, in], bias [out] -> [batch, out], or [..., out] with keep_num_dims. float32; int8,
uint8 and int16 exactly as LiteRT's reference kernels; float activations with int8 or int4 weights (hybrid),
whose scales are per tensor, per channel or blockwise.
"""

import math

import numpy as np

from runtime.model.schema import FullyConnectedOptionsWeightsFormat
from runtime.ops.matmul import integer_gemm
from runtime.ops.matmul.conv import check_bias, float_end
from runtime.ops.matmul.hybrid import RowQuantizer, channel_scales, filter_levels, hybrid_filter, is_hybrid
from runtime.ops.matmul.level_matrix import LevelMatrix, stored_filter
from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator, quantization
from runtime.ops.support.blocks import in_turn
from runtime.ops.support.fused_activation import clamp_floats
from runtime.ops.support.parallel import lane_count, row_blocks, shares, together
from runtime.ops.support.shapes import require_rank

_BLOCK_BYTES = 1 << 20
"""Bytes of a block of rows: 4 for each input, 12 for each output and its sums. Chosen, so that bias,
activation and rescaling find the block in a second-level cache."""

_BLOCK_ROWS = 128
"""Least rows of a block, whatever their bytes. Chosen: BLAS reads all weights once for each block, and with
fewer rows that reading would outweigh the products."""

_LEAST_ROWS = 8
"""With fewer rows for each thread, the threads share the output channels instead."""


def fully_connected_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [batch, out], or [.., out] with the input's leading dimensions under `keep_num_dims`."""
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
    Op.FULLY_CONNECTED,
    max_version=14,
    infer=fully_connected_shape,
    types=(TensorType.FLOAT32, *integer_gemm.LEVELS),
    note="float32 with float32, int8, int4, int2, blockwise weights; int8 and int16 with int8, int4, int2; "
    "int16 with int16; uint8 may give int16",
)
def fully_connected(op: OpContext) -> Kernel:
    """FULLY_CONNECTED: x @ weights.T + bias, fused activation."""
    if op.option("weights_format") is not FullyConnectedOptionsWeightsFormat.DEFAULT:
        raise op.unsupported("shuffled weights")
    kind = op.input().type
    if kind is not TensorType.FLOAT32:
        # Only int16 activations have weights of int16 too; all other weights are bytes or narrower.
        if not kind is op.input(1).type is TensorType.INT16:
            integer_gemm.require_filter(op, kind)
        return _levels(op, kind)
    if is_hybrid(op):
        return _hybrid(op)
    op.require(TensorType.FLOAT32, i=1)
    return _float(op)


def _rows(op: OpContext) -> tuple[Array, Array]:
    out_size, in_size = op.input(1).shape
    return op.read(0).reshape(-1, in_size), op.write().reshape(-1, out_size)


def _float(op: OpContext) -> Kernel:
    """Return the kernel of float weights, with bias and activation block by block.

    Weights and bias may be computed at run time, so that nothing of them is prepared.
    """
    x, y = _rows(op)
    matrix = op.read(1).T
    bias = None if op.optional(2) is None else op.read(2).reshape(-1)
    clamp = quantization.float_activation_range(op.activation())
    lanes = lane_count(op, x.size * y.shape[1])
    whole = slice(0, y.shape[1])
    # Too few rows to share among the lanes: the output channels are shared instead.
    if len(x) < lanes * _LEAST_ROWS:
        plan = [[(slice(0, len(x)), slice(c.start, c.stop))] for c in shares(y.shape[1], lanes)]
    else:
        plan = [[(rows, whole) for rows in lane] for lane in _blocks(x, y, lanes)]

    def lane_of(parts: list[tuple[slice, slice]]) -> Kernel:
        steps = [
            (x[rows], matrix[:, channels], y[rows, channels], None if bias is None else bias[channels])
            for rows, channels in parts
        ]

        def run() -> None:
            for a, weights, out, offset in steps:
                np.matmul(a, weights, out=out)
                if offset is not None:
                    np.add(out, offset, out=out)
                clamp_floats(out, clamp)

        return run

    return together([lane_of(parts) for parts in plan])


def _blocks(x: Array, y: Array, lanes: int) -> list[list[slice]]:
    """Return the rows of each lane, in blocks that stay in the cache."""
    # Inputs widened to float32; of each output a sum in float32, and one in float64.
    row_bytes = 4 * x.shape[1] + 12 * y.shape[1]
    return row_blocks(len(x), lanes, max(_BLOCK_ROWS, _BLOCK_BYTES // row_bytes))


def _hybrid(op: OpContext) -> Kernel:
    """Return the hybrid kernel; LiteRT quantises rows asymmetrically for all blockwise weights."""
    x, y = _rows(op)
    q = op.input(1).quantization
    blockwise = q is not None and q.blocks is not None
    asymmetric = blockwise or bool(op.option("asymmetric_quantize_inputs"))
    quantizer = RowQuantizer(op, x, asymmetric=asymmetric)
    if blockwise:
        end = float_end(op)
        return in_turn(quantizer, _blockwise(op, quantizer, y), lambda: end(y))
    return in_turn(quantizer, _scaled_product(op, quantizer, y))


def _scaled_product(op: OpContext, quantizer: RowQuantizer, y: Array) -> Kernel:
    """Return the product of quantised rows with a filter of one scale per tensor or channel, finished."""
    weights, zero = hybrid_filter(op)
    matrix = LevelMatrix(op, weights, zero, np.float32)
    scales = channel_scales(op, y.shape[1])
    lanes = lane_count(op, weights.size * len(y))
    end = float_end(op)

    def lane_of(blocks: list[slice]) -> Kernel:
        product = matrix.product()
        steps = [(quantizer.levels[b], quantizer.scales[b, None], y[b]) for b in blocks]

        def run() -> None:
            for levels, row_scales, out in steps:
                product(levels, out)
                np.multiply(out, row_scales * scales, out=out)
                end(out)

        return run

    return together([lane_of(blocks) for blocks in _blocks(quantizer.levels, y, lanes)])


def _blockwise(op: OpContext, quantizer: RowQuantizer, y: Array) -> Kernel:
    """Return the product of quantised rows with a filter that has a scale for every block of columns.

    The scales, float16 [out, in / block], are a tensor of their own. They multiply the weights once, while
    planning: the sum over blocks then is one matrix product.
    """
    q = op.input(1).quantization
    # `_hybrid` has found blockwise scales.
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
    """Return the kernel of quantised activations and weights, whose sums are exact integers."""
    x, y = _rows(op)
    channels = y.shape[1]
    gemm = integer_gemm.ExactGemm(
        op,
        *stored_filter(op),
        kind,
        integer_gemm.input_zero_point(op),
        integer_gemm.integer_bias(op, channels),
    )
    finish = _output_stage(op)

    def lane_of(blocks: list[slice]) -> Kernel:
        product = gemm.lane()
        most = max(b.stop - b.start for b in blocks)
        columns = op.temporary((most, x.shape[1]), gemm.dtype)
        partial = op.temporary((most, channels), gemm.dtype)
        total = op.temporary((most, channels), np.float64)
        steps = [
            (x[b], y[b], columns[: b.stop - b.start], partial[: b.stop - b.start], total[: b.stop - b.start])
            for b in blocks
        ]

        def run() -> None:
            for given, out, a, some, sums in steps:
                np.copyto(a, given)
                np.add(product(a, some, sums), gemm.offset, out=sums)
                finish(sums, out)

        return run

    lanes = lane_count(op, x.size * channels)
    return together([lane_of(blocks) for blocks in _blocks(x, y, lanes)])


def _output_stage(op: OpContext) -> integer_gemm.OutputStage:
    """Return the way from sums to output levels, which differs from that of convolutions.

    LiteRT's reference kernel multiplies once in double precision and rounds ties away from zero, where its
    other kernels round twice in fixed point. With int16 on both sides, sums have 64 bits and multipliers 15.
    """
    in_scale, _, out_scale, out_zero = op.scales()
    q = op.input(1).quantization
    # `stored_filter`, which the caller asks before, refuses a filter without scales.
    assert q is not None
    out_type = op.require_output(TensorType.INT8, TensorType.UINT8, TensorType.INT16)
    low, high = quantization.activation_range(op.activation(), out_scale, out_zero, out_type)
    if op.input(1).type is TensorType.INT16:
        real = float(np.float32(in_scale) * np.float32(q.scales[0])) / out_scale
        return quantization.WideRequantizer(*quantization.quantize_multipliers([real]), (low, high))
    scale = np.array([in_scale * s / out_scale for s in q.scales])

    def finish(total: Array, out: Array) -> None:
        np.multiply(total, scale, out=total)
        np.clip(quantization.round_half_away(total) + out_zero, low, high, out=total)
        np.copyto(out, total, casting="unsafe")

    return finish
