"""The models that this agent keeps: a content-addressed folder with a byte budget and LRU eviction.

<store>/sha256/ab/<sha256>   a file that hashes to its name
<store>/fetched/<sha256>     a mark: the file came from the farm and may be evicted; the time is its last use
<store>/incoming/<sha256>    the part of a file that has been fetched so far
"""

import errno
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.wire.messages import artifact_path
from agent.wire.private_folder import ARTIFACT_MODE
from runtime.common.durable import put_in_place

BUDGET_VARIABLE: Final = "FARM_AGENT_CACHE_BYTES"
DEFAULT_BUDGET_BYTES: Final = 20 << 30
"""Bytes of fetched models that an agent keeps without `FARM_AGENT_CACHE_BYTES`: 20 GiB, chosen to hold many
models on a small disk. Smaller fetches more often; larger can fill the disk of a small machine."""
FRESH_S: Final = 120.0
"""Seconds after its last use before a file may be evicted: a job that an earlier link passed to the daemon
may not have its work folder yet, so nothing else shows that the file is needed."""

_FREE_BYTES: Final = 64 << 20
"""Bytes of the disk that stay free besides the files: room for an attempt's work folder, journal and logs."""
_ABANDONED_S: Final = 86_400
"""Seconds without progress after which a partly fetched file is deleted: one day, the life of an envelope."""


def budget_from(environment: Mapping[str, str] = os.environ) -> int:
    """Return `$FARM_AGENT_CACHE_BYTES`, or the default. Raises `ValueError` naming the variable."""
    text = environment.get(BUDGET_VARIABLE)
    if not text:
        return DEFAULT_BUDGET_BYTES
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{BUDGET_VARIABLE}: {text!r} is not a number of bytes above 0")
    return int(text)


@dataclass(frozen=True, slots=True)
class Evictable:
    """A fetched file, which may be evicted. `used_at`: seconds since the epoch."""

    sha256: str
    size_bytes: int
    used_at: float


def to_evict(
    kept: Iterable[Evictable], in_use: Set[str], more_bytes: int, budget_bytes: int, fresh_after: float
) -> list[str]:
    """Choose files to evict so that `more_bytes` fit into the budget: the least recently used, none in use.

    They may free less than is needed.
    """
    files = sorted(kept, key=lambda file: file.used_at)
    over = sum(file.size_bytes for file in files) + more_bytes - budget_bytes
    chosen = []
    for file in files:
        if over <= 0:
            break
        if file.sha256 not in in_use and file.used_at < fresh_after:
            chosen.append(file.sha256)
            over -= file.size_bytes
    return chosen


