"""STABLEHLO_SCATTER against LiteRT's reference kernels. Its body is a subgraph of its own."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ModelError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.bodies import numbers, with_body
from tests.runtime.ops.cases import CPU, Case, check
from tests.runtime.ops.every_type import fed


def scatter(name, operand, indices, updates, windows, inserted, index_map, vector_dim, body) -> Case:
    options = {
        "update_window_dims": windows,
        "inserted_window_dims": inserted,
        "scatter_dims_to_operand_dims": index_map,
        "index_vector_dim": vector_dim,
        "update_computation_subgraph_index": 1,
    }
    args = [operand, indices, updates]
    return with_body(name, Op.STABLEHLO_SCATTER, args, options, body, operand.value.dtype)


CUBE = numbers(3, 4, 2)
ROWS = fed([[1], [4], [1], [7]])
BODIES = [None, Op.STABLEHLO_ADD, Op.STABLEHLO_MULTIPLY, Op.STABLEHLO_MAXIMUM, Op.STABLEHLO_MINIMUM]
SCATTERS = [
    scatter(
        f"rows_{body.name if body else 'replace'}_{dtype.__name__}",
        numbers(5, 3, dtype=dtype), ROWS, numbers(4, 3, dtype=dtype, seed=1), [1], [0], [0], 1, body,
    )
    for body in BODIES
    for dtype in (np.float32, np.int8, np.int64)
] + [
    scatter("boxes", CUBE, fed([[0, 0], [1, 2]]), numbers(2, 2, 2, seed=2), [1, 2], [0], [0, 1], 1,
            Op.STABLEHLO_ADD),
    scatter("elements", CUBE, fed([[0, 3, 1], [2, 0, 0]], np.int64), numbers(2, seed=3), [], [0, 1, 2],
            [0, 1, 2], 1, None),
]  # fmt: skip


@pytest.mark.parametrize("case", SCATTERS, ids=str)
def test_scattered_updates_are_those_of_litert(case):
    check(case, CPU)


def test_axes_that_the_operand_lacks_are_refused():
    broken = scatter("map", CUBE, ROWS, numbers(4), [], [0, 1, 2], [5], 1, None)
    with pytest.raises(ModelError, match="axes"):
        Interpreter(model_content=broken.model).allocate_tensors()
