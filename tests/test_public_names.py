"""`delegate_farm` offers what LiteRT's modules and the farm's Python API have, as the same objects."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import delegate_farm
from tests.needs import REPOSITORY

LITERT = sorted(
    path.stem
    for path in (REPOSITORY / "runtime/api").glob("*.py")
    if path.stem != "__init__" and find_spec(f"ai_edge_litert.{path.stem}") is not None
)
"""Modules of our API that LiteRT has, too."""


def classes_of(module: str) -> dict[str, type]:
    found = vars(import_module(module)).items()
    return {
        name: cls
        for name, cls in found
        if inspect.isclass(cls) and cls.__module__ == module and not name.startswith("_")
    }


@pytest.mark.parametrize("module", LITERT)
def test_every_class_of_a_module_of_litert_has_its_name_here(module):
    ours = classes_of(f"runtime.api.{module}")
    assert {name: getattr(delegate_farm, name) for name in ours} == ours


def test_litert_has_the_modules_that_a_script_imports():
    assert {"interpreter", "compiled_model", "tensor_buffer", "hardware_accelerator"} <= {*LITERT}


def test_every_name_is_there_for_type_checkers_too():
    source = ast.parse(Path(delegate_farm.__file__).read_text())
    imported = {
        alias.name for node in ast.walk(source) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported - {"import_module", "annotations", "TYPE_CHECKING", "Any"} == {*delegate_farm.__all__}
    assert all(hasattr(delegate_farm, name) for name in delegate_farm.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'delegate_farm' has no attribute 'Interpretor'"):
        delegate_farm.Interpretor  # noqa: B018
