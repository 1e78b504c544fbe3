"""Identifies the processor by what decides which code suits it and how fast that runs, not by its name.

An OpenCL driver names a CPU device by its own compiler's class of processors and by the vendor's text, which
on virtual machines is often no more than "AMD EPYC". What was measured or compiled on one such processor does
not hold for another.
"""

import hashlib
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runtime.common.system import sysctl

_CPUINFO = Path("/proc/cpuinfo")
_MODEL = ("vendor_id", "cpu family", "model", "stepping")
_ARM_MODEL = ("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision")
_FEATURES = ("flags", "Features")
BRAND = "machdep.cpu.brand_string"
_APPLE_MODEL = (BRAND, "hw.cpufamily", "hw.cpusubfamily")
_APPLE_FEATURES = "hw.optional"
"""Names of sysctl(3) on macOS: below the last one, 1 for each part of the instruction set."""


@dataclass(frozen=True, slots=True)
class Processor:
    """Vendor, family, model and stepping in one line, and a digest of the instruction sets."""

    model: str
    features: str


@cache
def processor(cpuinfo: Path = _CPUINFO) -> Processor:
    """Return this host's processor as the kernel describes it, else by the machine's name alone."""
    if sys.platform == "darwin":
        return apple_processor(sysctl(*_APPLE_MODEL, _APPLE_FEATURES))
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        # A machine with cores of several kinds is described by all of them.
        if colon and value.strip() not in found.setdefault(name.strip(), []):
            found[name.strip()].append(value.strip())
    names = _MODEL if "vendor_id" in found else _ARM_MODEL
    model = " ".join("+".join(found[name]) for name in names if name in found)
    flags = sorted({flag for name in _FEATURES for value in found.get(name, ()) for flag in value.split()})
    return Processor(model or platform.machine(), _digest(flags))


def apple_processor(told: Mapping[str, str]) -> Processor:
    """Return the processor that values of sysctl(3) describe."""
    model = " ".join(told[name] for name in _APPLE_MODEL if name in told)
    has = sorted(name for name, value in told.items() if name.startswith(_APPLE_FEATURES) and value == "1")
    return Processor(model or platform.machine(), _digest(has))


def _digest(flags: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(flags).encode()).hexdigest()[:10] if flags else "unknown"
