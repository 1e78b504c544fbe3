"""Operators whose body is a subgraph of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.model.graph import Model, Subgraph
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.writer import write_model
from tests.runtime.models import Arg, Builder
from tests.runtime.ops.cases import Case


def with_body(
    name: str, opcode: Op, args: Sequence[Arg], options: dict[str, Any], body: Op | None, dtype: Any
) -> Case:
    """One operator whose body, subgraph 1, joins two scalars; without `body` it returns the second."""
    main, inner = Builder(), Builder()
    inputs = [main.input(a.value.dtype, a.value.shape) for a in args]
    y = main.tensor(dtype)
    main.operator(opcode, inputs, [y], options)
    left, right = inner.input(dtype, ()), inner.input(dtype, ())
    result = right
    if body is not None:
        result = inner.tensor(dtype)
        inner.operator(body, [left, right], [result])
    joined = Subgraph(1, "body", tuple(inner.tensors), (left, right), (result,), tuple(inner.operators))
    model = main.model([y])
    model = Model(3, "test", (*model.subgraphs, joined))
    return Case(name, write_model(model), tuple(a.value for a in args))


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Arg:
    return Arg(np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype))
