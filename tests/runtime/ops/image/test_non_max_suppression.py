"""NON_MAX_SUPPRESSION_V4 and _V5 against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, const
from tests.runtime.ops.cases import CPU, Case, case, check


def boxes(count, seed, decimals=None) -> tuple[Arg, Arg]:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 1, (count, 2))
    sizes = rng.uniform(-0.1, 0.5, (count, 2))
    scores = rng.uniform(0, 1, count)
    scores = scores if decimals is None else scores.round(decimals)
    return Arg(np.hstack([corners, corners + sizes]).astype(np.float32)), Arg(scores.astype(np.float32))


def suppression(name, count, most, overlap, score, sigma=None, decimals=None, seed=0) -> Case:
    thresholds = [const(v) for v in (overlap, score) + (() if sigma is None else (sigma,))]
    outs = [Out(np.int32), *([] if sigma is None else [Out()]), Out(np.int32)]
    opcode = Op.NON_MAX_SUPPRESSION_V4 if sigma is None else Op.NON_MAX_SUPPRESSION_V5
    return case(name, opcode, [*boxes(count, seed, decimals), const(most, np.int32), *thresholds], outs)


SUPPRESSIONS = [
    suppression("few", 20, 5, 0.5, 0.1),
    suppression("padded", 20, 40, 0.2, 0.4),
    suppression("none", 10, 4, 0.5, 2.0),
    suppression("above_one", 10, 12, 1.5, 0.2),
    suppression("equal_scores", 60, 60, 0.3, 0.0, decimals=1, seed=4),
    suppression("soft", 40, 20, 1.0, 0.05, sigma=0.5, seed=2),
    suppression("soft_and_hard", 40, 40, 0.6, 0.1, sigma=0.2, seed=3),
    suppression("soft_off", 30, 10, 0.5, 0.1, sigma=0.0, decimals=1, seed=5),
]


@pytest.mark.parametrize("case", SUPPRESSIONS, ids=str)
def test_suppression_matches_litert(case):
    check(case, CPU)
