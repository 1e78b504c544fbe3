"""STABLEHLO_PAD, _GATHER, _SCATTER, _REDUCE_WINDOW and _RNG_BIT_GENERATOR; REDUCE_WINDOW."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.graph import Model, Subgraph
from runtime.model.schema import BuiltinOperator, ReduceWindowFunction, RngAlgorithm, TensorType
from runtime.model.writer import write_model
from tests.runtime.models import Arg, Builder, Out, const
from tests.runtime.ops.properties import types as t
from tests.runtime.ops.properties.examples import Example
from tests.runtime.ops.properties.rows import Built, Row, of_terms
from tests.runtime.ops.properties.strategies import Operands, index_type, shapes

Op = BuiltinOperator
T = TensorType
NUMBERS = (T.FLOAT32, T.INT8, T.INT32, T.INT64)


def pad(draw: DrawFn, o: Operands) -> Built:
    x = draw(shapes(1, 4, 4))
    inner = [draw(st.integers(0, 2)) for _ in x]
    spans = [n + (n - 1) * i for n, i in zip(x, inner, strict=True)]
    low = [draw(st.integers(-(n // 2), 2)) for n in spans]
    high = [draw(st.integers(-((n - 1) // 2), 2)) for n in spans]
    options = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}
    return [o.arg(*x), o.arg()], [o.out()], options


def gather(draw: DrawFn, o: Operands) -> Built:
    """Slices of any axes, some of them collapsed, at starts that may have to be moved inside."""
    x, lead = draw(shapes(1, 3, 4)), draw(shapes(1, 2, 3))
    rank = len(x)
    sizes = [draw(st.integers(1, n)) for n in x]
    mapped = draw(st.permutations(range(rank)))[: draw(st.integers(1, rank))]
    collapsed = [i for i in range(rank) if sizes[i] == 1 and draw(st.booleans())]
    kept = rank - len(collapsed)
    total = len(lead) + kept
    offsets = sorted(draw(st.permutations(range(total)))[:kept])
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    starts = rng.integers(-1, 5, (*lead, len(mapped))).astype(index_type(draw))
    options = {
        "offset_dims": offsets,
        "collapsed_slice_dims": collapsed,
        "start_index_map": list(mapped),
        "index_vector_dim": len(lead),
        "slice_sizes": sizes,
    }
    out = Out(o.dtype, type=o.type, shape=(1,) * total)
    return [o.arg(*x), Arg(starts)], [out], options


def _with_body(
    opcode: Op, args: Sequence[Arg], options: dict[str, Any], body: Op | None, o: Operands
) -> Example:
    """Subgraph 1 joins two scalars; without `body` it returns the second."""
    main, inner = Builder(), Builder()
    inputs = [main.input(a.value.dtype, a.value.shape) for a in args]
    y = main.tensor(o.dtype)
    main.operator(opcode, inputs, [y], options)
    left, right = inner.input(o.dtype, ()), inner.input(o.dtype, ())
    result = right
    if body is not None:
        result = inner.tensor(o.dtype)
        inner.operator(body, [left, right], [result])
    joined = Subgraph(1, "body", tuple(inner.tensors), (left, right), (result,), tuple(inner.operators))
    model = Model(3, "test", (*main.model([y]).subgraphs, joined))
    return Example(write_model(model), tuple(a.value for a in args))


def _small(o: Operands, *shape: int) -> Arg:
    """Whole numbers, so that sums and products of floats do not depend on their order."""
    rng = np.random.default_rng(o.draw(st.integers(0, 2**32 - 1)))
    return Arg(rng.integers(-2, 3, shape).astype(o.dtype))


_JOINS = (Op.STABLEHLO_ADD, Op.STABLEHLO_MULTIPLY, Op.STABLEHLO_MAXIMUM, Op.STABLEHLO_MINIMUM)


def scatter(draw: DrawFn, o: Operands) -> Example:
    """Whole rows, or single elements, joined with what is there."""
    x, count = draw(shapes(1, 3, 4)), draw(st.integers(1, 4))
    rank, depth = len(x), draw(st.integers(1, len(x)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    places = np.stack([rng.integers(0, n, count) for n in x[:depth]], axis=-1).astype(index_type(draw))
    options = {
        "update_window_dims": list(range(1, 1 + rank - depth)),
        "inserted_window_dims": list(range(depth)),
        "scatter_dims_to_operand_dims": list(range(depth)),
        "index_vector_dim": 1,
        "update_computation_subgraph_index": 1,
    }
    args = [_small(o, *x), Arg(places), _small(o, count, *x[depth:])]
    body = draw(st.sampled_from([None, *_JOINS]))
    return _with_body(Op.STABLEHLO_SCATTER, args, options, body, o)


def reduce_window(draw: DrawFn, o: Operands) -> Example:
    rank = draw(st.integers(1, 3))
    window, strides, base, steps = ([draw(st.integers(1, n)) for _ in range(rank)] for n in (3, 2, 2, 2))
    padding = [draw(st.integers(0, 2)) for _ in range(2 * rank)]
    reaches = [(w - 1) * s + 1 for w, s in zip(window, steps, strict=True)]
    x = [draw(st.integers(r, r + 3)) for r in reaches]
    options = {
        "window_dimensions": window,
        "window_strides": strides,
        "base_dilations": base,
        "window_dilations": steps,
        "padding": padding,
        "body_subgraph_index": 1,
    }
    start = Arg(np.array(1, o.dtype))
    body = draw(st.sampled_from([Op.ADD, Op.MAXIMUM, Op.MINIMUM] if o.type is T.INT32 else _JOINS))
    return _with_body(Op.STABLEHLO_REDUCE_WINDOW, [_small(o, *x), start], options, body, o)


def bits(draw: DrawFn, _: Operands) -> Built:
    algorithm = draw(st.sampled_from([RngAlgorithm.PHILOX, RngAlgorithm.THREEFRY, RngAlgorithm.DEFAULT]))
    words = 2 if algorithm is RngAlgorithm.THREEFRY else draw(st.sampled_from([2, 3]))
    state = np.array([draw(st.integers(0, 2**64 - 1)) for _ in range(words)], np.uint64)
    dtype = draw(st.sampled_from([np.int32, np.uint32, np.int64, np.uint64]))
    outs = [Out(np.uint64, shape=(words,)), Out(dtype, shape=draw(shapes(1, 3, 5)))]
    return [Arg(state)], outs, {"algorithm": algorithm}


def plain_window(draw: DrawFn, o: Operands) -> Built:
    """Windows that fit into the operand, without a body: the function is an option."""
    x = draw(shapes(1, 3, 6))
    strides, dilations = ([draw(st.integers(1, 3)) for _ in x] for _ in range(2))
    window = [draw(st.integers(1, (n - 1) // d + 1)) for n, d in zip(x, dilations, strict=True)]
    lists = [const(v, np.int64) for v in (window, strides, dilations)]
    functions = [f for f in ReduceWindowFunction if f is not ReduceWindowFunction.UNSUPPORTED]
    args = [_small(o, *x), _small(o), *lists]
    return args, [o.out()], {"reduce_function": draw(st.sampled_from(functions))}


EXACT = of_terms(lambda _: 0.0)

ROWS = [
    Row("any", Op.STABLEHLO_PAD, t.PADDED_INSIDE, pad),
    Row("any", Op.STABLEHLO_GATHER, (*NUMBERS, T.UINT8, T.INT16), gather),
    Row("any", Op.STABLEHLO_SCATTER, NUMBERS, scatter, EXACT),
    Row("any", Op.STABLEHLO_REDUCE_WINDOW, NUMBERS, reduce_window, EXACT),
    Row("any", Op.REDUCE_WINDOW, NUMBERS, plain_window, EXACT),
    Row("any", Op.STABLEHLO_RNG_BIT_GENERATOR, (T.UINT64,), bits),
]
