"""System calls that Python does not have, as functions that raise `OSError`."""

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_PR_CAPBSET_READ: Final = 23
"""Option of prctl(2), from linux/prctl.h: whether a capability is in the bounding set."""
_PR_CAPBSET_DROP: Final = 24
"""Option of prctl(2), from linux/prctl.h: take a capability out of the bounding set."""
_PR_SET_NO_NEW_PRIVS: Final = 38
"""Option of prctl(2), from linux/prctl.h: no program that is executed from now on gives more rights."""

_CAPABILITY_VERSION_3: Final = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3 of linux/capability.h: three sets, each of two words."""
_CAPABILITY_SETS: Final = ("CapInh:", "CapPrm:", "CapEff:", "CapAmb:")
"""Lines of /proc/self/status: inheritable, permitted, effective, ambient."""


def system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number, which is Linux's. Raises `OSError`."""
    if sys.platform != "linux":
        # Another kernel has another call of that number.
        raise OSError(errno.ENOSYS, f"system call {number} of Linux")
    return _checked(int(_LIBC.syscall(ctypes.c_long(number), *arguments)), f"system call {number}")


def unshare(flags: int) -> None:
    """unshare(2): namespaces of this process's own. Raises `OSError`."""
    _checked(_LIBC.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """mount(2). Raises `OSError` naming the target."""
    result = _LIBC.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    _checked(result, f"mount {target}")


def forbid_new_privileges() -> None:
    """Let no setuid program and no capability of a file give rights to this process or its children."""
    _checked(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


def drop_capabilities(user: int | None = None, groups: Sequence[int] = ()) -> None:
    """Leave this process, and whatever it executes once new privileges are forbidden, without a capability,
    and, where there is one, as this `user`, in the group of the same number and in these `groups`.

    Raises `OSError`, also where one is left: those that a container hands to every program (inheritable,
    ambient) survive an exec even of an ordinary user.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "capset of Linux")
    capability = 0
    # Only who may set them needs an empty bounding set; without it the empty sets below are enough.
    # The call fails at the first number that is no capability of this kernel.
    while os.geteuid() == 0 and _LIBC.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) >= 0:
        _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        capability += 1
    if user is not None:
        # In this order: who has left root's user id may not change groups any more.
        os.setgroups(groups)
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _checked(_LIBC.capset(header, none), "capset")
    if any(capabilities().values()):
        raise PermissionError(errno.EPERM, "capabilities are left")


def capabilities() -> dict[str, int]:
    """Return the sets of capabilities of this process that a program may have: by the kernel's name."""
    with open("/proc/self/status") as lines:  # noqa: PTH123  # between fork and exec
        found = (line.split() for line in lines if line.startswith(_CAPABILITY_SETS))
        return {name: int(value, 16) for name, value in found}


@contextlib.contextmanager
def failure_in_log() -> Iterator[None]:
    """Write the `OSError` of a block to stderr, which is the log, and raise it.

    What was there before the fork and fails now ends the process: none starts with less than its result says.
    """
    try:
        yield
    except OSError as error:
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"sandbox: {error}\n".encode())
        raise


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
