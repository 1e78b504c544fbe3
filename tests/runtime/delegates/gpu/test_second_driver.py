"""A family of each kind on a second OpenCL driver, Mesa's rusticl on its software rasteriser, against LiteRT.

PoCL runs one kernel for a whole partition; on every other driver each function is a kernel of its own. Needs
the package mesa-opencl-icd, or `FARM_TEST_RUSTICL=FOLDER` with the file of the driver (`rusticl.icd`).
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests import needs
from tests.oracle import run_litert
from tests.runtime.models import Arg, const
from tests.runtime.ops.cases import Case, case, compare, constant, random
from tests.runtime.ops.image.test_pool import pool
from tests.runtime.ops.matmul.test_conv import RELU, conv
from tests.runtime.ops.movement.test_concatenation import concatenation
from tests.runtime.ops.movement.test_transpose import moved

pytestmark = pytest.mark.exhaustive

LIMIT_S = 900
"""For all cases: this driver compiles slowly, and the machine may be busy."""

CASES = (
    case("add_broadcast", Op.ADD, [random(2, 3, 5, 7), constant(random(7, seed=1))]),
    case("logistic", Op.LOGISTIC, [Arg(np.float32([[np.nan, np.inf, -np.inf, -0.0, 0.5, 90, -90]]))]),
    conv("conv_3x3", (1, 9, 11, 5), (7, 3, 3, 5), activation=RELU),
    case("fully_connected", Op.FULLY_CONNECTED, [random(3, 17), constant(random(5, 17, seed=1)), None]),
    case("batch_matmul", Op.BATCH_MATMUL, [random(2, 3, 5), random(2, 5, 7, seed=1)]),
    case("softmax", Op.SOFTMAX, [random(3, 17, low=-20, high=20)], options={"beta": 1.0}),
    case("mean", Op.MEAN, [random(2, 5, 6, 7), const([1, 2], np.int32)], options={"keep_dims": True}),
    pool("max_pool", "MAX", (1, 7, 9, 5)),
    concatenation("concatenation", [(1, 4, 3), (1, 4, 20)], 2),
    moved((2, 3, 4, 5), [0, 3, 1, 2]),
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[np.ndarray]]:
    """Return the outputs of each case, by name, of one process on this driver alone."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.runtime.delegates.gpu.second_driver",
            str(tmp_path_factory.mktemp("c")),
        ],
        input=pickle.dumps([(one.model, one.inputs) for one in CASES]),
        env=os.environ | {"OCL_ICD_VENDORS": str(needs.rusticl()), "RUSTICL_ENABLE": "llvmpipe"},
        cwd=needs.REPOSITORY,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    platform, found = pickle.loads(done.stdout)
    assert platform == "rusticl"
    return {one.name: values for one, values in zip(CASES, found, strict=True)}


@pytest.mark.parametrize("one", CASES, ids=str)
def test_each_kind_of_operator_matches_litert(outputs: dict[str, list[np.ndarray]], one: Case) -> None:
    expected = run_litert(one.model, one.inputs, one.resolver)
    found = outputs[one.name]
    assert [(y.shape, y.dtype) for y in found] == [(r.shape, r.dtype) for r in expected]
    for ours, theirs in zip(found, expected, strict=True):
        compare(ours, theirs)
