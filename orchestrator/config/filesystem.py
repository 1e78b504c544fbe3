"""Finds the file system of a folder: SQLite's write-ahead log needs shared memory, so a local disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final

NETWORK_FILESYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "ceph", "glusterfs"}
)


def filesystem_of(path: Path) -> str:
    """Type of the file system of `path`, in the kernel's word; `unknown` where /proc cannot be read."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown"
    real = path.resolve()
    best, kind = -1, "unknown"
    for line in lines:
        left, _, right = line.partition(" - ")
        mount = Path(left.split()[4].replace("\\040", " "))
        if real.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), right.split()[0]
    return kind
