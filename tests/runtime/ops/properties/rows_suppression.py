"""Suppression of overlapping boxes against LiteRT's kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import Arg, Out, const
from tests.runtime.ops.properties.rows import Built, Row, within
from tests.runtime.ops.properties.strategies import Operands, fixed_or_fed

Op = BuiltinOperator
T = TensorType


def _rng(draw: DrawFn) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def suppression(*, soft: bool) -> Callable[[DrawFn, Operands], Built]:
    def build(draw: DrawFn, _: Operands) -> Built:
        rng, count = _rng(draw), draw(st.integers(1, 30))
        corners, sides = rng.uniform(0, 1, (count, 2)), rng.uniform(-0.1, 0.5, (count, 2))
        boxes = np.hstack([corners, corners + sides]).astype(np.float32)
        scores = rng.uniform(0, 1, count).round(draw(st.sampled_from([1, 7]))).astype(np.float32)
        most = draw(st.integers(1, 40))
        limits = [draw(st.sampled_from(v)) for v in ([0.1, 0.3, 0.5, 0.9], [0.0, 0.2, 0.6], [0.0, 0.2, 0.7])]
        args = [Arg(boxes), Arg(scores), fixed_or_fed(draw, most, np.int32)]
        args += [const(v) for v in limits[: 3 if soft else 2]]
        return args, [Out(np.int32), *([Out()] if soft else []), Out(np.int32)], {}

    return build


ROWS = [
    Row("hard", Op.NON_MAX_SUPPRESSION_V4, (T.FLOAT32,), suppression(soft=False)),
    Row("soft", Op.NON_MAX_SUPPRESSION_V5, (T.FLOAT32,), suppression(soft=True), within()),
]
