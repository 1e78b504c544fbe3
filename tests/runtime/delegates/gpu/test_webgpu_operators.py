"""Every operator case that the backend of WebGPU takes, on adapters of Vulkan and OpenGL, against LiteRT."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.errors import FarmRuntimeError
from tests.needs import REPOSITORY
from tests.runtime.delegates.gpu.test_webgpu import NARROW, check, delegate_on
from tests.runtime.ops.cases import Case

pytestmark = pytest.mark.exhaustive

OPERATORS = REPOSITORY / "tests" / "runtime" / "ops"

LEAST = {
    "elementwise": 65,
    "image": 15,
    "matmul": 110,
    "movement": 50,
    "reduction": 77,
    "test_special_values.py": 95,
}
"""Folder or file → the fewest of its cases that run here, so that a refusal of everything is a failure."""

INEXACT = {"COS", "SIN", "HARD_SWISH", "LOG", "FLOOR_MOD", "POW", "POW_-1"}
"""Cases with denormals, or with numbers beyond 2^24 in a period, which WGSL leaves to the driver."""


def cases_of(path: Path) -> list[Case]:
    """Return the cases in the tables of a test file, each name once."""
    module = import_module(".".join(path.relative_to(REPOSITORY).with_suffix("").parts))
    tables = [table for table in vars(module).values() if isinstance(table, list | tuple)]
    found = {case.name: case for table in tables for case in table if isinstance(case, Case)}
    return [
        case for name, case in found.items() if path.name != "test_special_values.py" or name not in INEXACT
    ]


def is_taken(case: Case, delegate: GpuDelegate) -> bool:
    """Whether the delegate takes every operator; a case that our reader refuses is none."""
    try:
        interpreter = Interpreter(model_content=case.model, experimental_delegates=[delegate])
    except FarmRuntimeError:
        return False
    assert interpreter.delegation is not None
    return not interpreter.delegation.fallbacks


CLASSES = (("Vulkan", "auto"), ("Vulkan", "gpu"), ("OpenGL", "auto"))


@pytest.fixture(scope="module", params=CLASSES, ids="-".join)
def delegate(request: pytest.FixtureRequest) -> GpuDelegate:
    adapter, device_class = request.param
    return delegate_on(adapter, device_class=device_class)


@pytest.mark.parametrize("place", LEAST)
def test_every_case_that_is_taken_matches_litert(delegate: GpuDelegate, place: str) -> None:
    found = OPERATORS / place
    files = [found] if found.suffix else sorted(found.rglob("test_*.py"))
    count = 0
    for path in files:
        taken = tuple(case for case in cases_of(path) if is_taken(case, delegate))
        if taken:
            check(delegate, taken)
        count += len(taken)
    assert count >= LEAST[place]


WITH_WEIGHTS = {"conv": 20, "conv_3d": 15, "depthwise_conv": 15, "fully_connected": 20, "transpose_conv": 10}
"""Family of products → the fewest of its cases that run here."""


@pytest.mark.parametrize("family", WITH_WEIGHTS)
@pytest.mark.parametrize(
    ("adapter", "precision"), [("Vulkan", "fp16"), ("Vulkan", "bf16"), ("OpenGL", "bf16")]
)
def test_every_product_of_narrow_weights_matches_litert(adapter: str, precision: str, family: str) -> None:
    narrow = delegate_on(adapter, precision=precision)
    cases = cases_of(OPERATORS / "matmul" / f"test_{family}.py")
    taken = tuple(case for case in cases if is_taken(case, narrow))
    check(narrow, taken, NARROW[precision])
    assert len(taken) >= WITH_WEIGHTS[family]
