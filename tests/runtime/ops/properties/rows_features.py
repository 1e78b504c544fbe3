"""Spectra, tables, projections and words against LiteRT's kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.graph import Quantization
from runtime.model.schema import BuiltinOperator, CombinerType, LSHProjectionType, TensorType
from tests.runtime.models import Arg, Out, const, one_operator
from tests.runtime.ops.properties.examples import Example
from tests.runtime.ops.properties.rows import Built, Row, of_terms, within
from tests.runtime.ops.properties.strategies import Operands, shapes

Op = BuiltinOperator
T = TensorType


def _rng(draw: DrawFn) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def spectrum(draw: DrawFn, _: Operands) -> Built:
    sides = [2 ** draw(st.integers(0, 4)) for _ in range(2)]
    sides[1] = max(2, sides[1])
    x = (*draw(shapes(0, 2, 3)), *sides)
    values = _rng(draw).uniform(-1, 1, x).astype(np.float32)
    return [Arg(values), const(sides, np.int32)], [Out(np.complex64)], {}


def _energy(ours: np.ndarray, theirs: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
    """Within 1e-5 of the sum of the magnitudes of what is transformed."""
    sums = np.abs(inputs[0]).sum(axis=(-2, -1), keepdims=True)
    assert (np.abs(ours - theirs) <= 1e-5 * sums + 1e-7).all()


def part(draw: DrawFn, o: Operands) -> Built:
    values = _rng(draw).normal(0, 10, (*draw(shapes(1, 4, 4)), 2))
    held = (values[..., 0] + 1j * values[..., 1]).astype(o.dtype)
    return [Arg(held)], [Out(np.float32 if o.type is T.COMPLEX64 else np.float64)], {}


def embedding(draw: DrawFn, o: Operands) -> Built:
    """Rows of levels, with one scale or one each, become floats; a packed row fills whole bytes."""
    rows, columns, rng = draw(st.integers(1, 6)), 4 * draw(st.integers(1, 5)), _rng(draw)
    bounds = {T.INT8: (-128, 127), T.INT4: (-7, 7), T.INT2: (-2, 1)}[o.type]
    table = rng.integers(*bounds, (rows, columns), endpoint=True).astype(np.int8)
    scales = rng.uniform(0.01, 1, rows if draw(st.booleans()) else 1).astype(np.float32)
    form = Quantization(tuple(map(float, scales)), (0,) * len(scales))
    ids = rng.integers(0, rows, draw(st.integers(1, 5))).astype(np.int32)
    return [Arg(ids), Arg(table, form, constant=True, type=o.type)], [Out()], {}


def combined(draw: DrawFn, _: Operands) -> Built:
    rng, rows, count, depth = (
        _rng(draw),
        draw(st.integers(1, 5)),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 4)),
    )
    buckets = sorted((draw(st.integers(0, rows - 1)), draw(st.integers(0, 3))) for _ in range(count))
    args = [
        Arg(rng.integers(0, 4, count).astype(np.int32)),
        Arg(np.array(buckets, np.int32)),
        const([rows, 4], np.int32),
        Arg(rng.uniform(0.1, 2, count).astype(np.float32)),
        Arg(rng.uniform(-1, 1, (4, depth)).astype(np.float32)),
    ]
    return args, [Out()], {"combiner": draw(st.sampled_from(list(CombinerType)))}


def hash_lookup(draw: DrawFn, o: Operands) -> Built:
    keys = sorted(draw(st.sets(st.integers(-9, 9), min_size=1, max_size=6)))
    asked = [draw(st.integers(-9, 9)) for _ in range(draw(st.integers(1, 5)))]
    values = o.arg(len(keys), *draw(shapes(1, 2, 3)))
    args = [Arg(np.array(asked, np.int32)), const(keys, np.int32), values]
    return args, [o.out(), Out(np.uint8)], {}


def projection(draw: DrawFn, _: Operands) -> Built:
    rng = _rng(draw)
    kind = draw(st.sampled_from([LSHProjectionType.SPARSE, LSHProjectionType.DENSE]))
    seeds = rng.uniform(-1, 1, (draw(st.integers(1, 4)), draw(st.integers(1, 12)))).astype(np.float32)
    count = draw(st.integers(1, 5))
    items = rng.integers(0, 100, (count, draw(st.integers(1, 40)))).astype(np.int32)
    more = [Arg(rng.normal(0, 2, count).astype(np.float32))] if draw(st.booleans()) else []
    return [Arg(seeds), Arg(items), *more], [Out(np.int32)], {"type": kind}


COMPLEX = (T.COMPLEX64, T.COMPLEX128)
SUMS = of_terms(lambda values: float(np.abs(values[3]).sum() * np.abs(values[4]).max()))


def word_groups(draw: DrawFn, _: Operands) -> Example:
    """Words of any bytes between runs of white space, which may also begin and end the sentence."""
    pieces = draw(st.lists(st.sampled_from([b"a", b"be", b"see", b"\xc3\xa9", b" ", b"  ", b"\t", b"\n"])))
    options = {
        "ngram_size": draw(st.integers(1, 4)),
        "max_skip_size": draw(st.integers(0, 3)),
        "include_all_ngrams": draw(st.booleans()),
    }
    sentence = np.array([b"".join(pieces)], object)
    return Example(one_operator(Op.SKIP_GRAM, [Arg(sentence)], [Out(object)], options), (sentence,))


ROWS = [
    Row("sentence", Op.SKIP_GRAM, (T.STRING,), word_groups),
    Row("any", Op.RFFT2D, (T.FLOAT32,), spectrum, _energy),
    *(Row("any", opcode, COMPLEX, part, within()) for opcode in (Op.REAL, Op.IMAG, Op.COMPLEX_ABS)),
    Row("levels", Op.EMBEDDING_LOOKUP, (T.INT8, T.INT4, T.INT2), embedding, within(), version=5),
    Row("combined", Op.EMBEDDING_LOOKUP_SPARSE, (T.FLOAT32,), combined, SUMS),
    Row("any", Op.HASHTABLE_LOOKUP, (T.FLOAT32, T.INT32, T.INT8), hash_lookup),
    Row("any", Op.LSH_PROJECTION, (T.INT32,), projection),
]
