"""Sums, products and extrema of segments against LiteRT's reference kernels."""

from __future__ import annotations

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.every_type import PLAIN, Movement, every_type, fed, ints, moves_as_litert

MOVEMENTS = [
    Movement(
        "rows", Op.SEGMENT_SUM, lambda v: ([v.arg(5, 2), fed([0, 0, 1, 2, 2])], [v.out()], {}), resolver=PLAIN
    ),
    *(
        Movement(
            "negative_and_empty", opcode,
            lambda v: ([v.arg(5, 2), fed([3, -1, 0, 3, 1]), ints([5])], [v.out()], {}),
        )
        for opcode in (
            Op.UNSORTED_SEGMENT_SUM, Op.UNSORTED_SEGMENT_PROD, Op.UNSORTED_SEGMENT_MAX,
            Op.UNSORTED_SEGMENT_MIN,
        )
    ),
]  # fmt: skip


@every_type(MOVEMENTS)
def test_every_type_moves_as_litert_does(movement):
    moves_as_litert(movement)
