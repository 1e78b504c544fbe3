"""BATCH_MATMUL in float, against LiteRT's reference kernels; of levels, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ShapeError
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Arg, Builder, Out, one_operator, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, constant, random
from tests.runtime.ops.gpu_expectations import TAKES

BATCH_MATMUL = BuiltinOperator.BATCH_MATMUL


def matmul(name: str, x: tuple[int, ...], z: tuple[int, ...], *, fixed: str = "", **options: bool) -> Case:
    """Operands of shapes `x` and `z`; the one that `fixed` names is constant."""
    args = [random(*x), random(*z, seed=1)]
    given = {"adj_x": False, "adj_y": False, **options}
    kept = [constant(arg) if letter == fixed else arg for letter, arg in zip("xz", args, strict=True)]
    return case(name, BATCH_MATMUL, kept, options=given)


def turned(
    batches: tuple[tuple[int, ...], tuple[int, ...]], m: int, k: int, n: int, fixed: str = ""
) -> Iterator[Case]:
    """[m, k] by [k, n] in batches, with all four combinations of the adjoints."""
    for adj_x, adj_y in product((False, True), repeat=2):
        x = (*batches[0], k, m) if adj_x else (*batches[0], m, k)
        z = (*batches[1], n, k) if adj_y else (*batches[1], k, n)
        name = f"{'x'.join(map(str, x))}_{'x'.join(map(str, z))}_{adj_x:d}{adj_y:d}{fixed}"
        yield matmul(name, x, z, fixed=fixed, adj_x=adj_x, adj_y=adj_y)


def attention(heads: int, length: int, size: int) -> Case:
    """Scaled products of queries and keys, masked, as weights of values: [2, heads, length, size] each."""
    build = Builder()
    args = [random(2, heads, length, size, seed=seed) for seed in range(3)]
    mask = np.where(np.arange(length) < length - 2, 0.0, -100.0).astype(np.float32)
    query, key, value, masked = (
        build.input(np.float32, v.shape) for v in (*(arg.value for arg in args), mask[None, None, None])
    )
    scores, scaled, added, weights, y = (build.tensor(np.float32) for _ in range(5))
    build.operator(BATCH_MATMUL, [query, key], [scores], {"adj_x": False, "adj_y": True})
    build.operator(BuiltinOperator.MUL, [scores, build.constant(np.float32(size**-0.5))], [scaled])
    build.operator(BuiltinOperator.ADD, [scaled, masked], [added])
    build.operator(BuiltinOperator.SOFTMAX, [added], [weights], {"beta": 1.0})
    build.operator(BATCH_MATMUL, [weights, value], [y], {"adj_x": False, "adj_y": False})
    inputs = (*(arg.value for arg in args), mask[None, None, None])
    return Case(f"attention_{heads}_{length}_{size}", build.write([y]), inputs, refused=TAKES)


CASES = [
    matmul("matrices", (5, 7), (7, 3)),
    matmul("batches", (2, 3, 5, 7), (2, 3, 7, 4)),
    matmul("constant", (2, 5, 7), (7, 4), fixed="z"),
    matmul("broadcast", (2, 1, 5, 7), (3, 7, 4)),
    matmul("adjoint_left", (2, 7, 5), (2, 7, 4), adj_x=True),
    matmul("adjoint_right", (2, 5, 7), (2, 4, 7), adj_y=True),
    matmul("adjoint_both", (2, 7, 5), (2, 4, 7), fixed="z", adj_x=True, adj_y=True),
    matmul("deep", (1, 2, 3000), (3000, 3)),
    *turned(((), ()), 1, 17, 255),
    *turned(((), ()), 255, 1, 5),
    *turned(((), ()), 5, 255, 1),
    *turned(((3,), (3,)), 17, 5, 3),
    *turned(((4,), (4,)), 17, 32, 48),
    *turned(((2,), (1,)), 7, 17, 33),
    *turned(((), (2,)), 7, 17, 33),
    *turned(((1, 2, 3), (2, 1, 3)), 3, 5, 7),
    *turned(((2, 1, 1), (2, 3)), 17, 16, 17),
    *turned(((2, 3), ()), 5, 7, 17, "z"),
    *turned(((2, 1), (1, 3)), 5, 17, 33, "z"),
    *turned(((3,), (2, 1)), 5, 17, 19, "x"),
    *turned(((), ()), 33, 17, 19, "x"),
    *turned(((2, 3), (2, 3)), 130, 64, 130),
    attention(3, 17, 5),
    attention(2, 64, 32),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_match_litert(case, backend):
    check(case, backend)


def levels(
    x: tuple[int, ...],
    z: tuple[int, ...],
    dtype: type[np.integer[Any]] = np.int8,
    fixed: str = "",
    zeros: tuple[int, int] = (-9, 21),
    **adjoints: bool,
) -> Case:
    """Operands of levels; the one that `fixed` names is constant. The sums use most of the result's range."""
    rng, bounds, is_narrow = np.random.default_rng(4), np.iinfo(dtype), dtype is np.int8
    scale, zeros = (0.05, zeros) if is_narrow else (0.001, (0, 0))
    args = [
        Arg(rng.integers(bounds.min, bounds.max, shape, endpoint=True).astype(dtype), q, letter == fixed)
        for letter, shape, q in zip("xz", (x, z), (per_tensor(scale, zero) for zero in zeros), strict=True)
    ]
    depth = x[-2 if adjoints.get("adj_x") else -1]
    out = Out(dtype, per_tensor(scale * scale * bounds.max * depth**0.5, 5 if is_narrow else 0))
    chosen = {"adj_x": False, "adj_y": False, **adjoints}
    name = f"levels_{np.dtype(dtype).name}_{'x'.join(map(str, x))}_{'x'.join(map(str, z))}_{fixed}"
    return case(name + "".join(sorted(adjoints)), BATCH_MATMUL, args, [out], chosen, 3)


LEVELS = [
    *(
        made
        for dtype in (np.int8, np.int16)
        for made in (
            levels((2, 3, 5, 40), (1, 3, 40, 6), dtype),
            levels((2, 3, 40, 5), (1, 3, 6, 40), dtype, adj_x=True, adj_y=True),
            levels((2, 3, 5, 40), (1, 3, 6, 40), dtype, "z", adj_y=True),
        )
    ),
    levels((3, 49, 32), (3, 32, 49), zeros=(0, -128)),
    levels((3, 49, 49), (3, 70, 49), adj_y=True, zeros=(127, 127)),
    levels((2, 1, 17, 67), (3, 67, 130), zeros=(-128, 0)),
    levels((37, 19), (19, 33), fixed="x"),
    levels((1, 3), (3, 200)),
]


@pytest.mark.parametrize("case", LEVELS, ids=str)
def test_products_of_levels_are_those_of_the_reference_kernels(case):
    check(case, CPU)


def test_matrices_that_do_not_fit_are_refused():
    model = one_operator(BATCH_MATMUL, [random(2, 3), random(4, 5)], options={"adj_x": False, "adj_y": False})
    with pytest.raises(ShapeError, match="operator 0 BATCH_MATMUL"):
        Interpreter(model_content=model).allocate_tensors()
