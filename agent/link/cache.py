"""The models that this agent keeps: a content-addressed folder with a byte budget, least recently used first.

<store>/sha256/ab/<sha256>   a file that hashes to its name
<store>/fetched/<sha256>     it came from the farm, so it may go again; last used at the mark's time
<store>/incoming/<sha256>    the beginning of a file that is under way
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.wire.messages import artifact_path

BUDGET_VARIABLE: Final = "FARM_AGENT_CACHE_BYTES"
DEFAULT_BUDGET_BYTES: Final = 20 << 30
FRESH_S: Final = 120.0
"""So long after its last use nothing is evicted: a job that a former link handed down has no folder yet."""

_FREE_BYTES = 64 << 20


def budget_from(environment: Mapping[str, str] = os.environ) -> int:
    """`$FARM_AGENT_CACHE_BYTES`. Raises `ValueError` naming the variable."""
    said = environment.get(BUDGET_VARIABLE)
    if not said:
        return DEFAULT_BUDGET_BYTES
    if not said.isdecimal() or int(said) == 0:
        raise ValueError(f"{BUDGET_VARIABLE}: {said!r} is no number of bytes above 0")
    return int(said)


@dataclass(frozen=True, slots=True)
class Kept:
    """A file that may go. `used_at`: seconds since the epoch."""

    sha256: str
    size_bytes: int
    used_at: float


def to_evict(
    kept: Iterable[Kept], in_use: Set[str], more_bytes: int, budget_bytes: int, fresh_after: float
) -> list[str]:
    """What has to go so that `more_bytes` fit into the budget: those used longest ago, none that is in use.

    It may be less than is needed.
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
        """Whether the file is here, was found intact and is unchanged since; it counts as used now."""
        stat = self._stat(sha256)
        if stat is None or stat[2] != size or self._verified.get(sha256) != stat:
            return False
        self._mark(sha256)
        return True

    def verify(self, sha256: str, size: int) -> bool:
        """Hash the file; one that is not what its name says is deleted."""
        path = artifact_path(self.root, sha256)
        stat = self._stat(sha256)
        if stat is None:
            self.discard(sha256)
            return False
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if stat[2] != size or digest != sha256:
            self.discard(sha256)
            return False
        self._verified[sha256] = stat
        self._mark(sha256)
        return True

    def doubt(self, sha256: str) -> None:
        """Somebody found it wanting: hash it before it is used again."""
        self._verified.pop(sha256, None)

    def incoming(self, sha256: str) -> Path:
        """Where a file grows while it is fetched."""
        folder = self.root / "incoming"
        folder.mkdir(parents=True, exist_ok=True)
        artifact_path(self.root, sha256)
        return folder / sha256

    def admit(self, sha256: str, grown: Path) -> None:
        """Take in a complete file whose hash was checked, durably."""
        target = artifact_path(self.root, sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        with grown.open("rb") as file:
            os.fsync(file.fileno())
        self._mark(sha256)
        grown.chmod(0o444)
        grown.replace(target)
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        stat = self._stat(sha256)
        if stat is not None:
            self._verified[sha256] = stat

    @contextmanager
    def room_for(self, sha256: str, size: int) -> Iterator[None]:
        """Evict until the file fits, and keep its room while the block lasts.

        Raises `OSError` where it does not fit, with the figures.
        """
        with self._guard:
            self._make_room(size + sum(self._coming.values()))
            self._coming[sha256] = size
        try:
            yield
        finally:
            with self._guard:
                del self._coming[sha256]

    def has_room(self) -> bool:
        """Whether the disk has what an attempt needs besides its files."""
        self.root.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.root).free >= _FREE_BYTES

    def _make_room(self, more_bytes: int) -> None:
        self._drop_old_beginnings()
        fresh_after = time.time() - self.fresh_s
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
                f"{free} bytes are free in {self.root}, {more_bytes} are to come; free some space",
            )

    def discard(self, sha256: str) -> None:
        """Delete a file, if it is here."""
        self._verified.pop(sha256, None)
        artifact_path(self.root, sha256).unlink(missing_ok=True)
        (self.root / "fetched" / sha256).unlink(missing_ok=True)

    def _kept(self) -> list[Kept]:
        found = []
        for mark in (self.root / "fetched").glob("*"):
            stat = self._stat(mark.name)
            if stat is not None:
                found.append(Kept(mark.name, stat[2], mark.stat().st_mtime))
        return found

    def _drop_old_beginnings(self) -> None:
        """A transfer that nobody goes on with for a day is given up."""
        self.root.mkdir(parents=True, exist_ok=True)
        limit = time.time() - 86_400
        for path in (self.root / "incoming").glob("*"):
            if path.stat().st_mtime < limit:
                path.unlink(missing_ok=True)

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
        return found.st_ino, found.st_mtime_ns, found.st_size
