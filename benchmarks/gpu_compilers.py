"""Compiles a kernel's text for GPUs that are not there, and reads what the compilers say of it.

NVIDIA: clang translates OpenCL C to PTX, with libclc for its built-in functions, and NVIDIA's own assembler
makes machine code of that, as its driver would. AMD: clang makes the machine code, as its driver's does.
Intel: the driver's own compiler, by its command `ocloc`. What another version of a driver decides by itself,
such as which loops it unrolls, may differ.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

CLC: Final = Path("/usr/lib/clc")
"""Folder of libclc's functions, where Debian's package puts it."""

INSTALL: Final = (
    "apt-get install clang-15 libclc-15; "
    ".venv/bin/pip install --require-hashes -r requirements/gpu-static.lock"
)

_OPTIONS: Final = ("-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-O3", "-S", "-w")


@dataclass(frozen=True, slots=True)
class Processor:
    """The limits of a multiprocessor that decide how many work-groups it holds.

    `registers` and `shared_bytes` of all its threads; NVIDIA: CUDA C++ Programming Guide, table of technical
    specifications per compute capability. AMD's assembly says its own occupancy, in waves.
    """

    registers: int = 0
    threads: int = 0
    shared_bytes: int = 0

    def groups(self, threads: int, registers: int, shared: int) -> int:
        """Return how many work-groups of so many threads fit, which have so many registers each."""
        # Registers are given out to warps of 32 threads, in units of 256.
        of_warp = -(-max(registers, 1) * 32 // 256) * 256
        warps = -(-threads // 32)
        by_shared = self.shared_bytes // shared if shared else self.threads
        return min(self.registers // (of_warp * warps), self.threads // threads, by_shared)


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

INTEL: Final[Mapping[str, str]] = {"dg2": "dg2-g10"}
"""Arc A770 and Flex 170, by the names that `ocloc` has for them."""

_CORE_THREADS: Final = 16 * 8
_CORE_SHARED_BYTES: Final = 128 << 10
"""Of a core of Xe-HPG: 16 vector engines of 8 threads; local memory (oneAPI GPU Optimization Guide)."""

_GRF_WORDS: Final = 8
"""Numbers of 32 bits in a register of an Intel GPU, which all work-items of a thread share."""

TARGETS: Final = (*NVIDIA, *AMD, *INTEL)

INSTALL_OCLOC: Final = (
    "bash .ci/setup test, or apt-get install intel-opencl-icd; without ocloc: "
    f"--targets {' '.join((*NVIDIA, *AMD))}"
)
"""How to come by Intel's compiler, or do without: the end of a message where it is missing."""

MATRIX_UNITS: Final = ("sm_80", "sm_90")
"""Targets with matrix units that kernels use: PTX's mma.m16n8k16 of 16 bits is there from sm_80 on."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel's machine code, as far as its compiler describes it.

    `registers`: of a work-item. `stack_bytes`: of its local or scratch memory, spilled registers among them;
    Intel: of a thread, which runs 8 to 32 work-items.
    `shared_bytes`: of a work-group. `groups`: how many work-groups a multiprocessor holds; AMD: waves of a
    SIMD. `fma_share`: of the instructions of the basic block with most multiply-adds; 0 without any, and on
    Intel, whose code is not read.
    """

    registers: int
    stack_bytes: int
    spill_bytes: int
    shared_bytes: int
    groups: int
    fma_share: float


_MULTIPLY_ADD: Final = re.compile(r"fma\.|mma\.sync|v_(?:pk_)?(?:fma|fmac|mad|mac)_f")
"""Instructions of PTX and of AMD that multiply and add floats, those of matrix units by 2048 at a time."""


class ToolError(RuntimeError):
    """A compiler is missing, or it refuses a kernel."""


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

    def compile(self, name: str, text: str, threads: int, targets: tuple[str, ...]) -> dict[str, Compiled]:
        """Compile a kernel with work-groups of so many threads for targets. Raises `ToolError`."""
        source = self.folder / f"{name}.cl"
        source.write_text(text, encoding="utf-8")
        found = {}
        nvidia = [target for target in targets if target in NVIDIA]
        if nvidia:
            ptx = self._assembly(source, "ptx", *_nvidia("sm_75" if "sm_75" in nvidia else "sm_80"))
            found = {target: self._assembled(ptx, target, threads) for target in nvidia}
        for target in targets:
            if target in AMD:
                options = _target("amdgcn-mesa-mesa3d", AMD[target])
                text = self._assembly(source, target, *options, f"-mcpu={target}", "-nogpulib").read_text()
                found[target] = of_amd(text)
            if target in INTEL:
                found[target] = self._for_intel(source, name, target, threads)
        return found

    def _for_intel(self, source: Path, name: str, target: str, threads: int) -> Compiled:
        out = source.with_suffix(f".{target}")
        # The second option makes a file in the newer form, which says what a kernel takes.
        options = ("-options", "-cl-std=CL1.2", "-internal_options", "-cl-intel-allow-zebin")
        words = ("-file", str(source), "-device", INTEL[target], "-out_dir", str(out), *options)
        ocloc = self.paths["ocloc"]
        libraries = Path(ocloc).parents[1] / "lib/x86_64-linux-gnu"
        self._run([ocloc, "compile", "-q", *words], source, LD_LIBRARY_PATH=str(libraries))
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


