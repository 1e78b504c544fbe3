"""Operands of cases that are no plain floats: integers, flags, axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from runtime.model.graph import Quantization
from tests.runtime.models import Arg


def whole(
    *shape: int,
    dtype: Any = np.int32,
    low: int = -20,
    high: int = 20,
    quantization: Quantization | None = None,
    seed: int = 5,
) -> Arg:
    """Integers of [low, high)."""
    return Arg(np.random.default_rng(seed).integers(low, high, shape).astype(dtype), quantization)


def flags(*shape: int, seed: int = 5) -> Arg:
    """Return an operand of True and False."""
    return Arg(np.random.default_rng(seed).integers(0, 2, shape).astype(np.bool_))


def axis(*values: int) -> Arg:
    """Constant axes."""
    return Arg(np.array(values, np.int32), constant=True)
