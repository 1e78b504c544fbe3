"""CUMSUM against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Out, const
from tests.runtime.ops.cases import CPU, case, check, random
from tests.runtime.ops.operands import axis, whole

EDGE_CASES = [
    case("CUMSUM -1", Op.CUMSUM, [random(3, 4), const(-1, np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize("case", EDGE_CASES, ids=str)
def test_empty_and_scalar_operands_and_negative_axes_match_litert(case):
    check(case, CPU)


CASES = [
    *(
        case(
            f"CUMSUM_{exclusive}_{reverse}",
            Op.CUMSUM,
            [random(3, 4, 2), axis(1)],
            options={"exclusive": exclusive, "reverse": reverse},
        )
        for exclusive in (False, True)
        for reverse in (False, True)
    ),
    *(
        case(
            f"{shape}_{along}_{exclusive}_{reverse}",
            Op.CUMSUM,
            [random(*shape), axis(along)],
            options={"exclusive": exclusive, "reverse": reverse},
        )
        for shape, along, exclusive, reverse in (
            ((4, 7), -1, False, False),
            ((4, 33), 1, True, False),
            ((3, 255), 1, False, True),
            ((2, 3, 5, 1), 3, True, True),
            ((2, 3, 5, 19), 0, True, True),
            ((2, 3, 1, 2, 4, 5), 4, False, True),
            ((2, 3, 1, 2, 4, 18), -2, True, False),
            ((37,), 0, True, True),
        )
    ),
    *(
        case(
            f"{dtype.__name__}_{along}_{exclusive}_{reverse}",
            Op.CUMSUM,
            [whole(3, 2, 21, dtype=dtype, low=-(2**30), high=2**30), axis(along)],
            [Out(dtype)],
            {"exclusive": exclusive, "reverse": reverse},
        )
        for dtype in (np.int32, np.int64)
        for along, exclusive, reverse in ((2, False, False), (2, True, True), (0, True, False))
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_running_sums_match_litert(case, backend):
    check(case, backend)
