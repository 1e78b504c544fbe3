"""A device's files on disk: programs and tuning results that outlive the process.

A cache must never do harm. A folder of another user is not used, since a program from it would run here; an
entry whose hash is wrong is made anew; a folder that is full or read-only costs time alone. Other processes
may read, write and remove entries at any moment.

What depends on the delegate's own code is named by the state of its source files (`own_state`).
"""

import hashlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from runtime.common.durable import is_draft, write_atomically

LIMIT_BYTES: Final = 4 << 30
"""Bytes that the folder may take. Kernels take a few megabytes per device and driver, a model's packed
weights as much as the model: this holds some hundred models for phones. Smaller makes models that are used in
turn start cold again, larger only takes disk space."""
_TARGET: Final = 0.75
"""Share of the limit that is left after a cleaning. Closer to 1, and nearly every write would clean."""
_SETTLED_S: Final = 3600.0
"""Seconds since its last use before an entry may be removed, and before a temporary file counts as left by a
killed process. No compiler takes as long; smaller could remove what another process is about to read."""
_FOLDER_MODE: Final = 0o700
"""Mode of the folder: a program that somebody else puts there would run here."""
_FILE_MODE: Final = 0o600
"""Mode of an entry: its user alone reads it, wherever the folder lies."""
_OTHERS_MAY_WRITE: Final = 0o022
"""Bits of a mode that let group or others write."""
_MARK: Final = b"delegate-farm cache 1\n"
"""First line of every entry; another form of entries gets another number, and older ones are made anew."""
_POCL_PROGRAMS: Final = "*/*"
"""Folders of programs in PoCL's own cache: two letters, then the rest of a hash."""
_TEMPORARY: Final = ("tmp", "tempfile")
"""Beginnings of the names of folders of compilations, and of files that PoCL is writing."""

_DRIVERS: Final = {
    "POCL_CACHE_DIR": "pocl",
    "CUDA_CACHE_PATH": "cuda",
    "AMD_COMGR_CACHE_DIR": "comgr",
    "NEO_CACHE_DIR": "neo",
    "MESA_SHADER_CACHE_DIR": "mesa",
}
"""Variables of PoCL, NVIDIA, AMD, Intel and Mesa for the folder of their own cache, and our folder's name."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Cache:
    """A folder of entries, each named by a key of letters and digits. Without a folder nothing is kept.

    `fault` says why the folder is not used, or no longer written to; empty while all is well.
    """

    folder: Path | None
    limit_bytes: int = LIMIT_BYTES
    fault: str = ""
    _is_swept: bool = field(default=False, repr=False)

    def read(self, kind: str, key: str) -> bytes | None:
        """Return the content of an entry; None if it is absent or damaged, and then remove it."""
        path = self.path(kind, key)
        if path is None:
            return None
        try:
            # An entry of another form keeps its first line, which is no digest, and so counts as damaged.
            head, _, content = path.read_bytes().removeprefix(_MARK).partition(b"\n")
            if head != _digest(content):
                _log.warning("gpu delegate: %s is damaged; it is made anew", path)
                path.unlink()
                return None
        except OSError:
            return None
        # The time of its last use; a process of an attempt may set none, nor may one that can only read.
        with suppress(OSError):
            os.utime(path)
        return content

    def write(self, kind: str, key: str, content: bytes) -> None:
        """Keep an entry; readers see all of it or nothing. The first write of a process cleans the folder."""
        path = self.path(kind, key)
        if path is None or self.fault:
            return
        try:
            path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            # Not synchronised: an entry that a power cut spoils has another hash, and is made anew.
            data = b"".join((_MARK, _digest(content), b"\n", content))
            write_atomically(path, data, _FILE_MODE, sync=False)
            if not self._is_swept:
                self._is_swept = True
                self.sweep()
        except OSError as error:
            self._say(f"{self.folder} cannot be written to ({error.strerror or error})")

    def path(self, kind: str, key: str) -> Path | None:
        """Return the path of the entry of `key`."""
        return None if self.folder is None else self.folder / kind / key

    def has_room(self, size: int) -> bool:
        """Return False for an entry that would push everything else out."""
        return size <= _TARGET * self.limit_bytes

    def driver_folders(self) -> dict[str, Path]:
        """Return the folders in which drivers keep what they compile, by the variables that name them.

        A driver whose folder cannot be written, as in a sandbox, would assemble each kernel in every start.
        """
        if self.folder is None:
            return {}
        return {variable: self.folder / name for variable, name in _DRIVERS.items()}

    @property
    def pocl_folder(self) -> Path | None:
        """The folder in which PoCL keeps the kernels that it compiles."""
        return None if self.folder is None else self.folder / "pocl"

    def sweep(self) -> None:
        """Remove what killed writers left; above the limit, also what was not used for longest."""
        now = time.time()
        entries = sorted(self._entries(), key=lambda entry: entry.used_s)
        settled = [entry for entry in entries if now - entry.used_s > _SETTLED_S]
        for entry in settled:
            if entry.is_temporary:
                entry.remove()
        total = sum(entry.size for entry in entries if not (entry.is_temporary and entry in settled))
        if total <= self.limit_bytes:
            return
        for entry in settled:
            if total <= self.limit_bytes * _TARGET:
                break
            if not entry.is_temporary:
                entry.remove()
                total -= entry.size

    def _entries(self) -> "Iterator[_Entry]":
        """Files of ours, and programs of PoCL."""
        if self.folder is None or self.pocl_folder is None:
            return
        for kind in (path for path in _children(self.folder) if path != self.pocl_folder):
            yield from (_Entry.of(path) for path in _children(kind))
        pocl = self.pocl_folder
        yield from (_Entry.of(path) for path in _children(pocl) if path.name.startswith(_TEMPORARY))
        yield from (_Entry.of(path) for path in pocl.glob(_POCL_PROGRAMS) if path.is_dir())

    def _say(self, fault: str) -> None:
        self.fault = fault
        _log.warning(
            "gpu delegate: the cache %s: the next start compiles again what this one cannot keep. Name a "
            "folder of your own with space left: the option cache_dir, or FARM_CACHE_DIR", fault,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file or a folder of files; `used_s`: when it was last written or read, in seconds since the epoch."""

    path: Path
    size: int
    used_s: float
    is_temporary: bool

    @classmethod
    def of(cls, path: Path) -> "_Entry":
        sizes, times = [0], [0.0]
        for file in (path, *path.rglob("*")):
            try:
                found = file.lstat()
            except OSError:
                continue
            sizes.append(found.st_size)
            times.append(found.st_mtime)
        is_temporary = is_draft(path) or path.name.startswith(_TEMPORARY)
        return cls(path, sum(sizes), max(times), is_temporary)

    def remove(self) -> None:
        # The files before their folders; what another process removes first, or adds meanwhile, stays.
        # Backwards by name a folder comes behind all that lies in it.
        for path in sorted(self.path.rglob("*"), reverse=True):
            _remove(path)
        _remove(self.path)


