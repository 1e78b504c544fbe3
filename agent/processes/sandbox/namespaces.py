"""Namespaces of a runner (linux/sched.h, linux/mount.h): no connections, own mounts, own shared memory."""

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

from agent.processes.sandbox.kernel import mount, unshare

_NEW_MOUNTS: Final = 0x00020000
"""CLONE_NEWNS: mounts of this process's own."""
_NEW_KEYS: Final = 0x08000000
"""CLONE_NEWIPC: keys of System V and queues of POSIX of this process's own, which end with it."""
_NEW_USER: Final = 0x10000000
"""CLONE_NEWUSER: a user namespace, in which an ordinary user may make the others."""
_NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET: a network whose only interface is a loopback that is down."""

_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_EXECUTION = 1, 2, 4, 8
_REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 32, 4096, 16384, 1 << 18
"""MS_* of linux/mount.h."""

_KERNEL_SETTINGS: Final = ("sys", "irq", "bus", "fs", "acpi", "scsi", "sysrq-trigger")
"""Parts of /proc that change the kernel. Root may write most of them without any capability."""


class Namespaces(StrEnum):
    """By which right a process makes its namespaces."""

    DIRECT = "direct"
    BY_USER_NAMESPACE = "by user namespace"


def enter(kind: Namespaces, temporary: Path | None, arrange: Callable[[], None] | None = None) -> None:
    """Give this process a network, keys and mounts of its own. `arrange` changes the mounts; `temporary`
    becomes /tmp, None leaves /tmp as it is.

    Raises `OSError`. A process that failed half-way must end.
    """
    user, group = os.geteuid(), os.getegid()
    if kind is Namespaces.DIRECT:
        unshare(_NEW_MOUNTS | _NEW_KEYS | _NEW_NETWORK)
    else:
        # In one call: nothing is half done where a kernel grants the namespace without its rights.
        unshare(_NEW_USER | _NEW_MOUNTS | _NEW_KEYS | _NEW_NETWORK)
        # Without this, the kernel lets no ordinary user write `gid_map` (user_namespaces(7)).
        _write("setgroups", "deny")
        _write("uid_map", f"{user} {user} 1")
        _write("gid_map", f"{group} {group} 1")
    # systemd makes all mounts shared: those made here would appear in the host's namespace as well.
    mount("none", "/", "", _RECURSIVE | _PRIVATE)
    if arrange is not None:
        arrange()
    # Behind `arrange`, which makes the mounts that it finds read-only; likewise those below.
    mount("tmpfs", "/dev/shm", "tmpfs", _NO_SETUID | _NO_DEVICES, "mode=1777")  # noqa: S108  # the runner's own
    if kind is Namespaces.DIRECT:
        _own_view_of_processes()
    if temporary is not None:
        mount(str(temporary), "/tmp", "", _BIND)  # noqa: S108  # as above


def _own_view_of_processes() -> None:
    """Mount a /proc that lists only processes that this one may trace, and whose settings are read-only."""
    mount("proc", "/proc", "proc", _NO_SETUID | _NO_DEVICES | _NO_EXECUTION, "hidepid=ptraceable")
    for name in _KERNEL_SETTINGS:
        path = f"/proc/{name}"
        if os.path.exists(path):  # noqa: PTH110  # between fork and exec
            mount(path, path, "", _BIND)
            # mount(2) ignores such flags when a bind mount is made, and takes them when it is remounted.
            mount("none", path, "", _REMOUNT | _BIND | _READ_ONLY | _NO_SETUID | _NO_DEVICES | _NO_EXECUTION)


def _write(name: str, text: str) -> None:
    descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
