"""A kernel for GPUs is compiled in one run of the suite and not in the next one; another one is compiled."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from benchmarks import gpu_compilers
from benchmarks.gpu_compilers import TARGETS, Tools
from benchmarks.gpu_machine_code import Compiled, ToolError
from runtime.delegates.gpu.layout.source import Kernel
from tests import needs
from tests.services import kept_gpu_code

FILES = (
    "llvm/bin/clang",
    "llvm/lib/clang/15/include/opencl-c.h",
    "clc/nvptx64--nvidiacl.bc",
    "bin/ptxas",
    "intel/bin/ocloc",
    "intel/lib/x86_64-linux-gnu/libigc.so.1",
    "intel/lib/x86_64-linux-gnu/libigdfcl.so.1",
)
"""Files on which the figures below depend."""

FIGURES = {"sm_80": Compiled(40, 0, 0, 1024, 6, 0.75), "dg2": Compiled(32, 0, 0, 0, 8, 1 / 3)}


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Return a function that compiles, and tells what came and how often a compiler has run."""
    monkeypatch.setenv("FARM_TEST_CACHE", str(tmp_path))
    runs, folders = [], count()

    def compiler(self, kernel, targets):
        runs.append(kernel)
        if "error" in kernel.text:
            raise ToolError(kernel.text)
        return {target: FIGURES[target] for target in targets}

    monkeypatch.setattr(kept_gpu_code, "_compile", compiler)
    monkeypatch.setattr(Tools, "compile", kept_gpu_code.compile_once)

    def compiled(text="a kernel", threads=64, together=0, targets=("sm_80", "dg2"), other=None):
        folder = tmp_path / str(next(folders))
        for file in FILES:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text("another version" if file == other else "a version")
        monkeypatch.setattr(gpu_compilers, "CLC", folder / "clc")
        programs = {file.rpartition("/")[2]: str(folder / file) for file in FILES if "/bin/" in f"/{file}"}
        try:
            kernel = Kernel("sums", text, group=(threads,), together=together)
            found = Tools(folder, programs).compile(kernel, targets)
        except ToolError as error:
            found = str(error)
        return found, len(runs)

    return compiled


def test_a_kernel_is_compiled_once_and_another_one_again(compiled):
    assert compiled() == compiled() == (FIGURES, 1)
    assert compiled(text="another") == (FIGURES, 2)
    assert compiled(threads=128) == (FIGURES, 3)
    assert compiled(together=2) == (FIGURES, 4)
    assert compiled(targets=("dg2",)) == ({"dg2": FIGURES["dg2"]}, 5)


@pytest.mark.parametrize("file", FILES)
def test_another_file_of_a_compiler_compiles_again(compiled, file):
    assert compiled() == (FIGURES, 1)
    assert compiled(other=file) == (FIGURES, 2)


def test_another_text_of_who_calls_the_compilers_compiles_again(compiled, monkeypatch):
    assert compiled() == (FIGURES, 1)
    monkeypatch.setattr(gpu_compilers, "recipe", lambda: "another text")
    assert compiled() == (FIGURES, 2)


def test_the_libraries_of_an_installed_compiler_are_among_its_files():
    try:
        tools = Tools.found(Path(), TARGETS)
    except ToolError as error:
        needs.absent(str(error))
    names = {target: {one.name.split(".")[0] for one in tools.files(target)} for target in ("sm_80", "dg2")}
    assert names["sm_80"] >= {"clang", "libLLVM-15", "libclang-cpp", "opencl-c", "ptxas"}
    assert names["dg2"] >= {"ocloc", "libocloc", "libigc", "libigdfcl", "libopencl-clang", "libLLVM-14"}


def test_what_a_compiler_refuses_is_not_kept(compiled):
    assert compiled(text="an error") == ("an error", 1)
    assert compiled(text="an error") == ("an error", 2)
