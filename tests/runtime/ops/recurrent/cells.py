"""Operands of recurrent operators, slot by slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Builder, per_tensor


@dataclass
class Cell:
    """Collects an operator's inputs: float weights, or int8 ones for the hybrid form."""

    hybrid: bool = False
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    builder: Builder = field(default_factory=Builder)
    slots: dict[int, int] = field(default_factory=dict)

    def vector(self, slot: int, size: int) -> None:
        self.slots[slot] = self.builder.constant(self.rng.normal(0, 0.5, size).astype(np.float32))

    def matrix(self, slot: int, *shape: int) -> None:
        values = self.rng.normal(0, 0.4, shape).astype(np.float32)
        if not self.hybrid:
            self.slots[slot] = self.builder.constant(values)
            return
        scale = float(np.abs(values).max() / 127)
        levels = np.round(values / scale).clip(-127, 127).astype(np.int8)
        self.slots[slot] = self.builder.constant(levels, per_tensor(scale))

    def levels(self, slot: int, dtype: Any, scale: float, *shape: int, most: int | None = None) -> None:
        """Integers between -`most` and `most`, or between all that the type has."""
        bound = most or np.iinfo(dtype).max
        values = self.rng.integers(-bound, bound + 1, shape).astype(dtype)
        self.slots[slot] = self.builder.constant(values, per_tensor(scale))

    def state(self, slot: int, *shape: int, dtype: Any = np.float32, quantization: Any = None) -> None:
        self.slots[slot] = self.builder.tensor(dtype, shape, quantization, is_variable=True)

    def input(self, slot: int, *shape: int, dtype: Any = np.float32, quantization: Any = None) -> None:
        self.slots[slot] = self.builder.input(dtype, shape, quantization)

    def model(
        self, opcode: BuiltinOperator, count: int, options: Mapping[str, Any], outputs: int = 1
    ) -> bytes:
        """Build the float or hybrid operator with its first `count` slots; those left empty are left out."""
        made = [self.builder.tensor(np.float32) for _ in range(outputs)]
        return self.finish(opcode, count, made, options)

    def finish(
        self,
        opcode: BuiltinOperator,
        count: int,
        made: Sequence[int],
        options: Mapping[str, Any],
        version: int = 1,
        intermediates: Sequence[int] = (),
    ) -> bytes:
        """Write the operator into the tensors `made`."""
        inputs = [self.slots.get(i, -1) for i in range(count)]
        self.builder.operator(opcode, inputs, made, options, version, intermediates=intermediates)
        return self.builder.write(made)
