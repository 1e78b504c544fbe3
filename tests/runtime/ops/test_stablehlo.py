"""STABLEHLO_GATHER, _SCATTER and _REDUCE_WINDOW against LiteRT: their bodies are subgraphs of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from runtime.errors import ModelError
from runtime.interpreter import Interpreter
from runtime.model.graph import Model, Subgraph
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import ReduceWindowFunction
from runtime.model.writer import write_model
from tests.runtime.models import Arg, Builder, Out, const
from tests.runtime.ops.cases import CPU, Case, case, check, run_ours


def with_body(
    name: str, opcode: Op, args: Sequence[Arg], options: dict[str, Any], body: Op | None, dtype: Any
) -> Case:
    """One operator whose body, subgraph 1, joins two scalars; without `body` it returns the second."""
    main, inner = Builder(), Builder()
    inputs = [main.input(a.value.dtype, a.value.shape) for a in args]
    y = main.tensor(dtype)
    main.operator(opcode, inputs, [y], options)
    left, right = inner.input(dtype, ()), inner.input(dtype, ())
    result = right
    if body is not None:
        result = inner.tensor(dtype)
        inner.operator(body, [left, right], [result])
    joined = Subgraph(1, "body", tuple(inner.tensors), (left, right), (result,), tuple(inner.operators))
    model = main.model([y])
    model = Model(3, "test", (*model.subgraphs, joined))
    return Case(name, write_model(model), tuple(a.value for a in args))


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Arg:
    return Arg(np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype))


def fed(values: Any, dtype: Any = np.int32) -> Arg:
    return Arg(np.asarray(values, dtype))


def gather(name, operand, indices, offset_dims, collapsed, index_map, vector_dim, sizes, rank) -> Case:
    options = {
        "offset_dims": offset_dims,
        "collapsed_slice_dims": collapsed,
        "start_index_map": index_map,
        "index_vector_dim": vector_dim,
        "slice_sizes": sizes,
    }
    out = Out(operand.value.dtype, shape=(1,) * rank)
    return case(name, Op.STABLEHLO_GATHER, [operand, indices], [out], options)


CUBE = numbers(3, 4, 2)
GATHERS = [
    gather("rows", numbers(5, 3), fed([[4], [0], [9]]), [1], [0], [0], 1, [1, 3], 2),
    gather("windows", CUBE, fed([[[0, 0], [1, 0]], [[2, 3], [0, 2]]]), [2, 3], [0], [1, 0], 2, [1, 2, 2], 4),
    gather("vectors_first", CUBE, fed([[0, 2], [1, 3]], np.int64), [0], [0, 1], [0, 1], 0, [1, 1, 2], 2),
    gather("int8", numbers(4, 4, dtype=np.int8), fed([[3, 3]]), [0, 1], [], [0, 1], 1, [2, 3], 3),
]  # fmt: skip


@pytest.mark.parametrize("case", GATHERS, ids=str)
def test_slices_are_those_of_litert(case):
    check(case, CPU)


def test_indices_without_a_vector_axis_are_scalars():
    """LiteRT itself does not survive an `index_vector_dim` behind the last axis, which StableHLO allows."""
    rows = numbers(5, 3)
    scalars = gather("scalars", rows, fed([4, -2, 1]), [1], [0], [0], 1, [1, 3], 2)
    np.testing.assert_array_equal(run_ours(scalars, CPU)[0], rows.value[[4, 0, 1]])


def scatter(name, operand, indices, updates, windows, inserted, index_map, vector_dim, body) -> Case:
    options = {
        "update_window_dims": windows,
        "inserted_window_dims": inserted,
        "scatter_dims_to_operand_dims": index_map,
        "index_vector_dim": vector_dim,
        "update_computation_subgraph_index": 1,
    }
    args = [operand, indices, updates]
    return with_body(name, Op.STABLEHLO_SCATTER, args, options, body, operand.value.dtype)


ROWS = fed([[1], [4], [1], [7]])
BODIES = [None, Op.STABLEHLO_ADD, Op.STABLEHLO_MULTIPLY, Op.STABLEHLO_MAXIMUM, Op.STABLEHLO_MINIMUM]
SCATTERS = [
    scatter(
        f"rows_{body.name if body else 'replace'}_{dtype.__name__}",
        numbers(5, 3, dtype=dtype), ROWS, numbers(4, 3, dtype=dtype, seed=1), [1], [0], [0], 1, body,
    )
    for body in BODIES
    for dtype in (np.float32, np.int8, np.int64)
] + [
    scatter("boxes", CUBE, fed([[0, 0], [1, 2]]), numbers(2, 2, 2, seed=2), [1, 2], [0], [0, 1], 1,
            Op.STABLEHLO_ADD),
    scatter("elements", CUBE, fed([[0, 3, 1], [2, 0, 0]], np.int64), numbers(2, seed=3), [], [0, 1, 2],
            [0, 1, 2], 1, None),
]  # fmt: skip


@pytest.mark.parametrize("case", SCATTERS, ids=str)
def test_scattered_updates_are_those_of_litert(case):
    check(case, CPU)


def window(name, x, body, dims, strides=None, base=None, dilations=None, padding=None) -> Case:
    rank = x.value.ndim
    options = {
        "window_dimensions": dims,
        "window_strides": strides or [1] * rank,
        "base_dilations": base or [1] * rank,
        "window_dilations": dilations or [1] * rank,
        "padding": padding or [0] * (2 * rank),
        "body_subgraph_index": 1,
    }
    start = Arg(np.array(1, x.value.dtype))
    return with_body(name, Op.STABLEHLO_REDUCE_WINDOW, [x, start], options, body, x.value.dtype)


PLANE = numbers(6, 7)
WINDOWS = [
    *(window(b.name, PLANE, b, [2, 3]) for b in (Op.ADD, Op.MUL, Op.MAXIMUM, Op.MINIMUM, Op.STABLEHLO_ADD)),
    window("strides", PLANE, Op.ADD, [2, 2], strides=[2, 3]),
    window("dilated_window", PLANE, Op.MAXIMUM, [2, 3], dilations=[3, 2]),
    window("dilated_operand", PLANE, Op.ADD, [3, 2], base=[2, 3]),
    window("padded", PLANE, Op.ADD, [3, 3], padding=[1, 1, 0, 2]),
    window("cropped", PLANE, Op.ADD, [2, 2], padding=[-1, 1, 0, -2], base=[2, 1]),
    window("int8_wraps", numbers(6, 7, dtype=np.int8), Op.MUL, [2, 2]),
    window("int32", numbers(3, 4, 5, dtype=np.int32), Op.ADD, [2, 1, 3], strides=[1, 2, 2]),
]


def plain_window(function, dtype=np.float32, dims=(2, 3), strides=(1, 1), dilations=(1, 1)) -> Case:
    lists = [const(v, np.int64) for v in (dims, strides, dilations)]
    args = [numbers(6, 7, dtype=dtype), fed(1, dtype), *lists]
    name = f"{function.name}_{np.dtype(dtype).name}_{dims}_{strides}_{dilations}"
    return case(name, Op.REDUCE_WINDOW, args, [Out(dtype)], {"reduce_function": function})


WINDOWS += [
    plain_window(f, d) for f in list(ReduceWindowFunction)[1:] for d in (np.float32, np.int32, np.uint8)
]
WINDOWS += [
    plain_window(ReduceWindowFunction.ADD, strides=(2, 3)),
    plain_window(ReduceWindowFunction.MAXIMUM, dims=(3, 2), strides=(3, 2), dilations=(2, 3)),
]


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows_are_joined_as_in_litert(case):
    check(case, CPU)


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (window("body", PLANE, Op.SUB, [2, 2]), "a body of SUB"),
        (window("zero", PLANE, Op.ADD, [2, 2], strides=[0, 1]), "a window of"),
        (scatter("map", CUBE, ROWS, numbers(4), [], [0, 1, 2], [5], 1, None), "axes"),
        (gather("sizes", CUBE, fed([[0]]), [1], [0], [0], 1, [9, 4, 2], 2), "slices of"),
    ],
    ids=lambda v: str(v) if isinstance(v, Case) else "",
)
def test_options_that_do_not_fit_are_refused(broken, text):
    with pytest.raises(ModelError, match=text):
        Interpreter(model_content=broken.model).allocate_tensors()
