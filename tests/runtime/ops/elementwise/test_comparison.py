"""Comparisons against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, const, per_tensor
from tests.runtime.ops.cases import case, check, random
from tests.runtime.ops.operands import flags, whole

BOOL = (Out(np.bool_),)
COMPARISONS = [Op.EQUAL, Op.NOT_EQUAL, Op.GREATER, Op.GREATER_EQUAL, Op.LESS, Op.LESS_EQUAL]
SPECIAL = np.array([[0.0, -0.0, np.nan, np.inf, -np.inf, 1.5]], np.float32)
LONG = np.array([-(2**63), -(2**32) - 1, -1, 0, 1, 2**32 + 1, 2**63 - 1])

CASES = [
    *(case(f"{o.name}_float", o, [Arg(SPECIAL), Arg(SPECIAL.T.copy())], BOOL) for o in COMPARISONS),
    *(case(f"{o.name}_int32", o, [whole(2, 3, 4), whole(3, 1)], BOOL) for o in COMPARISONS),
    *(
        case(
            f"{o.name}_{dtype.__name__}",
            o,
            [
                whole(40, dtype=dtype, low=low, high=low + 256, quantization=per_tensor(0.11, low + 130)),
                whole(40, 1, dtype=dtype, low=low, high=low + 256, quantization=per_tensor(0.07, low + 100)),
            ],
            BOOL,
        )
        for o in COMPARISONS
        for dtype, low in ((np.int8, -128), (np.uint8, 0))
    ),
    *(case(f"{o.name}_bool", o, [flags(4, 5), flags(5)], BOOL) for o in (Op.EQUAL, Op.NOT_EQUAL)),
    *(case(f"{o.name}_int64", o, [Arg(LONG), Arg(LONG[:, None].copy())], BOOL) for o in COMPARISONS),
    case("LESS_rank_5", Op.LESS, [random(2, 1, 3, 1, 5), random(3, 1, 4, 1, seed=1)], BOOL),
    case("EQUAL_of_one", Op.EQUAL, [whole(2, 255), Arg(np.int32(3))], BOOL),
    case("NOT_EQUAL_constant", Op.NOT_EQUAL, [whole(4, 3, 7, high=3), const(-2, np.int32)], BOOL),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_comparisons_match_litert(case, backend):
    check(case, backend)