@dataclass(slots=True)
class Cache:
    """One agent's models; any thread may call any method.

    `running` names those that runners use; `held`, by attempt, those that jobs wait for.
    """

    root: Path
    budget_bytes: int
    running: Callable[[], Set[str]]
    fresh_s: float = FRESH_S
    held: dict[str, frozenset[str]] = field(default_factory=dict)
    _verified: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    _coming: dict[str, int] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def knows(self, sha256: str, size: int) -> bool:
        """Whether the file is here, was verified and is unchanged since; it counts as used now."""
        stat = self._stat(sha256)
        if stat is None or stat[2] != size or self._verified.get(sha256) != stat:
            return False
        self._mark(sha256)
        return True

    def verify(self, sha256: str, size: int) -> bool:
        """Hash the file. One whose bytes do not hash to its name is deleted."""
        path = artifact_path(self.root, sha256)
        stat = self._stat(sha256)
        # Nothing is here, but its mark may be left.
        if stat is None:
            self.discard(sha256)
            return False
        # `stat` is of before: a file that changes while it is hashed is not known by it.
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if stat[2] != size or digest != sha256:
            self.discard(sha256)
            return False
        self._verified[sha256] = stat
        self._mark(sha256)
        return True

    def doubt(self, sha256: str) -> None:
        """Hash the file again before its next use: the daemon could not use it."""
        self._verified.pop(sha256, None)

    def incoming(self, sha256: str) -> Path:
        """Return where a file is stored while it is fetched. Raises `ValueError` for what is not a hash."""
        folder = self.root / "incoming"
        folder.mkdir(parents=True, exist_ok=True)
        # Called for its check alone: a name from a message must not lead out of the folder.
        artifact_path(self.root, sha256)
        return folder / sha256

    def admit(self, sha256: str, grown: Path) -> None:
        """Move a complete file whose hash was checked into the store, durably."""
        target = artifact_path(self.root, sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        # The mark before the name: after a power cut there is no file that could never be evicted.
        self._mark(sha256)
        grown.chmod(ARTIFACT_MODE)
        put_in_place(grown, target, self.root)
        stat = self._stat(sha256)
        if stat is not None:
            self._verified[sha256] = stat

    @contextmanager
    def room_for(self, sha256: str, size: int) -> Iterator[None]:
        """Evict until the file fits, and reserve its room while the block lasts.

        Raises `OSError` where it does not fit, with the figures.
        """
        with self._guard:
            # What other threads are fetching needs its room as well.
            self._make_room(size + sum(self._coming.values()))
            self._coming[sha256] = size
        try:
            yield
        finally:
            with self._guard:
                del self._coming[sha256]

    def has_room(self) -> bool:
        """Whether the disk has the free space that an attempt needs besides its files."""
        self.root.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.root).free >= _FREE_BYTES

    def _make_room(self, more_bytes: int) -> None:
        self._delete_abandoned()
        fresh_after = time.time() - self.fresh_s
        # A list of its own: other threads add and remove jobs meanwhile.
        in_use = frozenset(self.running()).union(*list(self.held.values()))
        for sha256 in to_evict(self._kept(), in_use, more_bytes, self.budget_bytes, fresh_after):
            self.discard(sha256)
        held = sum(file.size_bytes for file in self._kept())
        if held + more_bytes > self.budget_bytes:
            raise OSError(
                errno.EDQUOT,
                f"the cache of {self.budget_bytes} bytes holds {held} that are in use, and {more_bytes} more "
                f"do not fit; raise {BUDGET_VARIABLE} on the agent",
            )
        free = shutil.disk_usage(self.root).free
        if free < more_bytes + _FREE_BYTES:
            raise OSError(
                errno.ENOSPC,
                f"{free} bytes are free in {self.root}, {more_bytes} are needed; free some space",
            )

    def discard(self, sha256: str) -> None:
        """Delete a file, if it is here."""
        self._verified.pop(sha256, None)
        # The file before its mark, as `admit` has it: a crash in between leaves no file without a mark.
        artifact_path(self.root, sha256).unlink(missing_ok=True)
        (self.root / "fetched" / sha256).unlink(missing_ok=True)

    def _kept(self) -> list[Evictable]:
        found = []
        for mark in (self.root / "fetched").glob("*"):
            stat = self._stat(mark.name)
            # Another thread may discard it meanwhile: it needs no `_guard` for that.
            with suppress(FileNotFoundError):
                if stat is not None:
                    found.append(Evictable(mark.name, stat[2], mark.stat().st_mtime))
        return found

    def _delete_abandoned(self) -> None:
        """Delete partly fetched files that have not grown for a day."""
        self.root.mkdir(parents=True, exist_ok=True)
        limit = time.time() - _ABANDONED_S
        for path in (self.root / "incoming").glob("*"):
            # Another thread that has fetched it moves it away.
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < limit:
                    path.unlink()

    def _mark(self, sha256: str) -> None:
        mark = self.root / "fetched" / sha256
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def _stat(self, sha256: str) -> tuple[int, int, int] | None:
        path = artifact_path(self.root, sha256)
        try:
            found = path.lstat()
        except FileNotFoundError:
            return None
        if path.is_symlink() or not path.is_file():
            return None
        # A file that was replaced has another inode, one that was written to another time.
        return found.st_ino, found.st_mtime_ns, found.st_size
