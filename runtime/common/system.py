"""The calls in which Linux and macOS differ, one function for each; the other modules name no system.

On macOS no program can bind a thread to a CPU: what is bound on Linux is only counted there. What
`sysctl` prints is described in sysctl(8), what `ps` prints in ps(1).
"""

import os
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from functools import cache
from typing import Final

THREADS_VARIABLE: Final = "FARM_THREADS"
"""On macOS, in the environment of a process and of those that it starts: how many CPUs it shall use."""

_TOOL_S: Final = 20.0
"""Seconds that one of the system's tools may take; they take hundredths."""

_TOOLS: Final = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"}
"""The environment of those tools: only the system's own are found."""


def usable_cpus() -> frozenset[int]:
    """Return the CPUs that this process may use; on macOS the first ones of as many as it shall use."""
    if sys.platform == "darwin":
        return frozenset(range(int(os.environ.get(THREADS_VARIABLE) or os.cpu_count() or 1)))
    return frozenset(os.sched_getaffinity(0))


def use_cpus(cpus: Collection[int]) -> None:
    """Bind this process, and what it starts, to CPUs; on macOS to their number alone. Raises `OSError`."""
    if sys.platform == "darwin":
        os.environ[THREADS_VARIABLE] = str(len(cpus))
    else:
        os.sched_setaffinity(0, cpus)


def boot_clock_ns() -> int:
    """Return the clock of all processes of this host, which goes on while it sleeps: CLOCK_BOOTTIME, which
    clock_gettime(3) of macOS calls CLOCK_MONOTONIC.
    """
    if sys.platform == "darwin":
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def told_by(*command: str) -> str:
    """Return what one of the system's tools prints; a name that `sysctl` does not know is left out.

    Raises `OSError` where the tool is missing or does not end.
    """
    try:
        # The exit code is not looked at: a single unknown name among others makes it an error.
        done = subprocess.run(  # noqa: S603  # our own words, found among the system's tools alone
            command, env=_TOOLS, capture_output=True, timeout=_TOOL_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{' '.join(command)}: no answer within {_TOOL_S:g} s") from error
    return done.stdout.decode(errors="replace")


@cache
def sysctl(*names: str) -> dict[str, str]:
    """Return values of the kernel by name, of those below a name too. Raises `OSError` without a sysctl."""
    return fields_of(told_by("sysctl", *names))


def fields_of(text: str) -> dict[str, str]:
    """Return the values of lines `name: value`, as sysctl(8) and sw_vers(1) print them."""
    parts = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in parts if colon}


def resident_bytes_by_ps(pid: int) -> int:
    """Return the resident bytes of a process as ps(1) counts them, in KiB. Raises `OSError`."""
    text = told_by("ps", "-o", "rss=", "-p", str(pid)).strip()
    if not text.isdecimal():
        raise OSError(f"ps -o rss= -p {pid} printed no number: {text[:20]!r}")
    return int(text) * 1024


def columns(text: str, count: int) -> list[Sequence[str]]:
    """Return the lines of a table of `count` columns, of which only the last may have spaces or be empty."""
    rows = (line.split(maxsplit=count - 1) for line in text.splitlines())
    return [[*row, ""][:count] for row in rows if len(row) >= count - 1]
