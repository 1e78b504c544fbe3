"""SCATTER_ND and SPARSE_TO_DENSE against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.every_type import Movement, every_type, fed, ints, moves_as_litert

MOVEMENTS = [
    Movement(
        "elements", Op.SCATTER_ND, lambda v: ([ints([[3], [0], [3]]), v.arg(3), ints([5])], [v.out()], {})
    ),
    Movement(
        "slices", Op.SCATTER_ND,
        lambda v: ([fed([[1], [1], [0]]), v.arg(3, 2, 2), fed([2, 2, 2])], [v.out()], {}),
    ),
    Movement(
        "matrix", Op.SPARSE_TO_DENSE,
        lambda v: ([ints([[0, 1], [2, 3]]), ints([3, 4]), v.arg(2), v.arg()], [v.out()], {}),
    ),
    Movement(
        "one_for_all", Op.SPARSE_TO_DENSE,
        lambda v: ([ints([1, 4], np.int64), fed([6], np.int64), v.arg(), v.arg()], [v.out()], {}),
    ),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)
