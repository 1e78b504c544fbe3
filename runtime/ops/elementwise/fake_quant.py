"""FAKE_QUANT: float values moved to the levels of a grid, as training with quantisation simulates it."""

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support import Kernel, OpContext, operator
from runtime.ops.support.blocks import flat_blocks
from runtime.ops.support.quantization import round_half_away
from runtime.ops.support.shapes import same_shape


@operator(BuiltinOperator.FAKE_QUANT, max_version=2, infer=same_shape, types=(TensorType.FLOAT32,))
def fake_quant(op: OpContext) -> Kernel:
    """FAKE_QUANT: round to the grid of `num_bits` over [min, max], nudged so that zero lies on the grid.

    float32 of any shape; NudgeQuantizationRange and FakeQuantizeArray of `fakequant.h`, in single precision.
    """
    op.require(TensorType.FLOAT32)
    low, high, bits = np.float32(op.option("min")), np.float32(op.option("max")), int(op.option("num_bits"))
    if not 2 <= bits <= 16:
        raise op.unsupported(f"{bits} bits, 2 to 16 are defined")
    least, most = np.float32(1 if op.option("narrow_range") else 0), np.float32((1 << bits) - 1)
    if low == high:
        raise op.unsupported("an empty range")
    with np.errstate(all="ignore"):
        scale = (high - low) / (most - least)
        zero = np.float32(round_half_away(np.float64(np.clip(least - low / scale, least, most))))
        nudged_low, nudged_high = np.float32((least - zero) * scale), np.float32((most - zero) * scale)
        inverse = np.float32(1) / scale
    pieces = flat_blocks(op.write(), op.read(0))

    def run() -> None:
        for y, x in pieces:
            clamped = np.clip(x, nudged_low, nudged_high)
            levels = np.floor((clamped - nudged_low) * inverse + np.float32(0.5))
            np.copyto(y, levels * scale + nudged_low)

    return run
