"""Resident memory of this process, as the kernel counts it; on macOS, as ps(1) and getrusage(2) tell it."""

import os
import resource
import sys
from pathlib import Path

from runtime.common.system import resident_bytes_by_ps

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = b"5"


def resident_bytes() -> int:
    """Return VmRSS: the bytes that are resident now."""
    return resident_bytes_by_ps(os.getpid()) if sys.platform == "darwin" else _status_field("VmRSS")


def peak_bytes() -> int:
    """Return VmHWM: the largest resident size in bytes since the process began or since `reset_peak`."""
    if sys.platform == "darwin":
        # In bytes there, in KiB on Linux.
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _status_field("VmHWM")


def reset_peak() -> bool:
    """Set VmHWM back to VmRSS. Return False where the kernel refuses: growth is then a lower bound."""
    try:
        # A sandbox lets a process write there, but not empty the file, as `Path.write_text` would ask first.
        descriptor = os.open(_CLEAR_REFS, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, _RESET_PEAK)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True


def _status_field(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        key, _, rest = line.partition(":")
        if key == name:
            return int(rest.split()[0]) * 1024
    raise OSError(f"{_STATUS} has no field {name}")
