"""A pytest plugin that gathers the models of the operator tests as files for the fuzzers to start from.

pytest -p tests.fuzz.collect tests/runtime/ops tests/runtime/test_custom_operators.py

It keeps the smallest model of each operator, one each where it works on int8, on int16 and on anything else.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import ModelFormatError
from runtime.model.graph import Operator, Subgraph
from runtime.model.reader import read_model
from tests.fuzz.seeds import OPERATORS

MAX_BYTES = 6_000
_found: dict[str, bytes] = {}


@pytest.fixture(autouse=True, scope="session")
def _watch_models() -> Iterator[None]:
    original = Interpreter.__init__

    def init(self: Interpreter, *args: Any, **options: Any) -> None:
        if options.get("model_content") is not None:
            _keep(bytes(options["model_content"]))
        original(self, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Interpreter, "__init__", init)
        yield


def pytest_sessionfinish() -> None:
    """Write the archive; the same models make the same bytes."""
    with zipfile.ZipFile(OPERATORS, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(_found.items()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def _keep(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        return
    with suppress(ModelFormatError):
        for subgraph in read_model(data).subgraphs:
            for operator in subgraph.operators:
                name = f"{operator.name.lower()}_{_kind(operator, subgraph)}"
                if len(data) < len(_found.get(name, b" " * (MAX_BYTES + 1))):
                    _found[name] = data


def _kind(operator: Operator, subgraph: Subgraph) -> str:
    types = {subgraph.tensors[i].type.name for i in (*operator.inputs, *operator.outputs) if i >= 0}
    return next((kind for kind in ("int8", "int16") if kind.upper() in types), "other")
