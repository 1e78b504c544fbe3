"""SOFTMAX of int16 levels, bit for bit LiteRT's reference kernel."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check
from tests.runtime.ops.operands import whole


def softmax(name: str, levels: np.ndarray, scale: float, beta: float = 1.0) -> Case:
    args = [Arg(levels, per_tensor(scale))]
    return case(name, Op.SOFTMAX, args, [Out(np.int16, per_tensor(1 / 32768))], {"beta": beta}, version=3)


def levels(*shape: int) -> np.ndarray:
    return whole(*shape, dtype=np.int16, low=-32768, high=32768).value


CASES = [
    *(softmax(f"scale_{scale:.3g}", levels(50, 11), scale) for scale in (1e-5, 1e-4, 3e-4, 1e-3, 0.02)),
    softmax("beta", levels(20, 7), 1e-4, beta=2.5),
    softmax("one_class", levels(9, 1), 1e-3),
    softmax("many_classes", levels(3, 1000), 2e-4),
    softmax("equal", np.full((4, 8), 77, np.int16), 1e-3),
    softmax("image", levels(2, 3, 4, 5), 1e-4),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_levels_are_those_of_litert(case):
    check(case, CPU)
