"""Scratch memory that the operators of one plan use one after another."""

import math
from typing import Any

import numpy as np

from runtime.ops.support.value import Array, Shape

SCRATCH_BYTES = 64 << 20
"""Bytes of the memory that all operators of a plan share. Chosen: what does not fit is allocated by itself
while preparing, which costs memory for each operator but is never an error."""

_ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register (AVX-512). Less would let vector loads cross lines."""


class Scratch:
    """Memory that operators use one after another. The system maps its pages only where a kernel writes."""

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self._size = size
        self._memory: Array | None = None
        self._used = 0

    def begin(self) -> None:
        """Start the next operator: it may reuse the memory of the one before it."""
        self._used = 0

    def take(self, shape: Shape, dtype: Any) -> Array:
        """Return an uninitialised array, aligned, whose values last for one run of the current operator."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if self._used + size > self._size:
            return np.empty(shape, dtype)
        if self._memory is None:
            self._memory = np.empty(self._size, np.uint8)
        start = self._used + -(self._memory.ctypes.data + self._used) % _ALIGNMENT
        self._used = start + size
        # Aligning may have moved the end beyond the memory.
        if self._used > self._size:
            return np.empty(shape, dtype)
        taken: Array = self._memory[start : start + size].view(dtype).reshape(shape)
        return taken
