"""Operators that choose, place and count elements: gather, scatter, segments, top-k, where, ranges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import Arg, Out
from tests.runtime.ops.properties import types as t
from tests.runtime.ops.properties.rows import PLAIN, Built, Row, of_terms
from tests.runtime.ops.properties.strategies import Operands, fixed_or_fed, index_type, shapes

Op = BuiltinOperator
T = TensorType


def indices(draw: DrawFn, shape: Sequence[int], size: int, *, narrow: bool = True) -> np.ndarray:
    """Draw indices below `size`, of a type that LiteRT takes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = [np.int32, np.int64, *([np.int16] if narrow else [])]
    return rng.integers(0, size, shape).astype(draw(st.sampled_from(kinds)))


def gather(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 4, 4))
    axis = draw(st.integers(0, len(x) - 1))
    batch = draw(st.integers(0, axis))
    if o.type is T.STRING:
        x, axis, batch = x[:1], 0, 0
    places = indices(draw, (*x[:batch], *draw(shapes(1 if o.type is T.STRING else 0, 2, 3))), x[axis])
    if o.type is T.STRING:
        places = places.reshape(-1).astype(np.int32)
    args = [o.arg(*x), Arg(places, constant=draw(st.booleans()))]
    return args, [o.out()], {"axis": axis - draw(st.sampled_from([0, len(x)])), "batch_dims": batch}


def gather_nd(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 4, 4))
    depth = draw(st.integers(1, len(x)))
    lead = draw(shapes(1, 2, 3))
    kind = draw(st.sampled_from([np.int16, np.int32, np.int64]))
    places = np.stack([indices(draw, lead, n).astype(kind) for n in x[:depth]], axis=-1)
    return [o.arg(*x), Arg(places, constant=draw(st.booleans()))], [o.out()], {}


def scatter_nd(draw: DrawFn, o: Operands) -> Built:
    y = draw(shapes(1, 4, 4))
    depth = draw(st.integers(1, len(y)))
    lead = draw(shapes(1, 2, 3))
    places = np.stack([indices(draw, lead, n).astype(np.int32) for n in y[:depth]], axis=-1)
    fixed = draw(st.booleans())
    args = [Arg(places, constant=fixed), o.arg(*lead, *y[depth:], low=-1, high=1, finite=True)]
    if o.dtype.kind == "f":
        args[1] = Arg(np.clip(args[1].value, -1, 1))
    return [*args, fixed_or_fed(draw, y, np.int32)], [o.out()], {}


def sparse_to_dense(draw: DrawFn, o: Operands) -> Built:
    y = draw(shapes(1, 4, 4))
    count = draw(st.integers(1, 4))
    kind = index_type(draw)
    places = np.stack([indices(draw, (count,), n) for n in y], axis=-1).astype(kind)
    if len(y) == 1 and draw(st.booleans()):
        places = places[:, 0]
    values = o.arg(count) if draw(st.booleans()) else o.arg()
    args = [fixed_or_fed(draw, places, kind), fixed_or_fed(draw, y, kind), values, o.arg()]
    return args, [o.out()], {"validate_indices": False}


def top(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 3, 9))
    k = draw(st.integers(1, x[-1]))
    values = o.array(*x)
    if values.dtype.kind == "f":
        values = np.nan_to_num(values)
    return [Arg(values), fixed_or_fed(draw, k, np.int32)], [o.out(), Out(np.int32)], {}


def unique(draw: DrawFn, o: Operands) -> Built:
    result = draw(st.sampled_from([T.INT32, T.INT64]))
    values = o.array(draw(st.integers(1, 30)))
    if draw(st.booleans()):
        values = values[np.zeros_like(values, np.intp)]
    if values.dtype.kind == "f":
        values = np.nan_to_num(values)
    out = Out(np.int64 if result is T.INT64 else np.int32)
    return [Arg(values)], [o.out(), out], {"idx_out_type": result}


