"""Compiles a kernel's text for GPUs that are not there, and reads what the compilers say of it.

NVIDIA: clang translates OpenCL C to PTX, with libclc for its built-in functions, and NVIDIA's own assembler
makes machine code of that, as its driver would. AMD: clang makes the machine code, as its driver's does.
Intel: the driver's own compiler, by its command `ocloc`. What another version of a driver decides by itself,
such as which loops it unrolls, may differ.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Final

from benchmarks import gpu_machine_code
from benchmarks.gpu_machine_code import Compiled, Processor, ToolError, of_amd, of_intel, of_nvidia
from runtime.delegates.gpu.backends.cuda.ptx import bounded
from runtime.delegates.gpu.layout.source import Kernel

CLC: Final = Path("/usr/lib/clc")
"""Folder of libclc's functions, where Debian's package puts it."""

INSTALL: Final = (
    "apt-get install clang-15 libclc-15; "
    ".venv/bin/pip install --require-hashes -r requirements/gpu-static.lock"
)

_OPTIONS: Final = ("-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-O3", "-S", "-w")

NVIDIA: Final[Mapping[str, Processor]] = {
    "sm_75": Processor(65536, 1024, 64 << 10),
    "sm_80": Processor(65536, 2048, 164 << 10),
    "sm_90": Processor(65536, 2048, 228 << 10),
}
"""Turing (T4), Ampere (A100), Hopper (H100, H200)."""

AMD: Final[Mapping[str, str]] = {
    "gfx90a": "gfx906-amdgcn-mesa-mesa3d.bc",
    "gfx1100": "gfx906-amdgcn-mesa-mesa3d.bc",
}
"""MI200 and RDNA 3, with the newest of libclc 15's functions, which are plain code without instructions of a
processor."""

_FOR_NVIDIA: Final = "nvptx64--nvidiacl.bc"
"""Libclc's functions for NVIDIA's GPUs."""

INTEL: Final[Mapping[str, str]] = {"dg2": "dg2-g10"}
"""Arc A770 and Flex 170, by the names that `ocloc` has for them."""

TARGETS: Final = (*NVIDIA, *AMD, *INTEL)

INSTALL_OCLOC: Final = (
    "bash .ci/setup test, or apt-get install intel-opencl-icd; without ocloc: "
    f"--targets {' '.join((*NVIDIA, *AMD))}"
)
"""How to come by Intel's compiler, or do without: the end of a message where it is missing."""

MATRIX_UNITS: Final = ("sm_80", "sm_90")
"""Targets with matrix units that kernels use: PTX's mma.m16n8k16 of 16 bits is there from sm_80 on."""

_DECIDING: Final = re.compile(r"=> (\S*/lib(?:LLVM|clang|opencl-clang|ocloc|ig)\S*) \(")
"""Libraries that make code, as `ldd` lists them: not those of C, of archives and of terminals."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The compilers by their names, of those targets that are asked for. `folder`: for what they write."""

    folder: Path
    paths: Mapping[str, str]

    @classmethod
    def found(cls, folder: Path, targets: Collection[str]) -> "Tools":
        """Find the compilers for targets. Raises `ToolError` with what is missing and what installs it."""
        paths: dict[str, str | None] = {}
        if not {*NVIDIA, *AMD}.isdisjoint(targets):
            paths["clang"] = shutil.which("clang-15") or shutil.which("clang")
            paths[f"libclc in {CLC}"] = str(CLC) if (CLC / AMD["gfx90a"]).exists() else None
        if not NVIDIA.keys().isdisjoint(targets):
            paths["ptxas"] = _ptxas()
        if not INTEL.keys().isdisjoint(targets):
            paths["ocloc"] = _ocloc()
        lacks = [name for name, path in paths.items() if path is None]
        if lacks:
            how = dict.fromkeys(INSTALL_OCLOC if name == "ocloc" else INSTALL for name in lacks)
            raise ToolError(
                f"kernels cannot be compiled for GPUs here: no {', no '.join(lacks)}; {'; '.join(how)}"
            )
        return cls(folder, {name: path for name, path in paths.items() if path is not None})

    def files(self, target: str) -> list[Path]:
        """Return the files that decide what is made for a target: programs, libraries, headers, functions."""
        if target in INTEL:
            ocloc = Path(self.paths["ocloc"])
            libraries = _beside(ocloc)
            # It opens these when it runs.
            opened = sorted(
                {one.resolve() for kind in ("igc", "igdfcl") for one in libraries.glob(f"lib{kind}.so.*")}
            )
            programs = [ocloc, *opened]
            return [*programs, *_loaded(tuple(programs), libraries)]
        clang = Path(self.paths["clang"]).resolve()
        headers = sorted(clang.parents[1].glob("lib/clang/*/include/opencl-c*.h"))
        found = [clang, *_loaded((clang,)), *headers, CLC / AMD.get(target, _FOR_NVIDIA)]
        return [*found, Path(self.paths["ptxas"])] if target in NVIDIA else found

    def digest(self, target: str) -> str:
        """Return a digest of `files`, and of how they are called and read."""
        return digest_of(target, recipe(), *map(_content, self.files(target)))

    def compile(self, kernel: Kernel, targets: tuple[str, ...]) -> dict[str, Compiled]:
        """Compile a kernel for targets. Raises `ToolError`."""
        threads, source = prod(kernel.group), self.folder / f"{kernel.name}.cl"
        source.write_text(kernel.whole, encoding="utf-8")
        found = {}
        nvidia = [target for target in targets if target in NVIDIA]
        if nvidia:
            ptx = self._assembly(source, "ptx", *_nvidia("sm_80" if in_matrices(kernel.whole) else "sm_75"))
            ptx.write_text(bounded(ptx.read_text(), kernel))
            found = {target: self._assembled(ptx, target, threads) for target in nvidia}
        for target in targets:
            if target in AMD:
                options = _target("amdgcn-mesa-mesa3d", AMD[target])
                made = self._assembly(source, target, *options, f"-mcpu={target}", "-nogpulib")
                found[target] = of_amd(made.read_text())
            if target in INTEL:
                found[target] = self._for_intel(source, kernel.name, target, threads)
        return found

    def _for_intel(self, source: Path, name: str, target: str, threads: int) -> Compiled:
        out = source.with_suffix(f".{target}")
        # The second option makes a file in the newer form, which says what a kernel takes.
        options = ("-options", "-cl-std=CL1.2", "-internal_options", "-cl-intel-allow-zebin")
        words = ("-file", str(source), "-device", INTEL[target], "-out_dir", str(out), *options)
        ocloc = self.paths["ocloc"]
        self._run([ocloc, "compile", "-q", *words], source, LD_LIBRARY_PATH=str(_beside(Path(ocloc))))
        (binary,) = out.glob("*.bin")
        return of_intel(binary.read_bytes(), name, threads)

    def _assembly(self, source: Path, suffix: str, *options: str) -> Path:
        out = source.with_suffix(f".{suffix}")
        self._run([self.paths["clang"], *_OPTIONS, *options, str(source), "-o", str(out)], source)
        return out

    def _assembled(self, ptx: Path, target: str, threads: int) -> Compiled:
        out = ptx.with_suffix(f".{target}")
        said = self._run([self.paths["ptxas"], f"-arch={target}", "-v", str(ptx), "-o", str(out)], ptx)
        return of_nvidia(said, ptx.read_text(), NVIDIA[target], threads)

    def _run(self, command: list[str], source: Path, **more: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | more)
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise ToolError(f"{source.stem}: {Path(command[0]).name}: {said}")
        return done.stderr


