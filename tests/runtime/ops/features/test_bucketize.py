"""BUCKETIZE against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out
from tests.runtime.ops.cases import CPU, Case, case, check


def buckets(name, values, dtype, boundaries) -> Case:
    return case(
        name, Op.BUCKETIZE, [Arg(np.array(values, dtype))], [Out(np.int32)], {"boundaries": boundaries}
    )


CASES = [
    buckets("float32", [-1, 0.5, 2, 2.5, 9, np.nan, np.inf], np.float32, [0.0, 2.0, 2.5]),
    buckets("float64", [-1, 0.1, 2, 2.5, 9], np.float64, [0.1, 2.0, 2.5]),
    buckets("int32", [-1, 2**24 + 1, 3], np.int32, [0.0, 2.0, 2.0**24]),
    buckets("int64", [-1, 2**40, 3], np.int64, [0.0, 2.0]),
    buckets("no_boundaries", [1, 2], np.float32, []),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_intervals_are_those_of_litert(case):
    check(case, CPU)
