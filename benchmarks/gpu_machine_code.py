"""Reads what compilers say of a kernel's machine code for a GPU: registers, stack, spills and occupancy."""

import re
from dataclasses import dataclass
from typing import Final

import yaml


class ToolError(RuntimeError):
    """A compiler is missing, or it refuses a kernel."""


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


_CORE_THREADS: Final = 16 * 8
_CORE_SHARED_BYTES: Final = 128 << 10
"""Of a core of Xe-HPG: 16 vector engines of 8 threads; local memory (oneAPI GPU Optimization Guide)."""

_GRF_WORDS: Final = 8
"""Numbers of 32 bits in a register of an Intel GPU, which all work-items of a thread share."""


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


_MULTIPLY_ADD: Final = re.compile(r"fma\.|mma\.sync|v_(?:pk_|dual_)?(?:fma|fmac|mad|mac)_f")
"""Instructions of PTX and of AMD that multiply and add floats, of matrix units by a thousand at a time."""


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
        lines = [line for line in lines if line and line[0] not in ".;/{}()"]
        # AMD's later GPUs issue two instructions at a time, which stand on a line.
        instructions = [part.strip() for line in lines for part in line.split("::")]
        count = sum(bool(_MULTIPLY_ADD.match(one)) for one in instructions)
        if count > most:
            most, share = count, round(count / len(instructions), 4)
    return share


def _numbers(pattern: str, text: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
    match = re.search(pattern, text)
    if match is None:
        if default is None:
            raise ToolError(f"the compiler does not say {pattern!r}: {text[-500:]}")
        return default
    return tuple(map(int, match.groups()))