def where(draw: DrawFn, o: Operands) -> Built:
    """At least one element is not zero: LiteRT's interpreter does not hand out empty tensors."""
    values = o.array(*draw(shapes(1, 5, 4)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = np.where(rng.random(values.shape) < 0.4, np.zeros((), values.dtype), values).astype(values.dtype)
    values.reshape(-1)[0] = 1
    return [Arg(values)], [Out(np.int64)], {}


def one_hot(draw: DrawFn, o: Operands) -> Built:
    x, depth = draw(shapes(0, 3, 4)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    places = rng.integers(-2, depth + 2, x).astype(index_type(draw))
    args = [Arg(places), fixed_or_fed(draw, depth, np.int32), o.arg(), o.arg()]
    return args, [o.out()], {"axis": draw(st.integers(-1, len(x)))}


def segment_sum(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 3, 5))
    steps = [draw(st.integers(0, 1)) for _ in range(x[0])]
    ids = np.cumsum([0, *steps[1:]]).astype(np.int32)
    return [_small(o, x), Arg(ids)], [o.out()], {}


def unsorted_segment(draw: DrawFn, o: Operands) -> Built:
    x, count = draw(shapes(1, 3, 5)), draw(st.integers(1, 5))
    lead = draw(st.integers(1, len(x)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ids = rng.integers(-1, count, x[:lead]).astype(np.int32)
    return [_small(o, x), Arg(ids), fixed_or_fed(draw, count, np.int32)], [o.out()], {}


def _small(o: Operands, shape: Sequence[int]) -> Arg:
    """Floats whose sums and products stay finite."""
    if o.dtype.kind != "f":
        return o.arg(*shape)
    return Arg(np.clip(o.array(*shape, finite=True, low=-3, high=3), -3, 3))


def arange(draw: DrawFn, o: Operands) -> Built:
    start, count = draw(st.integers(-20, 20)), draw(st.integers(1, 12))
    step = draw(st.sampled_from([-3, -1, 1, 2, 7]))
    scale = draw(st.sampled_from([1, 0.5, 0.1])) if o.dtype.kind == "f" else 1
    values = [v * scale for v in (start, start + step * count, step)]
    fixed = draw(st.booleans())
    return [Arg(np.array(v, o.dtype), constant=fixed) for v in values], [o.out()], {}


def broadcast_args(draw: DrawFn, o: Operands) -> Built:
    whole = draw(shapes(1, 4, 5))
    pair = [
        [1 if draw(st.booleans()) else n for n in whole][draw(st.integers(0, len(whole) - 1)) :]
        for _ in range(2)
    ]
    return [fixed_or_fed(draw, p, o.dtype) for p in pair], [o.out()], {}


def bucketize(draw: DrawFn, o: Operands) -> Built:
    bounds = sorted({float(np.float32(draw(st.floats(-50, 50)))) for _ in range(draw(st.integers(1, 6)))})
    values = o.array(*draw(shapes(0, 3, 5)))
    if values.dtype.kind == "f":
        values = np.nan_to_num(values)
    return [Arg(values)], [Out(np.int32)], {"boundaries": bounds}


def bitcast(draw: DrawFn, o: Operands) -> Built:
    """To a type of another width: a last dimension comes or goes."""
    kinds = dict.fromkeys((1,), (np.int8, np.uint8)) | {
        2: (np.int16, np.uint16),
        4: (np.float32, np.int32, np.uint32),
    }
    kinds[8] = (np.float64, np.int64)
    width = draw(st.sampled_from([n for n in kinds if n <= o.dtype.itemsize * 4]))
    lead = draw(shapes(1, 2, 3))
    ratio = width // o.dtype.itemsize
    x = (*lead, ratio) if ratio > 1 else lead
    return [o.arg(*x)], [Out(draw(st.sampled_from(kinds[width])))], {}


def lookup(draw: DrawFn, o: Operands) -> Built:
    table = draw(shapes(2, 3, 5))
    ids = indices(draw, (draw(st.integers(1, 5)),), table[0]).astype(np.int32)
    return [Arg(ids), Arg(o.array(*table), constant=True)], [o.out()], {}


def cumulative(_inputs: Sequence[np.ndarray]) -> np.ndarray | float:
    """Return a bound on the sum of the magnitudes of what was drawn by `_small` and by `scatter_nd`."""
    return float(sum(np.abs(v).sum() for v in _inputs if v.dtype.kind == "f"))


SUMS = of_terms(cumulative)

ROWS = [
    Row("any", Op.GATHER, t.GATHERED, gather),
    Row("any", Op.GATHER_ND, t.GATHERED, gather_nd),
    Row("any", Op.SCATTER_ND, t.SCATTERED, scatter_nd, SUMS),
    Row("any", Op.SPARSE_TO_DENSE, t.SPARSE, sparse_to_dense),
    Row("any", Op.TOPK_V2, t.TOP, top),
    Row("any", Op.UNIQUE, t.UNIQUE, unique),
    Row("any", Op.WHERE, t.WHERE, where),
    Row("any", Op.ONE_HOT, t.HOT, one_hot),
    Row("any", Op.SEGMENT_SUM, t.SEGMENTS, segment_sum, SUMS, resolver=PLAIN),
    Row("any", Op.UNSORTED_SEGMENT_SUM, t.SEGMENTS, unsorted_segment, SUMS),
    Row("any", Op.UNSORTED_SEGMENT_PROD, t.SEGMENTS, unsorted_segment, of_terms(lambda _: 0.0)),
    Row("any", Op.UNSORTED_SEGMENT_MAX, t.SEGMENTS, unsorted_segment),
    Row("any", Op.UNSORTED_SEGMENT_MIN, t.SEGMENTS, unsorted_segment),
    Row(
        "any",
        Op.RANGE,
        (T.FLOAT32, T.INT32, T.INT64),
        arange,
        of_terms(lambda v: np.abs(v[0]) + np.abs(v[1])),
    ),
    Row("any", Op.BROADCAST_ARGS, (T.INT32, T.INT64), broadcast_args),
    Row("any", Op.BUCKETIZE, (T.FLOAT32, T.FLOAT64, T.INT32, T.INT64), bucketize),
    Row("any", Op.BITCAST, (T.FLOAT32, T.INT8, T.UINT8, T.INT16, T.INT32, T.UINT32, T.INT64), bitcast),
    Row("float", Op.EMBEDDING_LOOKUP, (T.FLOAT32, T.INT8, T.UINT8), lookup),
]
