"""The table of what the GPU delegate takes: it agrees with the delegate, and a broken promise fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.model.schema import BuiltinOperator as B
from tests.runtime.models import Builder
from tests.runtime.ops.cases import Case, case, check, random
from tests.runtime.ops.gpu_expectations import TAKEN, TAKEN_CUSTOM, TAKES

RELU = case("relu", B.RELU, [random(4, 9)])
MATRIX_DIAG = case("matrix_diag", B.MATRIX_DIAG, [random(4, 9)])


def interrupted() -> Case:
    """Two operators that the delegate takes, one that it has no kernel for, and one more that it takes."""
    build = Builder()
    x = build.input(np.float32, (4, 9))
    squared, shifted = (build.tensor(np.float32, (4, 9)) for _ in range(2))
    spread, root = (build.tensor(np.float32, (4, 9, 9)) for _ in range(2))
    build.operator(B.SQUARE, [x], [squared])
    build.operator(B.ADD, [squared, build.constant(np.float32([0.5]))], [shifted])
    build.operator(B.MATRIX_DIAG, [shifted], [spread])
    build.operator(B.SQRT, [spread], [root])
    refused = {
        "MATRIX_DIAG": "no OpenCL kernel for this operator",
        "SQRT": "supported, but in a smaller partition than the 1 that gpu may take",
    }
    return Case("interrupted", build.write([root]), (random(4, 9).value,), refused=refused)


def test_the_operators_of_the_table_are_those_of_the_delegate():
    assert set(GpuDelegate.operator_types()) == TAKEN | TAKEN_CUSTOM


def test_a_graph_of_which_the_gpu_takes_a_part_matches_litert(backend):
    check(interrupted(), backend)


@pytest.mark.parametrize("backend", ["opencl:fp32"], indirect=True)
@pytest.mark.parametrize(
    "broken",
    [
        replace(RELU, refused={"RELU": "no OpenCL kernel for this operator"}),
        replace(MATRIX_DIAG, refused=TAKES),
        replace(MATRIX_DIAG, refused={"MATRIX_DIAG": "another reason"}),
    ],
    ids=["taken after all", "refused after all", "refused for another reason"],
)
def test_a_delegate_that_does_not_do_as_the_case_says_fails_the_case(broken, backend):
    with pytest.raises(AssertionError, match="opencl:fp32 refuses"):
        check(broken, backend)
