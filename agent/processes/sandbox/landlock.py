"""Landlock: limits the files that this process and its children may open, and whom they can reach outside.

The kernel's interface is linux/landlock.h and Documentation/userspace-api/landlock.rst. Each version of it
(ABI) adds rights; this module asks for all that the running kernel knows.
"""

import contextlib
import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from agent.processes.sandbox.kernel import system_call

_CREATE_RULESET: Final = 444
"""Number of landlock_create_ruleset(2), the same on every architecture."""
_ADD_RULE: Final = 445
"""Number of landlock_add_rule(2), the same on every architecture."""
_RESTRICT_SELF: Final = 446
"""Number of landlock_restrict_self(2), the same on every architecture."""
_ASK_VERSION: Final = 1
"""Flag LANDLOCK_CREATE_RULESET_VERSION: return the ABI and make nothing."""
_RULE_PATH_BENEATH: Final = 1
"""LANDLOCK_RULE_PATH_BENEATH: the rule is about a file, or about a folder and all below it."""

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE = 1 << 4, 1 << 5
_MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_SYM = 1 << 7, 1 << 8, 1 << 9, 1 << 10, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

LIST: Final = _READ_DIR
"""Rights to see the names in a folder."""
READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
"""Rights to list, to read and to execute."""
DEVICE: Final = _READ_FILE | _WRITE_FILE | _READ_DIR | _IOCTL_DEV
"""Rights on a device's node."""
APPEND: Final = _WRITE_FILE
"""Rights to write into a file that exists, without emptying it."""
WRITE: Final = (
    READ
    | _WRITE_FILE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_SOCK
    | _MAKE_FIFO
    | _MAKE_SYM
) | (_REFER | _TRUNCATE | _IOCTL_DEV)
"""Rights to do everything in a folder but make device nodes."""

_READING: Final = READ | _IOCTL_DEV
"""Rights that change no file."""
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""Rights that a rule about a single file may have."""
_HANDLED_SINCE: Final = ((1, (1 << 13) - 1), (2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV))
"""The rights by the ABI that brought them. A right that is handled and not granted is refused."""
_TCP: Final = 0b11
"""LANDLOCK_ACCESS_NET_BIND_TCP and _CONNECT_TCP, since ABI 4: handled and never granted."""
_SCOPES: Final = 0b11
"""LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and _SIGNAL, since ABI 6: neither leaves the sandbox."""

TRUNCATE_ABI: Final = 3
"""First ABI (Linux 6.2) that refuses to empty a file."""
SCOPED_ABI: Final = 6
"""First ABI (Linux 6.12) that keeps signals and abstract sockets inside."""


class _RulesetAttributes(ctypes.Structure):
    """struct landlock_ruleset_attr."""

    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    """struct landlock_path_beneath_attr."""

    # The kernel's structure is packed, too: 12 bytes, not 16.
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def supported_abi() -> int:
    """Return the kernel's version of Landlock; 0 where it has none or it is switched off."""
    try:
        return system_call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
    except OSError:
        return 0


def restrict(rules: Iterable[tuple[Path, int]], abi: int) -> None:
    """Refuse this process and its children every file but those of `rules` (path, rights), every TCP
    connection, and signals and abstract sockets to others, as far as the ABI can. A path that does not exist
    is left out.

    New privileges must be forbidden before. Raises `OSError`.
    """
    with _ruleset(_handled(abi), abi, network=_TCP) as add:
        _add_found(add, rules)


def restrict_writes(folders: Iterable[Path], also: Iterable[tuple[Path, int]], abi: int) -> None:
    """Refuse this process and its children to change any file but those beneath `folders` and those of `also`
    (path, rights), and signals and abstract sockets to others, as far as the ABI can. Reading stays as it is.

    New privileges must be forbidden before. Raises `OSError`, also where one of `folders` is none.
    """
    with _ruleset(_handled(abi) & ~_READING, abi, network=0) as add:
        for folder in folders:
            # Whoever could replace a folder by a link would choose what the next process may write.
            add(_opened(folder, os.O_DIRECTORY | os.O_NOFOLLOW), WRITE)
        _add_found(add, also)


def _handled(abi: int) -> int:
    return sum(rights for since, rights in _HANDLED_SINCE if since <= abi)


@contextlib.contextmanager
def _ruleset(handled: int, abi: int, network: int) -> Iterator[Callable[[int, int], None]]:
    """Make a ruleset, filled by the block with the yielded function (descriptor, rights), and enter it."""
    scopes = _SCOPES if abi >= SCOPED_ABI else 0
    attributes = _RulesetAttributes(handled, network if abi >= 4 else 0, scopes)
    # ABI 4 added a field (network), ABI 6 another one (scopes): each kernel gets the structure that it knows.
    size = 8 if abi < 4 else 16 if abi < SCOPED_ABI else 24
    ruleset = system_call(
        _CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    try:
        # The kernel refuses (EINVAL) a rule with a right that the ruleset does not handle.
        yield lambda descriptor, rights: _add(ruleset, descriptor, rights & handled)
        system_call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _add_found(add: Callable[[int, int], None], rules: Iterable[tuple[Path, int]]) -> None:
    """Add the rules of paths that exist: a process that cannot find one does not need the right either."""
    for path, rights in rules:
        try:
            descriptor = _opened(path)
        except OSError:
            continue
        add(descriptor, rights)


def _opened(path: Path, flags: int = 0) -> int:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "O_PATH of Linux")
    return os.open(path, os.O_PATH | os.O_CLOEXEC | flags)


def _add(ruleset: int, descriptor: int, rights: int) -> None:
    """Add the rule of an opened path, and close that."""
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            # A rule about a file that has rights of folders is refused, too.
            rights &= _OF_FILES
        if rights:
            rule = _PathBeneath(rights, descriptor)
            system_call(
                _ADD_RULE,
                ctypes.c_int(ruleset),
                ctypes.c_int(_RULE_PATH_BENEATH),
                ctypes.byref(rule),
                ctypes.c_uint32(0),
            )
    finally:
        os.close(descriptor)
