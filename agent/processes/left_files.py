"""Opens, marks, counts and removes what a runner leaves in its folder, where it may put anything.

No other module of the agent touches what lies below an attempt's folder (`tests/house/test_left_files.py`).
"""

import contextlib
import errno
import os
import secrets
import stat
import sys
from io import BufferedReader
from pathlib import Path
from typing import Final

LOG_FILE: Final = "log"
"""File in the folder of a launch: stdout and stderr of the process and of everything that it starts."""

MOST_REMOVED: Final = 200_000
"""Files and folders that one removal takes away. Chosen: a runner leaves tens, and these take a second or
two, in which the agent sends no heartbeat. What is left then goes at the agent's next start."""

MOST_COUNTED: Final = 100_000
"""Files and folders of program caches that are counted. Chosen: a thousand times what the largest model's
starts leave; a delegate that makes more must not hold up the verdict."""

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_left(path: Path) -> BufferedReader:
    """Open a regular file with one name. Raises `OSError` for a link, a pipe and anything else.

    A link could lead to a file that the agent may read and its runner may not, such as the agent's
    credentials; opening a pipe would wait for a writer for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    # Of the descriptor: whatever the runner puts at the path from now on, this file is the one that is read.
    status = os.fstat(descriptor)
    # O_NOFOLLOW does not see a hard link; only the number of names tells it.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file with one name", path.name)
    return os.fdopen(descriptor, "rb")


def is_left(path: Path) -> bool:
    """Whether anything has this name, a link that leads nowhere included."""
    return os.path.lexists(path)


def mark(path: Path) -> None:
    """Make an empty file, unless something has its name already: a link there is not followed."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))


def bytes_left(folder: Path) -> int | None:
    """Return the bytes of all files below; None where a delegate left something unreadable, or too much."""
    total, seen, pending = 0, 0, [str(folder)]
    try:
        while pending:
            # What is removed meanwhile has no bytes.
            with contextlib.suppress(FileNotFoundError), os.scandir(pending.pop()) as entries:
                for entry in entries:
                    seen += 1
                    if seen > MOST_COUNTED:
                        return None
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        return None
    return total


def remove_left(folder: Path, most: int = MOST_REMOVED) -> bool:
    """Remove a folder with all that is in it, however deep it is and whatever the modes are; follow no link.

    Returns whether nothing is left. Call it once no process lives that could write there.
    """
    try:
        _open_to_its_owner(folder, None)
        top = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return True
    except OSError:
        with contextlib.suppress(OSError):
            # No folder, but a file or a link in its place.
            folder.unlink()
        return not is_left(folder)
    try:
        _empty(top, most)
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not is_left(folder)


def _empty(top: int, most: int) -> None:
    """Remove what a folder holds. What its folders hold is moved up first, so that nothing gets deeper."""
    left = most
    while left > 0 and (names := _names(top)):
        before = left
        for name in names[:left]:
            with contextlib.suppress(OSError):
                if _is_folder(name, top):
                    left -= _lift(top, name, left)
                    os.rmdir(name, dir_fd=top)
                else:
                    os.unlink(name, dir_fd=top)
                left -= 1
        # Nothing could be removed in a whole pass, nor can it be in another one.
        if left == before:
            return


def _lift(top: int, name: str, most: int) -> int:
    """Remove the files of a folder and move its folders beside it. Returns how many. Raises `OSError`."""
    _open_to_its_owner(name, top)
    inner = os.open(name, _FOLDER, dir_fd=top)
    try:
        entries = _names(inner)[:most]
        for entry in entries:
            if _is_folder(entry, inner):
                # A folder that moves gets another `..`, for which its
                # owner must be able to write in the folder itself.
                _open_to_its_owner(entry, inner)
                # A random name is none that the runner gave to another entry of `top`.
                os.rename(entry, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(entry, dir_fd=inner)
        return len(entries)
    finally:
        os.close(inner)


def _names(folder: int) -> list[str]:
    return os.listdir(folder)  # a path cannot be as long as it may be deep


def _is_folder(name: str, above: int) -> bool:
    return stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode)


def _open_to_its_owner(name: str | Path, above: int | None) -> None:
    """Give a folder the mode by which its owner can empty it. Raises `OSError` where it is none."""
    if sys.platform == "darwin":
        if not stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(name))
        # Of a link that takes its place, this changes the link.
        os.chmod(name, stat.S_IRWXU, dir_fd=above, follow_symlinks=False)
        return
    held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        if stat.S_IMODE(os.fstat(held).st_mode) & stat.S_IRWXU != stat.S_IRWXU:
            # fchmod(2) refuses a descriptor of O_PATH; this name
            # leads to the same folder, whatever its path now is.
            Path(f"/proc/self/fd/{held}").chmod(stat.S_IRWXU)
    finally:
        os.close(held)
