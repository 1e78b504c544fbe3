"""Functions of quantised levels that LiteRT tabulates, at every level, against its kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check


def every_level(opcode: Op, dtype: Any, x: tuple[float, int], y: tuple[float, int], **options) -> Case:
    info = np.iinfo(dtype)
    levels = np.arange(info.min, info.max + 1).astype(dtype)
    name = f"{opcode.name}_{np.dtype(dtype).name}_{x[0]:.3g}_{x[1]}"
    return case(name, opcode, [Arg(levels, per_tensor(*x))], [Out(dtype, per_tensor(*y))], options, 2)


CASES = [
    every_level(Op.EXP, np.int8, (0.03, 5), (0.1, -128)),
    every_level(Op.EXP, np.int8, (0.1, -20), (2.0, -100)),
    every_level(Op.EXP, np.int16, (1e-4, 0), (8e-4, 0)),
    every_level(Op.LOG, np.int8, (0.02, -128), (0.04, 30)),
    every_level(Op.LOG, np.int8, (0.3, 10), (0.05, -40)),
    every_level(Op.LOG, np.int16, (1e-3, 0), (4e-4, 0)),
    every_level(Op.GELU, np.int8, (0.05, -3), (0.05, -100), approximate=False),
    every_level(Op.GELU, np.int8, (0.02, 7), (0.02, 0), approximate=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_level_is_that_of_litert(case):
    check(case, CPU)


LEVELS_16 = np.arange(-32768, 32768).astype(np.int16)


def every_level_of_16_bits(opcode: Op, scale: float) -> Case:
    args = [Arg(LEVELS_16, per_tensor(scale))]
    return case(f"{opcode.name}_{scale:.6g}", opcode, args, [Out(np.int16, per_tensor(1 / 32768))], version=2)


SIGMOIDS = [
    every_level_of_16_bits(opcode, scale)
    for opcode in (Op.LOGISTIC, Op.TANH)
    for scale in (2.0**-12, 2.0**-11, 2.0**-9, 0.0003, 0.00071, 1 / 32768, 0.01)
]
"""The powers of two have multipliers of their own; the others are scaled to the table's step."""


@pytest.mark.parametrize("case", SIGMOIDS, ids=str)
def test_sigmoids_of_every_level_are_those_of_litert(case):
    check(case, CPU)
