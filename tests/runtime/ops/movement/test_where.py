"""WHERE and UNIQUE against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from tests.runtime.models import Out, one_operator
from tests.runtime.ops.cases import CPU, Case, check
from tests.runtime.ops.every_type import Movement, every_type, fed, moves_as_litert

MOVEMENTS = [
    Movement("cube", Op.WHERE, lambda v: ([v.arg(2, 3, 4)], [Out(np.int64)], {})),
    Movement("plain", Op.UNIQUE, lambda v: ([v.arg(9)], [v.out(), Out(np.int32)], {})),
    Movement(
        "int64", Op.UNIQUE,
        lambda v: ([v.arg(30)], [v.out(), Out(np.int64)], {"idx_out_type": TensorType.INT64}),
    ),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)


def test_a_declared_empty_output_does_not_keep_the_operator_from_running():
    model = one_operator(Op.WHERE, [fed([[1, 0], [0, 3]])], [Out(np.int64, shape=(0, 2))])
    check(Case("where", model, (np.array([[1, 0], [0, 3]], np.int32),)), CPU)
