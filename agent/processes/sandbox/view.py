"""The files as one attempt's own user sees them: all read-only but what the attempt may write.

Files that only the agent may open (its state, a Python in root's home) are mounted with their owner mapped to
the attempt's user (id-mapped mounts, Linux 5.12, mount_setattr(2)): no owner and no mode changes on the disk,
what the attempt writes is the agent's, and to every other file of the host it is a stranger.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from agent.processes.sandbox import landlock
from agent.processes.sandbox.calls import number
from agent.processes.sandbox.kernel import mount, system_call, unshare

_NEW_USER: Final = 0x10000000
"""CLONE_NEWUSER of linux/sched.h."""
_AT_CWD: Final = -100
"""AT_FDCWD of linux/fcntl.h: paths are absolute here, and it is not looked at."""
_AT_EMPTY_PATH, _AT_RECURSIVE = 0x1000, 0x8000
"""AT_EMPTY_PATH and AT_RECURSIVE of linux/fcntl.h."""
_CLONE_TREE: Final = 1 | os.O_CLOEXEC
"""OPEN_TREE_CLONE and OPEN_TREE_CLOEXEC of linux/mount.h: a mount of its own, not in the tree yet."""
_FROM_DESCRIPTOR: Final = 4
"""MOVE_MOUNT_F_EMPTY_PATH of linux/mount.h."""
_READ_ONLY, _MAPPED = 1, 0x00100000
"""MOUNT_ATTR_RDONLY and MOUNT_ATTR_IDMAP of linux/mount.h."""
_REMOUNT_READ_ONLY: Final = 32 | 1
"""MS_REMOUNT and MS_RDONLY of linux/mount.h."""
_OTHERS: Final = {True: stat.S_IROTH | stat.S_IXOTH, False: stat.S_IROTH}
"""What everybody must have on a folder, and on a file, to read it."""
_OWN: Final = ("proc", "dev", "sys")
"""Trees of the kernel, which have no owners to map."""


class _Attributes(ctypes.Structure):
    """struct mount_attr."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users"))


def enter(rules: Iterable[tuple[Path, int]], user: int) -> None:
    """Make every mount of this process's namespace read-only but the paths that `rules` (path, rights of
    Landlock) let it write; map to `user`, as user and group, what nobody else could open.

    Raises `OSError` naming the path.
    """
    mapping = _mapping(user)
    named = {path: bool(rights & landlock.APPEND) for path, rights in rules if _is_own(path, rights)}
    # Read now: those below a closed folder are hidden once a new folder is mounted on it.
    links = {link: link.readlink() for path in named for link in (path, *path.parents) if link.is_symlink()}
    own = _outermost({path.resolve(): writable for path, writable in named.items()})
    # Cloned while they can be reached by their paths and are not read-only yet.
    trees = [(path, _tree(path, mapping, read_only=not writable)) for path, writable in own.items()]
    os.close(mapping)
    _set(_AT_CWD, "/", _AT_RECURSIVE, _Attributes(set=_READ_ONLY))
    closed = {above for path in own if (above := _closed_above(path)) is not None}
    for folder in closed:
        # An empty folder that others may pass, with only the attempt's paths in it, hides the closed one.
        mount("tmpfs", str(folder), "tmpfs", 0, "mode=755")
    # The agent's own mask would close the folders that are made now to the attempt's user.
    mask = os.umask(0o022)
    # A folder comes before what lies in it, which it would hide.
    for path, tree in sorted(trees, key=lambda found: len(found[0].parts)):
        _place(tree, path)
    for link, target in links.items():
        _place_link(link, target)
    os.umask(mask)
    for folder in closed:
        mount("none", str(folder), "", _REMOUNT_READ_ONLY)
    # The working folder may be a hidden one, into which relative paths would still lead.
    os.chdir("/")


def _outermost(own: dict[Path, bool]) -> dict[Path, bool]:
    """Return the paths (writable?) without those that a folder above gives the same rights, or more.

    A file that is a mount of its own could not be replaced.
    """
    return {
        path: writable
        for path, writable in own.items()
        # As numbers: writable (True) is more than readable (False).
        if not any(above in own and own[above] >= writable for above in path.parents)
    }


def _is_own(path: Path, rights: int) -> bool:
    """Whether the attempt's user could not use the path as it is; False where there is none."""
    if (path.parts[1:2] and path.parts[1] in _OWN) or not path.exists():
        return False
    return bool(rights & landlock.APPEND) or _closed_above(path) is not None or not _is_open(path)


def _is_open(path: Path) -> bool:
    mode = path.stat().st_mode
    wanted = _OTHERS[stat.S_ISDIR(mode)]
    return mode & wanted == wanted


def _closed_above(path: Path) -> Path | None:
    """Return the uppermost folder above a path that others may not pass."""
    return _closed(path.parent)


@cache
def _closed(folder: Path) -> Path | None:
    """Return the uppermost one of a folder and those above it that others may not pass."""
    closed = None if folder == folder.parent else _closed(folder.parent)
    return closed or (None if folder.stat().st_mode & stat.S_IXOTH else folder)


def _mapping(user: int) -> int:
    """Return the descriptor of a user namespace in which root is `user` and everybody else themselves."""
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            unshare(_NEW_USER)
            os.write(ready[1], b"1")
            # Its own copy of the writing end: the read below ends once the parent has closed the other one.
            os.close(done[1])
            os.read(done[0], 1)
        finally:
            os._exit(0)
    # So that reading ends where the child fails before it writes.
    os.close(ready[1])
    try:
        os.read(ready[0], 1)
        # First id inside, first id outside, how many (user_namespaces(7)): nobody else becomes `user`.
        for kind in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{kind}").write_text(f"0 {user} 1\n1 1 {user - 1}\n")
        # The descriptor keeps the namespace, whose only process ends as soon as `done` is closed.
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for end in (ready[0], *done):
            os.close(end)
        os.waitpid(child, 0)


def _tree(path: Path, mapping: int, *, read_only: bool) -> int:
    tree = _called("open_tree", ctypes.c_int(_AT_CWD), str(path).encode(), ctypes.c_uint(_CLONE_TREE))
    wanted = _MAPPED | (_READ_ONLY if read_only else 0)
    try:
        _set(tree, "", _AT_EMPTY_PATH, _Attributes(set=wanted, users=mapping))
    except OSError as error:
        raise OSError(error.errno, f"{path} cannot be mounted for a user of its own", str(path)) from error
    return tree


def _place(tree: int, path: Path) -> None:
    """Mount a tree where it was before, below what is new there."""
    is_folder = stat.S_ISDIR(os.fstat(tree).st_mode)
    if not path.exists():
        (path if is_folder else path.parent).mkdir(parents=True, exist_ok=True)
        if not is_folder:
            # A mount of a file needs a file in its place.
            path.write_bytes(b"")
    there = ctypes.c_int(_AT_CWD), str(path).encode()
    _called("move_mount", ctypes.c_int(tree), b"", *there, ctypes.c_uint(_FROM_DESCRIPTOR))
    os.close(tree)


def _place_link(link: Path, target: Path) -> None:
    """Make a link again that lay where a folder is new."""
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def _set(at: int, path: str, flags: int, attributes: _Attributes) -> None:
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _called(
        "mount_setattr", ctypes.c_int(at), path.encode(), ctypes.c_uint(flags), ctypes.byref(attributes), size
    )


def _called(name: str, *arguments: object) -> int:
    found = number(name, os.uname().machine)
    assert found is not None
    return system_call(found, *arguments)
