"""System calls that Python does not have, as functions that raise `OSError`."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_PR_CAPBSET_READ: Final = 23
"""Option of prctl(2), from linux/prctl.h: whether a capability is in the bounding set."""
_PR_CAPBSET_DROP: Final = 24
"""Option of prctl(2), from linux/prctl.h: take a capability out of the bounding set."""
_PR_SET_NO_NEW_PRIVS: Final = 38
"""Option of prctl(2), from linux/prctl.h: no program that is executed from now on gives more rights."""


def system_call(number: int, *arguments: object) -> int:
    """Make a system call by its number. Raises `OSError`."""
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


def drop_capabilities() -> None:
    """Empty the bounding set: the next exec leaves even root without a capability. Raises `OSError`."""
    capability = 0
    while _LIBC.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) >= 0:
        _checked(_LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0), "prctl(PR_CAPBSET_DROP)")
        capability += 1


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
