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
