"""Finds the file system of a folder or file.

SQLite's write-ahead log needs shared memory, so a local disk; a model is no file that the kernel makes up.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NETWORK_FILESYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "ceph", "glusterfs"}
)

KERNEL_FILESYSTEMS: Final = frozenset(
    {
        "proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs",
        "configfs", "efivarfs", "bpf", "pstore", "mqueue", "binfmt_misc", "fusectl", "selinuxfs",
        "nsfs", "pidfs",
    }
)  # fmt: skip
"""File systems whose files are views of the kernel and of processes, such as their environment."""


def filesystem_of(path: Path) -> str:
    """Type of the file system of `path`, in the kernel's word; `unknown` where /proc cannot be read."""
    real = path.resolve()
    best, kind = -1, "unknown"
    for left, found in _mounts():
        mount = Path(left[4].replace("\\040", " "))
        if real.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), found
    return kind


def filesystem_of_device(device: int) -> str:
    """Type of the mounted file system with this device number (`st_dev`), or `unknown`."""
    number = f"{os.major(device)}:{os.minor(device)}"
    return next((kind for left, kind in _mounts() if left[2] == number), "unknown")


def _mounts() -> list[tuple[list[str], str]]:
    """Return the fields before the dash of each line of mountinfo (proc_pid_mountinfo(5)), and its type."""
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    halves = (line.partition(" - ") for line in text.splitlines())
    return [(left.split(), right.split()[0]) for left, _, right in halves]
