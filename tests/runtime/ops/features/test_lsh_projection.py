"""LSH_PROJECTION against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import LSHProjectionType
from tests.runtime.models import Arg, Out
from tests.runtime.ops.cases import CPU, Case, case, check


def projected(kind, items, weights=None, bits=4) -> Case:
    seeds = np.random.default_rng(8).uniform(-1, 1, (3, bits)).astype(np.float32)
    args = [Arg(seeds), Arg(items), *([] if weights is None else [Arg(weights)])]
    name = f"{kind.name}_{items.dtype.name}_{items[0].nbytes}_{'even' if weights is None else 'weighted'}"
    return case(name, Op.LSH_PROJECTION, args, [Out(np.int32)], {"type": kind})


def items(count, length, dtype=np.int32) -> np.ndarray:
    return np.random.default_rng(length).integers(0, 100, (count, length)).astype(dtype)


SPARSE, DENSE = LSHProjectionType.SPARSE, LSHProjectionType.DENSE
CASES = [
    projected(DENSE, items(5, 1)),
    projected(SPARSE, items(5, 1), np.array([1, -2, 0.5, 3, -1], np.float32)),
    projected(SPARSE, items(2, 3, np.uint8), bits=31),
    projected(DENSE, items(4, 2)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_projections_match_litert(case):
    check(case, CPU)
