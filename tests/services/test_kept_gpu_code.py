"""A kernel for GPUs is compiled in one run of the suite and not in the next one; another one is compiled."""

from __future__ import annotations

import sys

import pytest

from benchmarks.gpu_compilers import Compiled, ToolError, Tools
from tests.services import kept_gpu_code

FIGURES = {"sm_80": Compiled(40, 0, 0, 1024, 6, 0.75), "dg2": Compiled(32, 0, 0, 0, 8, 1 / 3)}


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Return a function that compiles, and tells what came and how often a compiler has run."""
    monkeypatch.setenv("FARM_TEST_CACHE", str(tmp_path))
    runs = []

    def compiler(self, name, text, threads, targets):
        runs.append(text)
        if "error" in text:
            raise ToolError(text)
        return {target: FIGURES[target] for target in targets}

    monkeypatch.setattr(kept_gpu_code, "_compile", compiler)
    monkeypatch.setattr(Tools, "compile", kept_gpu_code.compile_once)

    def compiled(text="a kernel", threads=64, targets=("sm_80", "dg2"), paths=(sys.executable,)):
        tools = Tools(tmp_path, dict(enumerate(paths)))
        try:
            found = tools.compile("sums", text, threads, targets)
        except ToolError as error:
            found = str(error)
        return found, len(runs)

    return compiled


def test_a_kernel_is_compiled_once_and_another_one_again(compiled):
    assert compiled() == compiled() == (FIGURES, 1)
    assert compiled(text="another") == (FIGURES, 2)
    assert compiled(threads=128) == (FIGURES, 3)
    assert compiled(targets=("dg2",)) == ({"dg2": FIGURES["dg2"]}, 4)


def test_another_compiler_or_another_text_of_who_calls_it_compiles_again(compiled, monkeypatch):
    assert compiled() == (FIGURES, 1)
    assert compiled(paths=("/bin/sh",)) == (FIGURES, 2)
    monkeypatch.setattr(kept_gpu_code, "_reader", lambda: "another text")
    assert compiled() == (FIGURES, 3)


def test_what_a_compiler_refuses_is_not_kept(compiled):
    assert compiled(text="an error") == ("an error", 1)
    assert compiled(text="an error") == ("an error", 2)
