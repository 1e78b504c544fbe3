"""Scratch memory that the operators of one plan use one after another."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from runtime.ops.support.value import Array, Shape

SCRATCH_BYTES = 64 << 20
_ALIGNMENT = 64


class Scratch:
    """Memory that operators use one after another. Pages are touched only where a kernel writes."""

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self._size = size
        self._memory: Array | None = None
        self._used = 0

    def begin(self) -> None:
        """The next operator starts: it may reuse what the one before it had."""
        self._used = 0

    def take(self, shape: Shape, dtype: Any) -> Array:
        """An uninitialised array that is valid during one run of the current operator."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if self._used + size > self._size:
            return np.empty(shape, dtype)
        if self._memory is None:
            self._memory = np.empty(self._size, np.uint8)
        start = self._used + -(self._memory.ctypes.data + self._used) % _ALIGNMENT
        self._used = start + size
        if self._used > self._size:
            return np.empty(shape, dtype)
        taken: Array = self._memory[start : start + size].view(dtype).reshape(shape)
        return taken
