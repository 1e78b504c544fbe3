"""LOGISTIC and TANH of every int16 level, against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check

LEVELS = np.arange(-32768, 32768).astype(np.int16)


def every_level(opcode: Op, scale: float) -> Case:
    args = [Arg(LEVELS, per_tensor(scale))]
    return case(f"{opcode.name}_{scale:.6g}", opcode, args, [Out(np.int16, per_tensor(1 / 32768))], version=2)


CASES = [
    every_level(opcode, scale)
    for opcode in (Op.LOGISTIC, Op.TANH)
    for scale in (2.0**-12, 2.0**-11, 2.0**-9, 0.0003, 0.00071, 1 / 32768, 0.01)
]
"""The powers of two have multipliers of their own; the others are scaled to the table's step."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_level_is_that_of_litert(case):
    check(case, CPU)