def cache_folder(chosen: str | None, environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the cache: `chosen`, else `FARM_CACHE_DIR`, else the user's cache.

    None where `chosen` is empty, which keeps nothing.
    """
    if chosen is not None:
        return Path(chosen) if chosen else None
    if environment.get("FARM_CACHE_DIR"):
        return Path(environment["FARM_CACHE_DIR"]) / "opencl"
    home = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME", ".")) / ".cache")
    return Path(home) / "delegate-farm" / "opencl"


def open_cache(folder: Path | None, limit_bytes: int = LIMIT_BYTES) -> Cache:
    """Open a folder as a cache, made where it is missing and closed to other users.

    One that cannot be made, or that belongs to another user, is not used; a line in the log says so.
    """
    cache = Cache(folder, limit_bytes)
    if folder is None:
        return cache
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        found = folder.stat()
        owner = "" if found.st_uid == os.geteuid() else f"{folder} belongs to user {found.st_uid}"
        # `mkdir` leaves the mode of a folder that exists as it was.
        if not owner and found.st_mode & _OTHERS_MAY_WRITE:
            folder.chmod(_FOLDER_MODE)
    except OSError as error:
        owner = f"{folder} cannot be used ({error.strerror or error})"
    if owner:
        cache.folder = None
        cache._say(owner)
    return cache


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _children(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()
    except OSError:
        pass


@cache
def own_digest() -> str:
    """Hash the delegate's own files: kernels, and the code that chooses and calls them."""
    folder = Path(__file__).parent.parent
    found = hashlib.sha256()
    for file in sorted((*folder.rglob("*.py"), *folder.rglob("*.cl"))):
        found.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return found.hexdigest()


_OTHERS: Final = ("model", "ops", "plan")
"""Packages of the runtime, besides the delegate's own, that decide what becomes of a partition: they read the
file, infer its shapes, and compute its constants and tables."""

_ENDINGS: Final = (".py", ".cl")


@cache
def own_state() -> str:
    """Return a hash of the names, sizes and times of all files that decide what becomes of a partition.

    It reads none of them, and so takes a start a few milliseconds.
    """
    own = Path(__file__).parent.parent
    folders = (own, *(own.parent.parent / name for name in _OTHERS))
    found = sorted(state for folder in folders for state in _states(os.fspath(folder)))
    return hashlib.sha256(repr(found).encode()).hexdigest()


def _states(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _states(entry.path)
            elif entry.name.endswith(_ENDINGS):
                state = entry.stat()
                yield entry.path, state.st_size, state.st_mtime_ns