def _target(triple: str, functions: str) -> tuple[str, ...]:
    return "-target", triple, "-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(CLC / functions)


def _nvidia(oldest: str) -> tuple[str, ...]:
    """Return the options for the PTX of the oldest target, which the assembler takes for newer ones too."""
    target = _target("nvptx64-nvidia-nvcl", _FOR_NVIDIA)
    feature = {"sm_75": "+ptx64", "sm_80": "+ptx70"}[oldest]
    chosen = ("-target-cpu", oldest, "-target-feature", feature)
    return (*target, *(word for one in chosen for word in ("-Xclang", one)))


def in_matrices(text: str) -> bool:
    """Return True for the text of a kernel in which matrix units multiply."""
    return re.search(r"^#define MATRIX [12]$", text, re.MULTILINE) is not None


def digest_of(*parts: str) -> str:
    """Return a digest of texts, short as it need not withstand whoever looks for an equal one."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


@cache
def recipe() -> str:
    """Return the modules that call the compilers and that read what they say."""
    modules = (__file__, gpu_machine_code.__file__)
    return "\0".join(Path(one).read_text(encoding="utf-8") for one in modules)


@cache
def _content(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@cache
def _loaded(programs: tuple[Path, ...], folder: Path | None = None) -> list[Path]:
    """Return the libraries that programs load and that make their code, looked for in `folder` first."""
    more = {} if folder is None else {"LD_LIBRARY_PATH": str(folder)}
    said = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False, env=os.environ | more
    ).stdout  # Of one that loads nothing it says so, and fails.
    return sorted({Path(path).resolve() for path in _DECIDING.findall(said)})


def _beside(ocloc: Path) -> Path:
    """Return the folder of the libraries of Intel's compiler."""
    return ocloc.parents[1] / "lib/x86_64-linux-gnu"


def assembler() -> str:
    """Return NVIDIA's assembler. Raises `ToolError`."""
    found = _ptxas()
    if found is None:
        raise ToolError(f"no ptxas; {INSTALL}")
    return found


def _ptxas() -> str | None:
    """Return the assembler of NVIDIA's package in this environment, or of a toolkit on the PATH."""
    package = importlib.util.find_spec("nvidia")
    folders = [] if package is None else [Path(folder) for folder in package.submodule_search_locations or ()]
    packaged = (path for folder in folders for path in sorted(folder.glob("*/bin/ptxas")))
    return next(map(str, packaged), None) or shutil.which("ptxas")


def _ocloc() -> str | None:
    """Return Intel's compiler, as the set-up unpacks it, or as it is installed."""
    unpacked = Path(sys.executable).with_name("ocloc.d") / "usr/bin/ocloc"
    return str(unpacked) if unpacked.is_file() else shutil.which("ocloc")
