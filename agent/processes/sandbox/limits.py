"""Limits the resources of a runner, and gives it a user id, by which the kernel counts some of them.

The limits have defaults, derived from this host. There is none for the address space: drivers of GPUs reserve
terabytes of it without using them. What is limited is data (RLIMIT_DATA), which counts only what can be
written and is this process's own.
"""

import os
import re
import resource
import secrets
import shutil
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

_MOST_FILE_BYTES: Final = 8 << 30
"""Largest file in bytes on a large disk. A runner writes outputs, references and program caches of
megabytes; a converted model of a delegate may have gigabytes. Larger lets one file fill more of the disk."""
_LEAST_FILE_BYTES: Final = 64 << 20
"""Largest file in bytes on a disk that is nearly full: a smaller limit would fail before the disk does."""
_SHARE_OF_FREE: Final = 4
"""A file may have one part in so many of the free space: other attempts, and this agent, keep the rest."""
_PROCESSES: Final = 1024
"""Processes and threads that an attempt may have. Compilers and pools of threads need tens; larger lets a
fork bomb take more of the host."""
_PROCESSES_PER_CPU: Final = 16
"""Further ones for each CPU: every pool (BLAS, OpenMP, PoCL) has a thread per CPU, in each of several
processes."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of each process in bytes, and of the attempt (or the user's whole) in processes."""

    file_bytes: int
    data_bytes: int
    processes: int

    def enter(self, user: int) -> None:
        """Limit this process and its children, which run as `user`. A limit that is lower already stays."""
        _lower(resource.RLIMIT_FSIZE, self.file_bytes)
        _lower(resource.RLIMIT_DATA, self.data_bytes)
        # The kernel counts all processes of a user, those outside the sandbox too, and exempts root.
        _lower(resource.RLIMIT_NPROC, self.processes + tasks_of(user))


def limits_of_host(folder: Path) -> Limits:
    """Return the limits for a runner that writes into `folder`."""
    return Limits(file_bytes=_file_bytes(folder), data_bytes=_memory_bytes(), processes=most_processes())


def most_processes() -> int:
    """Return how many processes and threads an attempt may have."""
    return _PROCESSES + _PROCESSES_PER_CPU * (os.cpu_count() or 1)


def _file_bytes(folder: Path) -> int:
    share = shutil.disk_usage(folder).free // _SHARE_OF_FREE
    return max(_LEAST_FILE_BYTES, min(_MOST_FILE_BYTES, share))


def _memory_bytes() -> int:
    """Return the host's memory and swap: more could only end with the kernel killing somebody."""
    sizes = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "SwapTotal"):
            sizes[name] = int(rest.split()[0]) * 1024
    return sum(sizes.values())


def tasks_of(user: int) -> int:
    """Return how many processes and threads a user has; those that end meanwhile may be missing."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user:
                    count += len(os.listdir(entry / "task"))  # noqa: PTH208  # names are all it takes
            except OSError:
                continue
    return count


def _lower(which: int, limit: int) -> None:
    present = resource.getrlimit(which)[1]
    lowered = limit if present == resource.RLIM_INFINITY else min(limit, present)
    # Both limits: a process may raise its soft one up to the hard one (setrlimit(2)).
    resource.setrlimit(which, (lowered, lowered))


USERS_VARIABLE: Final = "FARM_RUNNER_USERS"
_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Users:
    """The ids from `first` to `last`, which no account of the host has."""

    first: int
    last: int

    @classmethod
    def parsed(cls, text: str) -> "Users | None":
        """Read `FIRST-LAST` or `off`. Raises `ValueError` naming the variable."""
        if text == "off":
            return None
        match = _RANGE.fullmatch(text)
        if match is None or not 0 < int(match[1]) <= int(match[2]):
            raise ValueError(f"{USERS_VARIABLE}: {text!r} is neither off nor a range of ids, as {USERS}")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def free(self) -> int:
        """Return an id that no process of this host has. Raises `OSError` where there is none."""
        middle = self.first + secrets.randbelow(self.last - self.first + 1)
        for user in chain(range(middle, self.last + 1), range(self.first, middle)):
            if tasks_of(user) == 0:
                return user
        raise OSError(f"{USERS_VARIABLE}: every user id of {self} runs a process; give more of them")


USERS: Final = Users(61184, 65519)
"""Those of systemd's transient services (DynamicUser=), which no distribution gives to an account."""
