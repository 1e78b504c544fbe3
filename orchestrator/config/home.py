"""Defines the folders under `$FARM_HOME`, makes them for this user alone, and tells their file system.

SQLite's write-ahead log needs shared memory, so a local disk; a model is no file that the kernel makes up.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.wire.private_folder import ExposedError, private_folder
from orchestrator.errors import UnreachableError


@dataclass(frozen=True, slots=True)
class FarmHome:
    """The folders under `$FARM_HOME`.

    farm.db            the database (SQLite, WAL)
    store/             content-addressed models and sample artifacts, shared with the embedded agent
    agent/             the embedded agent's own state: journal, spool, leases, references, work folders
    site/              the last built site
    keys/              the key that signs for this farm
    scheduler.lock     held (flock) by the one process that schedules
    """

    root: Path

    @classmethod
    def from_environment(cls) -> "FarmHome":
        """`$FARM_HOME`, else `$XDG_DATA_HOME/farm`, else `~/.local/share/farm`."""
        explicit = os.environ.get("FARM_HOME")
        if explicit:
            return cls(Path(explicit).expanduser().absolute())
        data = os.environ.get("XDG_DATA_HOME")
        return cls((Path(data) if data else Path.home() / ".local" / "share") / "farm")

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.root / "farm.db"

    @property
    def store(self) -> Path:
        """Root of the content-addressed store."""
        return self.root / "store"

    @property
    def agent(self) -> Path:
        """State folder of the embedded agent."""
        return self.root / "agent"

    @property
    def site(self) -> Path:
        """Default output of `farm site build`."""
        return self.root / "site"

    @property
    def keys(self) -> Path:
        """Folder of the farm's own key."""
        return self.root / "keys"

    @property
    def scheduler_lock(self) -> Path:
        """Lock file of the scheduling process."""
        return self.root / "scheduler.lock"


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
        # The kernel writes a blank in a path as \040.
        mount = Path(left[4].replace("\\040", " "))
        # Not >: of two mounts on one folder, the later one hides the earlier one.
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
    # Before the dash: id, parent, major:minor, root, mount point, options; after it the type comes first.
    halves = (line.partition(" - ") for line in text.splitlines())
    return [(left.split(), right.split()[0]) for left, _, right in halves]


def make_folders(home: FarmHome) -> None:
    """Make what is missing, and close what others could read. Raises `UnreachableError`."""
    try:
        for folder in (home.root, home.store, home.agent):
            private_folder(folder)
    except ExposedError as error:
        raise UnreachableError(str(error)) from error
    except OSError as error:
        raise UnreachableError(
            f"the farm's folder {home.root} cannot be used: {error.strerror}; set FARM_HOME to another"
        ) from error
    if (kind := filesystem_of(home.root)) in NETWORK_FILESYSTEMS:
        raise UnreachableError(
            f"{home.root} lies on {kind}, where the database would break; set FARM_HOME to a local folder"
        )
