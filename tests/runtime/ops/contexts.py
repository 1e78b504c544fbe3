"""An operator by itself, as `infer` and `prepare` receive it: for the arithmetic that operators share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from runtime.model.graph import Operator, Quantization
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support.context import OpContext
from runtime.ops.support.scratch import Scratch
from runtime.ops.support.value import Value
from tests.runtime.models import TYPES


def bound(array: np.ndarray, quantization: Quantization | None = None, *, constant: bool = False) -> Value:
    """Return a tensor that holds `array`, known while planning if it is `constant`."""
    kind = TYPES[array.dtype]
    if constant:
        return Value(0, "t", kind, array.shape, quantization, constant=array)
    return Value(0, "t", kind, array.shape, quantization, array=array)


def shaped(*shape: int, kind: TensorType = TensorType.FLOAT32) -> Value:
    """Return a tensor of which only the form is known."""
    return Value(0, "t", kind, shape)


def context(
    inputs: Sequence[Value | None] = (),
    outputs: Sequence[Value] = (),
    options: Mapping[str, Any] | None = None,
    opcode: BuiltinOperator = BuiltinOperator.ADD,
    threads: int = 1,
) -> OpContext:
    """`operator 3` with these tensors."""
    operator = Operator(3, opcode, 1, (), (), dict(options or {}))
    services: Any = SimpleNamespace(num_threads=threads)
    return OpContext(operator, tuple(inputs), tuple(outputs), Scratch(1 << 20), services)
