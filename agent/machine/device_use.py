"""Judges whether a process can have used its device, or has computed on the CPU instead.

A delegate that falls back to the CPU without a word gives right outputs in a time that is not the device's.
What it cannot hide: without a driver nothing reaches a device, and computing takes the CPU's time.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.machine.cgroups import ROOT, text_of
from agent.machine.disturbance import Disturbance, Evidence

DRIVER: Final = "device driver"
OWN_CPU: Final = "own CPU time"

_LIBRARIES: Final = (
    "opencl", "pocl", "amdocl", "igdrcl", "cuda", "nvidia", "vulkan", "libze_", "level_zero", "hsa-runtime",
    "libegl", "libgl", "mali",
)  # fmt: skip
"""Parts of the names of drivers and of the libraries that load them, in lower case."""

_FILES: Final = ("/dev/dri/", "/dev/nvidia", "/dev/kfd", "/dev/mali", "/dev/dxg")
"""Beginnings of the names of device files by which drivers reach GPUs."""

BUSY: Final = 0.9
"""Share of its CPUs' time from which on a process computed on all of them."""

ONE_THREAD: Final = 1.1
"""CPUs that a single thread keeps busy, and a little for the others. Drivers wait for a GPU in a thread that
spins, so one busy CPU proves nothing."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Signs that a process used its device, taken after its last timed slice.

    `reaches`: whether a driver is loaded or a device file open, None where neither can be read. `busy_cpus`:
    CPU seconds of the process per second; `cpus`: the CPUs that it may use.
    """

    reaches: bool | None
    busy_cpus: float
    cpus: int

    @classmethod
    def of(cls, pid: int, cpus: int, own_s: float, wall_s: float, root: Path = ROOT) -> "DeviceUse":
        """Look at a process on so many CPUs, which took `own_s` CPU seconds in `wall_s` seconds."""
        return cls(_reaches(pid, root), own_s / wall_s if wall_s > 0 else 0.0, cpus)

    def judged(self, *, is_gpu: bool) -> Evidence:
        """Judge a device that is reached by a driver. That of a CPU computes on the CPU itself."""
        if self.reaches is None:
            return Evidence(unseen=(f"{DRIVER}: the process's libraries cannot be read",))
        if not self.reaches:
            text = "no driver is loaded: the device cannot have computed; the delegate ran on the CPU"
            return Evidence(found=(Disturbance(text, invalidates=True),), seen=(DRIVER,))
        if not is_gpu:
            return Evidence(seen=(DRIVER,))
        # Not even one thread was busy throughout.
        if self.busy_cpus < BUSY:
            return Evidence(seen=(DRIVER, OWN_CPU))
        if self.busy_cpus > ONE_THREAD and self.busy_cpus >= BUSY * self.cpus:
            text = (
                f"{self.busy_cpus:.1f} of its {self.cpus} CPUs were busy beside the GPU: the delegate may "
                "have computed on them"
            )
            return Evidence(found=(Disturbance(text),), seen=(DRIVER, OWN_CPU))
        why = "a CPU was busy beside the GPU; a thread that waits and one that computes look alike"
        return Evidence(seen=(DRIVER,), unseen=(f"{OWN_CPU}: {why}",))


def _reaches(pid: int, root: Path) -> bool | None:
    """Whether a process has a driver or a device file; None where its mappings cannot be read."""
    mapped = text_of(root / f"proc/{pid}/maps")
    if not mapped:
        return None
    # Behind the name, ` (deleted)` may follow: an upgrade has replaced the file.
    names = {line.rpartition("/")[2].lower() for line in mapped.splitlines() if "/" in line}
    if any(part in name for name in names for part in _LIBRARIES):
        return True
    return any(_target(link).startswith(_FILES) for link in (root / f"proc/{pid}/fd").glob("*"))


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""
