"""Small models for plans: one partition with a fusion, and two with an operator of the CPU between them."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder


def convolution(b: Builder, source: int, inputs: int, outputs: int, extent: int, side: int = 8) -> int:
    """Add a convolution of SAME padding; return its output."""
    y = b.tensor(np.float32, (1, side, side, outputs))
    weights = b.constant(np.ones((outputs, extent, extent, inputs), np.float32))
    b.operator(Op.CONV_2D, [source, weights, -1], [y], {"padding": 0, "stride_w": 1, "stride_h": 1})
    return y


def small_network() -> bytes:
    """Build a convolution with a fused ADD, whose output of 4 channels is copied to the model's."""
    b = Builder()
    x = b.input(np.float32, (1, 8, 8, 3))
    y = b.tensor(np.float32, (1, 8, 8, 4))
    b.operator(Op.ADD, [convolution(b, x, 3, 4, 3), b.constant(np.ones(4, np.float32))], [y])
    return b.write([y])


def two_partitions() -> bytes:
    """CONV_2D, RELU | REVERSE_SEQUENCE | CONV_2D, SPACE_TO_DEPTH, ADD."""
    b = Builder()
    x = b.input(np.float32, (1, 8, 8, 5))
    active, turned = (b.tensor(np.float32, (1, 8, 8, 6)) for _ in range(2))
    b.operator(Op.RELU, [convolution(b, x, 5, 6, 3)], [active])
    lengths = b.constant(np.array([2], np.int32))
    b.operator(Op.REVERSE_SEQUENCE, [active, lengths], [turned], {"seq_dim": 1, "batch_dim": 0})
    deep, total = (b.tensor(np.float32, (1, 4, 4, 64)) for _ in range(2))
    b.operator(Op.SPACE_TO_DEPTH, [convolution(b, turned, 6, 16, 3)], [deep], {"block_size": 2})
    b.operator(Op.ADD, [deep, deep], [total])
    return b.write([total])
