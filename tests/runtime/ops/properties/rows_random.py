"""Random numbers against LiteRT's kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import Arg, Out, const, one_operator
from tests.runtime.ops.properties.examples import Example
from tests.runtime.ops.properties.rows import Row, within
from tests.runtime.ops.properties.strategies import Operands, shapes

Op = BuiltinOperator
T = TensorType


def _rng(draw: DrawFn) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def numbers(opcode: Op) -> Callable[[DrawFn, Operands], Example]:
    """Draw a shape and two seeds, not both zero; one run, for the next run goes on in the stream."""

    def build(draw: DrawFn, _: Operands) -> Example:
        options = {"seed": draw(st.integers(1, 2**62)), "seed2": draw(st.integers(0, 2**62))}
        args = [const(draw(shapes(1, 3, 9)), np.int32)]
        return Example(one_operator(opcode, args, [Out()], options), (), runs=1)

    return build


def multinomial(draw: DrawFn, _: Operands) -> Example:
    logits = _rng(draw).normal(0, 2, (draw(st.integers(1, 3)), draw(st.integers(1, 9)))).astype(np.float32)
    options = {"seed": draw(st.integers(1, 2**31)), "seed2": draw(st.integers(0, 2**31))}
    args = [Arg(logits), const(draw(st.integers(1, 20)), np.int32)]
    out = Out(draw(st.sampled_from([np.int32, np.int64])))
    return Example(one_operator(Op.MULTINOMIAL, args, [out], options), (logits,), runs=1)


ROWS = [
    Row("seeded", Op.RANDOM_UNIFORM, (T.INT32,), numbers(Op.RANDOM_UNIFORM), within()),
    Row("seeded", Op.RANDOM_STANDARD_NORMAL, (T.INT32,), numbers(Op.RANDOM_STANDARD_NORMAL), within()),
    Row("seeded", Op.MULTINOMIAL, (T.FLOAT32,), multinomial),
]
