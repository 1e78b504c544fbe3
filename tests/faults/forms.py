"""Further forms of scenarios, for a kernel that has more than namespaces, signals and rlimits.

Where it has not, the form is not run, and the report says so: the scenario itself always is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from agent.processes import cgroup

_PROBE = "farm-fault-probe"


def absent() -> tuple[str, ...]:
    """List the features that this kernel, or this user, lacks, with the scenarios whose further form they
    prevent.
    """
    known = (
        (has_control_groups(), "4: no writable control groups of version 2"),
        (has_memory_groups(), "5: no control groups that limit memory"),
        (has_netem(), "21: no `tc qdisc ... netem`"),
    )
    return tuple(text for there, text in known if not there)


@cache
def has_control_groups() -> bool:
    """Whether an agent of this user gives each attempt a control group."""
    made = cgroup.create(_PROBE) is not None
    cgroup.remove(_PROBE)
    return made


@cache
def has_netem() -> bool:
    """Whether this kernel can spoil a connection by itself."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "tc"))):
        return False
    link = "ip link add name one type veth peer name two"
    try_it = f"{link} && tc qdisc add dev one root netem delay 1ms"
    done = subprocess.run(["unshare", "--net", "sh", "-c", try_it], capture_output=True, check=False)
    return done.returncode == 0


@cache
def has_memory_groups() -> bool:
    """Whether a control group here can limit memory."""
    try:
        with memory_group(64 << 20):
            return True
    except OSError:
        return False


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """Make a control group of either version that has no more memory than this, removed at the end.

    Raises `OSError` where there can be none.
    """
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    second = [Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
    first = [Path(f[1]) for f in mounts if f[2] == "cgroup" and "memory" in f[3].split(",")]
    for base, limit in [
        *((at, "memory.max") for at in second),
        *((at, "memory.limit_in_bytes") for at in first),
    ]:
        folder = base / f"farm-fault-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if (folder / limit).exists():
            (folder / limit).write_text(str(limit_bytes))
            try:
                yield folder
            finally:
                _remove(folder)
            return
        folder.rmdir()
    raise OSError("no control group that limits memory can be made")


def inside(folder: Path) -> tuple[str, ...]:
    """Return the prefix that runs a command in a control group."""
    return ("sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh")


WITHOUT_GROUPS = ("unshare", "--mount", "sh", "-c", 'umount --lazy --all --types cgroup2 && exec "$@"', "sh")
"""What to put before a command so that it finds no control groups of version 2."""


def _remove(folder: Path, limit_s: float = 10.0) -> None:
    """Remove a group: the dead leave it a little later than they die."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
