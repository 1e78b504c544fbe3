"""The backends that every operator case runs on."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.needs import absent
from tests.runtime import guard_zones, kernel_checker
from tests.runtime.ops.cases import CPU, Backend, Case, operators, types
from tests.runtime.ops.families import asked

GPU = "opencl:fp32"
GROUPS = "opencl:groups"


@pytest.fixture(scope="session", autouse=True)
def zones() -> Iterator[None]:
    """Guard zones around every buffer of the delegate, where the environment asks for them."""
    if not guard_zones.wanted():
        yield
        return
    with guard_zones.guard_zones():
        yield


@pytest.fixture(scope="session", autouse=True)
def checker() -> Iterator[None]:
    """Kernels compiled where they are checked, in a run under the kernel checker."""
    if not kernel_checker.wanted():
        yield
        return
    with kernel_checker.compiled_here():
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a run under the kernel checker does not ask for, once `-k` and `-m` have chosen."""
    left = kernel_checker.left_out([item.nodeid for item in items])
    config.hook.pytest_deselected(items=[items[place] for place in sorted(left)])
    items[:] = [item for place, item in enumerate(items) if place not in left]


KNOWN = pytest.StashKey[set[object]]()
"""The operators of cases that the default suite runs on the delegate, and the types of each test's cases."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave to the exhaustive suite what the delegate computes in a case of operators that others have, and
    of types that the test has in others.

    The kernels of each case take most of a second to compile; what it refuses compiles none.
    """
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    if GPU not in (given.get("backend"), given.get("gpu")):
        return
    case = given.get("case")
    if isinstance(case, Case) and case.refused:
        return
    test, known = item.nodeid.partition("[")[0], item.config.stash.setdefault(KNOWN, set())
    of = {operators(case), (test, types(case))} if isinstance(case, Case) else {test}
    if of <= known:
        item.add_marker(pytest.mark.exhaustive)
    known |= of


@pytest.fixture(params=["cpu", GPU, pytest.param(GROUPS, marks=pytest.mark.exhaustive)])
def backend(request: pytest.FixtureRequest) -> Backend:
    return CPU if request.param == "cpu" else request.getfixturevalue(FIXTURES[request.param])


@pytest.fixture(scope="module", params=[GPU, pytest.param(GROUPS, marks=pytest.mark.exhaustive)])
def gpu(request: pytest.FixtureRequest) -> Backend:
    """Return the delegate of each device class, for tests of more than one operator."""
    found: Backend = request.getfixturevalue(FIXTURES[request.param])
    return found


@pytest.fixture(scope="module")
def units(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """Return the delegate, with those of the file's cases that it takes."""
    return delegate(request, tmp_path_factory, GPU)


@pytest.fixture(scope="module")
def groups(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """Return the same with the kernels of work-groups that a GPU gets."""
    return delegate(request, tmp_path_factory, GROUPS, device_class="gpu")


FIXTURES = {GPU: "units", GROUPS: "groups"}


def delegate(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, name: str, **changed: str
) -> Backend:
    from delegate_farm import load_delegate
    from runtime.errors import DeviceError

    # The workers of one run share their kernels.
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "opencl-cache"
    options = {"precision": "fp32", "tuning": "none", "persistent": "off", "cache_dir": str(folder)}
    # What is asked here is whether a kernel is right, not whether so small a tensor is worth it.
    options["cost_aware_partitioning"] = False
    try:
        loaded = load_delegate("gpu", options | changed)
    except DeviceError as error:
        absent(f"no OpenCL device: {error}")
    if kernel_checker.wanted():
        assert loaded.describe()["platform"] == "Oclgrind", "nothing else checks"
    cases = [case for case in asked(request, "case", backend=name) if isinstance(case, Case)]
    return Backend.of(name, loaded, [case for case in cases if not case.refused])
