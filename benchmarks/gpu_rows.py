"""The figures of a kernel by target, and which of them are faults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from benchmarks.gpu_compilers import AMD, INTEL, NVIDIA
from benchmarks.gpu_machine_code import Compiled

MOST_REGISTERS: Final = {
    **dict.fromkeys(NVIDIA, 128), **dict.fromkeys(AMD, 256), **dict.fromkeys(INTEL, 128),
}  # fmt: skip
"""Registers of a work-item. NVIDIA: of 65,536, 128 leave room for two groups of 256, one of which computes
while the other loads. AMD: what an instruction can name. Intel: all that a thread of 8 work-items has."""

EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {
    (
        "m128n128",
        "sm_",
    ): "64 sums and 24 operands each: one group on a multiprocessor; at 128 registers they spill",
    (
        "m128n128",
        "gfx",
    ): "64 sums and 24 operands each: clang keeps to 128 registers for gfx1100, and to 180 for gfx90a",
}
"""Reasons why kernels fail by parts of their names and of their targets' names."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the check. `at`: its time, by which runs differ. `compilers`: their digests, by target."""

    tree: str
    at: str
    compilers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel on its targets. `flops`: its share of the zoo's estimated work in each precision.

    `digest`: of what the compilers get. `runs`: the runs that compiled it, by target.
    """

    name: str
    threads: int
    flops: Mapping[str, float]
    targets: Mapping[str, Compiled]
    digest: str = ""
    runs: Mapping[str, Run] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The function's name, without the digest that tells two texts of it apart."""
        return self.name.removeprefix("run_").rpartition("_")[0]

    def faults(self) -> dict[str, str]:
        """Return what fails the check, by target."""
        found = {}
        for target, one in self.targets.items():
            if one.stack_bytes or one.spill_bytes:
                found[target] = f"{one.stack_bytes} bytes of stack, {one.spill_bytes} spilled"
            elif one.registers > MOST_REGISTERS[target]:
                found[target] = f"{one.registers} registers"
        return found

    def excused(self, target: str) -> str:
        """Return why a fault of this kernel is accepted; empty where it is not."""
        reasons = (
            why for (name, on), why in EXCEPTIONS.items() if name in self.name and target.startswith(on)
        )
        return next(reasons, "")

    def unexcused(self) -> dict[str, str]:
        """Return the faults that nothing excuses, by target."""
        return {target: fault for target, fault in self.faults().items() if not self.excused(target)}
