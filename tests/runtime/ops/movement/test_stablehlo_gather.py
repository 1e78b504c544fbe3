"""STABLEHLO_GATHER against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ModelError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out
from tests.runtime.ops.bodies import numbers
from tests.runtime.ops.cases import CPU, Case, case, check, run_ours
from tests.runtime.ops.every_type import fed


def gather(name, operand, indices, offset_dims, collapsed, index_map, vector_dim, sizes, rank) -> Case:
    options = {
        "offset_dims": offset_dims,
        "collapsed_slice_dims": collapsed,
        "start_index_map": index_map,
        "index_vector_dim": vector_dim,
        "slice_sizes": sizes,
    }
    out = Out(operand.value.dtype, shape=(1,) * rank)
    return case(name, Op.STABLEHLO_GATHER, [operand, indices], [out], options)


CUBE = numbers(3, 4, 2)
GATHERS = [
    gather("rows", numbers(5, 3), fed([[4], [0], [9]]), [1], [0], [0], 1, [1, 3], 2),
    gather("windows", CUBE, fed([[[0, 0], [1, 0]], [[2, 3], [0, 2]]]), [2, 3], [0], [1, 0], 2, [1, 2, 2], 4),
    gather("vectors_first", CUBE, fed([[0, 2], [1, 3]], np.int64), [0], [0, 1], [0, 1], 0, [1, 1, 2], 2),
    gather("int8", numbers(4, 4, dtype=np.int8), fed([[3, 3]]), [0, 1], [], [0, 1], 1, [2, 3], 3),
]  # fmt: skip


@pytest.mark.parametrize("case", GATHERS, ids=str)
def test_slices_are_those_of_litert(case):
    check(case, CPU)


def test_indices_without_a_vector_axis_are_scalars():
    """LiteRT itself does not survive an `index_vector_dim` behind the last axis, which StableHLO allows."""
    rows = numbers(5, 3)
    scalars = gather("scalars", rows, fed([4, -2, 1]), [1], [0], [0], 1, [1, 3], 2)
    np.testing.assert_array_equal(run_ours(scalars, CPU)[0], rows.value[[4, 0, 1]])


def test_slices_larger_than_the_operand_are_refused():
    broken = gather("sizes", CUBE, fed([[0]]), [1], [0], [0], 1, [9, 4, 2], 2)
    with pytest.raises(ModelError, match="slices of"):
        Interpreter(model_content=broken.model).allocate_tensors()
