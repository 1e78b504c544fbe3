"""One stem, four rooms: an operator family is named alike as CPU kernel, lowering, OpenCL file and test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needs import REPOSITORY

OPS = REPOSITORY / "runtime/ops"
TESTS = REPOSITORY / "tests/runtime/ops"
OPENCL = REPOSITORY / "runtime/delegates/gpu"

MODULES_WITHOUT_A_TEST: dict[str, str] = {}
TESTS_WITHOUT_A_MODULE = {
    "properties/properties": "the rows of all families",
    "properties/computed_operands": "the rows of all families",
}
LOWERINGS_WITHOUT_OPERATORS = {
    "spec": "what a lowering is",
    "treatment": "how an operator and its tensors are treated before they are lowered",
    "windows": "the attributes of windows over images",
}
KERNELS_WITHOUT_OPERATORS = {
    "common": "in front of every kernel",
    "layers": "runs layers by their functions' addresses",
    "called": "the entry of one function that is called by its address",
    "called_probe": "the function with which calls by address are tried",
    "enqueued": "the entry of one function that is a kernel",
    "grouped": "the entry of one function of work-groups",
    "peaks": "what a device reaches at best",
    "portable": "in front of every kernel of work-groups: functions in their subset of C",
    "portable_opencl": "in front of the same: the macros of the subset in OpenCL C",
    "halves": "in front of those that find fp16 in a buffer",
    "webgpu": "in front of every kernel that is translated for WebGPU: words of OpenCL C",
    "probe": "what a driver's compiler is tried with",
    "precision_probe": "what a device does with narrow numbers",
}


def _stems(folder: Path, pattern: str) -> list[str]:
    """`kind/stem` of the files one folder down."""
    found = sorted(path for path in folder.glob(f"*/{pattern}") if path.stem != "__init__")
    return [f"{path.parent.name}/{path.stem}" for path in found]


MODULES = _stems(OPS, "*.py")
FAMILIES = {name for module in MODULES for name in module.split("/")} - {"support"} | {"pointwise"}
"""Families and kinds: the GPU has two lowerings for a whole kind: `elementwise` has the steps that it fuses
into other kernels, `pointwise` the rest."""


def _rooms(folder: Path) -> list[Path]:
    """Return the kinds of operators that a room of the delegate has."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__")


def _families(folder: Path, suffix: str) -> list[str]:
    """`kind/stem` of files and folders of families in a room of the delegate."""
    return [
        f"{kind.name}/{path.stem}"
        for kind in _rooms(folder)
        for path in sorted(kind.iterdir())
        if (path.suffix == suffix or path.is_dir()) and not path.name.startswith("__")
    ]


def _loose(folder: Path, suffix: str) -> set[str]:
    """Stems of the files directly in a room."""
    return {path.stem for path in folder.glob(f"*{suffix}")} - {"__init__"}


def test_every_module_of_operators_has_a_test_of_its_stem():
    tests = {name.replace("/test_", "/") for name in _stems(TESTS, "test_*.py")}
    without = {module for module in MODULES if module not in tests}
    assert without == set(MODULES_WITHOUT_A_TEST), "a test, or a reason why there is none"


def test_every_test_in_a_folder_of_operators_has_a_module_of_its_stem():
    tests = {name.replace("/test_", "/") for name in _stems(TESTS, "test_*.py")}
    assert tests - set(MODULES) == set(TESTS_WITHOUT_A_MODULE)


def test_every_lowering_has_the_stem_of_an_operator_family():
    found = _families(OPENCL / "lowering", ".py")
    assert [name for name in found if name.split("/")[1] not in FAMILIES] == []
    assert _loose(OPENCL / "lowering", ".py") == set(LOWERINGS_WITHOUT_OPERATORS)


def test_every_opencl_file_has_the_stem_of_an_operator_family():
    """A variant carries its family's name in front: `reduce_rows.cl` is of `reduce`."""
    files = _families(OPENCL / "kernels", ".cl")
    stems = {name: name.split("/")[1] for name in files}
    of_families = {name for name in files if any(f"{stems[name]}_".startswith(f"{f}_") for f in FAMILIES)}
    assert set(files) - of_families == set()
    assert _loose(OPENCL / "kernels", ".cl") == set(KERNELS_WITHOUT_OPERATORS)


@pytest.mark.parametrize("room", ["lowering", "kernels"])
def test_the_kinds_of_the_delegate_are_those_of_the_cpu(room):
    assert {path.name for path in _rooms(OPENCL / room)} <= {path.name for path in _rooms(OPS)}


def test_a_family_with_a_folder_of_lowerings_has_one_of_kernels():
    rooms = [
        {f"{kind.name}/{path.name}" for kind in _rooms(OPENCL / name) for path in _rooms(kind)}
        for name in ("lowering", "kernels")
    ]
    assert rooms[0] == rooms[1]
