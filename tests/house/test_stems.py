"""One stem, four rooms: an operator family is named alike as CPU kernel, lowering, OpenCL file and test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needs import REPOSITORY

OPS = REPOSITORY / "runtime/ops"
TESTS = REPOSITORY / "tests/runtime/ops"
OPENCL = REPOSITORY / "runtime/delegates/gpu"

MODULES_WITHOUT_A_TEST = {
    "support/type_sets": "tuples of types alone; docs/operators.md is written from them and tested",
}
TESTS_WITHOUT_A_MODULE = {
    "properties/properties": "the rows of all families",
    "properties/computed_operands": "the rows of all families",
}
LOWERINGS_WITHOUT_OPERATORS = {"spec": "what a lowering is"}
KERNELS_WITHOUT_OPERATORS = {
    "common": "in front of every kernel",
    "layers": "the entry of a program on a CPU device",
    "enqueued": "the entry of one function on a GPU",
    "probe": "what a driver's compiler is tried with",
}


def _stems(folder: Path, pattern: str) -> list[str]:
    """`kind/stem` of the files one folder down."""
    found = sorted(path for path in folder.glob(f"*/{pattern}") if path.stem != "__init__")
    return [f"{path.parent.name}/{path.stem}" for path in found]


MODULES = _stems(OPS, "*.py")
FAMILIES = {name for module in MODULES for name in module.split("/")} - {"support"}
"""Families and kinds: the GPU has one lowering for a whole kind (`elementwise`)."""


def _top(folder: Path, suffix: str) -> list[str]:
    """Files and folders of families in a room of the delegate."""
    names = {path.stem for path in folder.iterdir() if path.suffix == suffix or path.is_dir()}
    return sorted(name for name in names if not name.startswith("__"))


@pytest.mark.parametrize("module", MODULES)
def test_every_module_of_operators_has_a_test_of_its_stem(module):
    kind, stem = module.split("/")
    has_test = (TESTS / kind / f"test_{stem}.py").is_file()
    assert has_test != (module in MODULES_WITHOUT_A_TEST), "a test, or a reason why there is none"


def test_every_test_in_a_folder_of_operators_has_a_module_of_its_stem():
    tests = {name.replace("/test_", "/") for name in _stems(TESTS, "test_*.py")}
    assert tests - set(MODULES) == set(TESTS_WITHOUT_A_MODULE)


def test_every_lowering_has_the_stem_of_an_operator_family():
    assert set(_top(OPENCL / "lowering", ".py")) - FAMILIES == set(LOWERINGS_WITHOUT_OPERATORS)


def test_every_opencl_file_has_the_stem_of_an_operator_family():
    """A variant carries its family's name in front: `reduce_rows.cl` is of `reduce`."""
    files = _top(OPENCL / "kernels", ".cl")
    of_families = {name for name in files if any(f"{name}_".startswith(f"{f}_") for f in FAMILIES)}
    assert set(files) - of_families == set(KERNELS_WITHOUT_OPERATORS)


def test_a_family_with_a_folder_of_lowerings_has_one_of_kernels():
    rooms = [
        {path.name for path in (OPENCL / name).iterdir() if path.is_dir()} for name in ("lowering", "kernels")
    ]
    assert rooms[0] - {"__pycache__"} == rooms[1]