def of_nvidia(said: str, ptx: str, processor: Processor, threads: int) -> Compiled:
    """Read what `ptxas -v` says of one kernel, and its PTX."""
    (registers,) = _numbers(r"Used (\d+) registers", said)
    stack, spilled = _numbers(r"(\d+) bytes stack frame, (\d+) bytes spill stores", said)
    (shared,) = _numbers(r"(\d+) bytes smem", said, default=(0,))
    groups = processor.groups(threads, registers, shared)
    return Compiled(registers, stack, spilled, shared, groups, fma_share(ptx))


def of_amd(assembly: str) -> Compiled:
    """Read the comments that LLVM writes behind a kernel."""
    (registers,) = _numbers(r"; NumVgprs: (\d+)", assembly)
    (scratch,) = _numbers(r"; ScratchSize: (\d+)", assembly)
    (shared,) = _numbers(r"; LDSByteSize: (\d+)", assembly, default=(0,))
    (waves,) = _numbers(r"; Occupancy: (\d+)", assembly)
    (spilled,) = _numbers(r"\.vgpr_spill_count: (\d+)", assembly, default=(0,))
    return Compiled(registers, scratch, 4 * spilled, shared, waves, fma_share(assembly))


def of_intel(binary: bytes, name: str, threads: int) -> Compiled:
    """Read the section `.ze_info` of a compiled program: YAML from `---` to `...`, an entry for each kernel.

    The form is that of the Intel Graphics Compiler's zebin files.
    """
    begin = binary.find(b"---\nversion:")
    if begin < 0:
        raise ToolError(f"{name}: ocloc wrote no .ze_info")
    content = yaml.safe_load(binary[begin : binary.index(b"\n...", begin)])
    (kernel,) = (one for one in content["kernels"] if one["name"] != "Intel_Symbol_Table_Void_Program")
    execution = kernel["execution_env"]
    lanes, shared = execution["simd_size"], execution.get("slm_size", 0)
    memory = {"private_space": 0, "spill_fill_space": 0, "single_space": 0}
    for buffer in kernel.get("per_thread_memory_buffers", ()):
        memory[buffer["usage"]] += buffer["size"]
    spilled = memory["spill_fill_space"] + memory["single_space"]
    by_shared = _CORE_SHARED_BYTES // shared if shared else _CORE_THREADS
    groups = min(_CORE_THREADS // -(-threads // lanes), by_shared)
    registers = execution["grf_count"] * _GRF_WORDS // lanes
    return Compiled(registers, sum(memory.values()), spilled, shared, groups, 0.0)


def fma_share(assembly: str) -> float:
    """Return the share of multiply-adds in the basic block with most of them, in PTX or AMD's assembly."""
    most, share = 0, 0.0
    for block in re.split(r"(?m)^[$.]\w+:.*$", assembly):
        lines = [line.strip() for line in block.splitlines()]
        instructions = [line for line in lines if line and line[0] not in ".;/{}()"]
        count = sum(bool(_MULTIPLY_ADD.match(line)) for line in instructions)
        if count > most:
            most, share = count, count / len(instructions)
    return share


def _numbers(pattern: str, text: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
    match = re.search(pattern, text)
    if match is None:
        if default is None:
            raise ToolError(f"the compiler does not say {pattern!r}: {text[-500:]}")
        return default
    return tuple(map(int, match.groups()))


def _target(triple: str, functions: str) -> tuple[str, ...]:
    return "-target", triple, "-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(CLC / functions)


def _nvidia(oldest: str) -> tuple[str, ...]:
    """Return the options for the PTX of the oldest target, which the assembler takes for newer ones too."""
    target = _target("nvptx64-nvidia-nvcl", "nvptx64--nvidiacl.bc")
    feature = {"sm_75": "+ptx64", "sm_80": "+ptx70"}[oldest]
    chosen = ("-target-cpu", oldest, "-target-feature", feature)
    return (*target, *(word for one in chosen for word in ("-Xclang", one)))


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
