"""BATCH_MATMUL in float, against LiteRT's reference kernels; of levels, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from runtime.errors import ShapeError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Arg, Out, one_operator, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, constant, random

BATCH_MATMUL = BuiltinOperator.BATCH_MATMUL


def matmul(
    name: str, x: tuple[int, ...], z: tuple[int, ...], *, fixed: bool = False, **options: bool
) -> Case:
    right = random(*z, seed=1)
    given = {"adj_x": False, "adj_y": False, **options}
    return case(name, BATCH_MATMUL, [random(*x), constant(right) if fixed else right], options=given)


CASES = [
    matmul("matrices", (5, 7), (7, 3)),
    matmul("batches", (2, 3, 5, 7), (2, 3, 7, 4)),
    matmul("constant", (2, 5, 7), (7, 4), fixed=True),
    matmul("broadcast", (2, 1, 5, 7), (3, 7, 4)),
    matmul("adjoint_left", (2, 7, 5), (2, 7, 4), adj_x=True),
    matmul("adjoint_right", (2, 5, 7), (2, 4, 7), adj_y=True),
    matmul("adjoint_both", (2, 7, 5), (2, 4, 7), fixed=True, adj_x=True, adj_y=True),
    matmul("deep", (1, 2, 3000), (3000, 3)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products_match_litert(case):
    check(case, CPU)


def products() -> Iterator[Case]:
    for dtype, scale in ((np.int8, 0.05), (np.int16, 0.001)):
        for adj_x, adj_y, kept in ((False, False, False), (True, True, False), (False, True, True)):
            rng = np.random.default_rng(4)
            bounds = np.iinfo(dtype)
            zeros = (0, 0, 0) if dtype is np.int16 else (-9, 21, 5)
            x = (2, 3, 40, 5) if adj_x else (2, 3, 5, 40)
            z = (1, 3, 6, 40) if adj_y else (1, 3, 40, 6)
            args = [
                Arg(rng.integers(bounds.min, bounds.max, shape, endpoint=True).astype(dtype), q, fixed)
                for shape, q, fixed in (
                    (x, per_tensor(scale, zeros[0]), False),
                    (z, per_tensor(scale, zeros[1]), kept),
                )
            ]
            out = Out(dtype, per_tensor(scale * scale * bounds.max * 4, zeros[2]))
            chosen = {"adj_x": adj_x, "adj_y": adj_y}
            name = f"matmul_{np.dtype(dtype).name}_{adj_x:d}{adj_y:d}{kept:d}"
            yield case(name, BATCH_MATMUL, args, [out], chosen, 3)


@pytest.mark.parametrize("case", list(products()), ids=str)
def test_products_of_levels_are_those_of_the_reference_kernels(case):
    check(case, CPU)


def test_matrices_that_do_not_fit_are_refused():
    model = one_operator(BATCH_MATMUL, [random(2, 3), random(4, 5)], options={"adj_x": False, "adj_y": False})
    with pytest.raises(ShapeError, match="operator 0 BATCH_MATMUL"):
        Interpreter(model_content=model).allocate_tensors()
