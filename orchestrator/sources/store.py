"""The content-addressed store of models and sample files, shared with the embedded agent.

An artifact lives at `sha256/ab/<64 hex digits>` and nowhere else; a name from outside is never a path.
"""

import errno
import hashlib
import math
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from agent.wire.messages import artifact_path
from agent.wire.private_folder import ARTIFACT_MODE, FILE_MODE
from orchestrator.config.limits import StoreLimits, require_floor
from orchestrator.errors import FarmError, UsageError
from runtime.common.durable import create_once, open_lock, put_in_place

DEFAULT_MAX_BYTES = 2 * 1024**3
"""Bytes of one artifact, where no limit is given: a FlatBuffer's offsets are signed 32-bit numbers."""

_UNNAMED = "unnamed"
"""Folder with a mark, named by hash and sender, of each file that a user sent and no campaign names yet."""

_CHUNK_BYTES = 1024 * 1024
"""Bytes of one read while a file is copied in; after each, the disk's free space is checked again."""


def _anything(_file: BinaryIO, _what: str) -> None:
    """Accept every content: samples are text that an agent wrote."""


class TooLargeError(UsageError):
    """A file is larger than the store accepts."""


class Readable(Protocol):
    """An input that is read in pieces: a file, an answer, a body."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; empty at the end."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One artifact of the store."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of artifacts. A file larger than `max_bytes` is refused while it is read, and so is one that
    would take the free space that `limits` keeps.
    """

    root: Path
    max_bytes: int = DEFAULT_MAX_BYTES
    limits: StoreLimits | None = None

    def find(self, sha256: str) -> StoredFile | None:
        """Find the artifact; None if the store lacks it. Raises `ValueError` for anything but a sha256."""
        path = artifact_path(self.root, sha256)
        if path.is_symlink() or not path.is_file():
            return None
        return StoredFile(sha256, path.stat().st_size)

    def path(self, sha256: str) -> Path:
        """Return the path of the artifact. Raises `FarmError` if the store lacks it."""
        if self.find(sha256) is None:
            raise FarmError(f"the store {self.root} has no artifact {sha256}; submit the campaign again")
        return artifact_path(self.root, sha256)

    def open(self, sha256: str) -> BinaryIO:
        """Open the artifact. Raises `FileNotFoundError`; `ValueError` for anything but a sha256; `OSError`
        where this process can open no file at all.
        """
        path = artifact_path(self.root, sha256)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            # A link too (ELOOP): the store makes none, so it is no artifact.
            raise FileNotFoundError(errno.ENOENT, "not in the store", sha256) from error
        return os.fdopen(descriptor, "rb")

    def touch(self, sha256: str) -> bool:
        """Mark the artifact as needed, so that it is not collected; False: the store lacks it."""
        if self.find(sha256) is None:
            return False
        try:
            os.utime(artifact_path(self.root, sha256), follow_symlinks=False)
        except FileNotFoundError:
            # Collected since `find`.
            return False
        return True

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep everything in the store until the block ends; several processes may do so at once."""
        with self._lock(shared=True):
            yield

    @contextmanager
    def collecting(self, wait_s: float = math.inf) -> Iterator[None]:
        """Hold the right to delete unreferenced artifacts; waits until no process is `in_use`.

        Raises `BlockingIOError` where one still is after `wait_s`.
        """
        with self._lock(shared=False, wait_s=wait_s):
            yield

    def _lock(self, *, shared: bool, wait_s: float = math.inf) -> BinaryIO:
        """Wait for the store's lock; closing what is returned frees it. Raises `FarmError`."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            # An error that says that somebody has the lock is passed on as it is.
            return open_lock(self.root / "lock", shared=shared, wait_s=wait_s)
        except BlockingIOError:
            raise
        except OSError as error:
            raise _mapped(error, "its lock", self.root) from error

    def put(
        self,
        stream: Readable,
        what: str,
        expected_sha256: str | None = None,
        require: Callable[[BinaryIO, str], None] = _anything,
    ) -> StoredFile:
        """Copy a stream in, hashing it on the way; the file appears whole or not at all.

        Raises `TooLargeError` above `max_bytes` and `UsageError` where it is not what `expected_sha256`
        and `require` say; `what` names it in the message. Raises `FarmError` where the disk has no room.
        """
        digest = hashlib.sha256()
        size = 0
        with self._incoming(what) as (temporary, out):
            while chunk := stream.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > self.max_bytes:
                    raise too_large(what, self.max_bytes)
                # For each chunk: a stream announces no size, and other programs fill the disk meanwhile.
                if self.limits is not None:
                    require_floor(self.root, self.limits, len(chunk))
                digest.update(chunk)
                out.write(chunk)
            out.flush()
            # The copy is checked, not the stream, which can be read only once.
            with temporary.open("rb") as copy:
                require(copy, what)
            sha256 = digest.hexdigest()
            if expected_sha256 is not None and sha256 != expected_sha256:
                raise wrong_hash(what, expected_sha256, sha256)
            self._admit(temporary, sha256)
        return StoredFile(sha256, size)

    def identity(self) -> str:
        """Return the random name of this store, unlike any other's; made by the first call. Raises
        `FarmError`.
        """
        path = self.root / "identity"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                create_once(path, secrets.token_hex(16).encode(), FILE_MODE)
            # Read back, since another process may have made it first.
            return path.read_text()
        except OSError as error:
            raise _mapped(error, "its identity", self.root) from error

    def incoming(self, sha256: str, sender: str = "") -> Path:
        """Path of a file that arrives in several pieces. Raises `ValueError` for anything but a sha256.

        Every sender has a file of its own: nobody spoils or blocks what somebody else sends.
        """
        # Called for its check: nothing but a sha256 becomes part of a path.
        artifact_path(self.root, sha256)
        folder = self.root / "incoming"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / (f"{sha256}.{_short(sender)}" if sender else sha256)

    def size_of_incoming(self, sha256: str, sender: str = "") -> int:
        """Return the bytes of such a file that have arrived. Raises `ValueError` for no sha256."""
        try:
            return self.incoming(sha256, sender).stat().st_size
        except FileNotFoundError:
            return 0

    def bytes_of_sender(self, sender: str) -> int:
        """Return the bytes of all files of a sender that are unfinished, or that no campaign names."""
        found = 0
        for path in (self.root / "incoming").glob(f"*.{_short(sender)}"):
            with suppress(FileNotFoundError):
                found += path.stat().st_size
        whole = (self.root / _UNNAMED).glob(f"*.{_short(sender)}")
        return found + sum(self._stat(mark.name.partition(".")[0])[0] for mark in whole)

    def adopt(
        self, sha256: str, what: str, require: Callable[[BinaryIO, str], None] = _anything, sender: str = ""
    ) -> StoredFile:
        """Store a file that has arrived completely; one whose hash differs from its name, or that is not what
        `require` says, is deleted.

        Raises `UsageError`, naming it `what`.
        """
        path = self.incoming(sha256, sender)
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
            try:
                if found != sha256:
                    raise wrong_hash(what, sha256, found)
                file.seek(0)
                require(file, what)
            except UsageError:
                path.unlink()
                raise
        # Read-only before it has its name, from which on other processes may map it.
        path.chmod(ARTIFACT_MODE)
        self._admit(path, sha256)
        if sender:
            mark = self.root / _UNNAMED / f"{sha256}.{_short(sender)}"
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch(FILE_MODE)
        return StoredFile(sha256, size)

    def named(self, sha256: str) -> None:
        """Forget who brought a file: a campaign names it, and it counts for nobody any more.

        Raises `ValueError` for anything but a sha256.
        """
        # Called for its check: any other text is a pattern, which may lead out of the folder.
        artifact_path(self.root, sha256)
        for mark in (self.root / _UNNAMED).glob(f"{sha256}.*"):
            mark.unlink(missing_ok=True)

    def unnamed(self, before_s: float) -> set[str]:
        """Return the files that were sent, or asked for, before a time and that no campaign named since."""
        sent = {mark.name.partition(".")[0] for mark in (self.root / _UNNAMED).glob("*")}
        return {sha256 for sha256 in sent if self._stat(sha256)[1] < before_s}

    def forget(self, sha256: str) -> None:
        """Delete a file that nothing names; the caller is `collecting`. Raises `ValueError` as `find`."""
        artifact_path(self.root, sha256).unlink(missing_ok=True)
        self.named(sha256)

    def _stat(self, sha256: str) -> tuple[int, float]:
        """Return an artifact's size in bytes, and when it was last needed; 0 for both where it is gone."""
        try:
            found = artifact_path(self.root, sha256).lstat()
        except FileNotFoundError:
            return 0, 0.0
        return found.st_size, found.st_mtime

    @contextmanager
    def _incoming(self, what: str) -> Iterator[tuple[Path, BinaryIO]]:
        folder = self.root / "incoming"
        temporary = folder / secrets.token_hex(16)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Read-only from the start: other processes map the file, and nothing may change it under them.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(temporary, flags, ARTIFACT_MODE), "wb") as out:
                yield temporary, out
        except OSError as error:
            raise _mapped(error, what, self.root) from error
        finally:
            # A file that was admitted has been moved away already.
            with suppress(OSError):
                temporary.unlink()

    def _admit(self, path: Path, sha256: str) -> None:
        target = artifact_path(self.root, sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        put_in_place(path, target, self.root)


def _short(sender: str) -> str:
    """Return a name of a sender that any file system takes, and that no other sender has."""
    return hashlib.sha256(sender.encode()).hexdigest()[:16]


def too_large(what: str, most_bytes: int, size_bytes: int | None = None) -> TooLargeError:
    """Build the error for a file above the limit, with its size if it is known."""
    found = "" if size_bytes is None else f": it has {size_bytes}"
    return TooLargeError(
        f"{what}: larger than {most_bytes} bytes{found}; that is the limit of the store (FARM_ARTIFACT_BYTES)"
    )


def wrong_hash(what: str, expected: str, found: str) -> UsageError:
    """Build the error for content with another sha256 than was pinned or announced."""
    return UsageError(
        f"{what}: wrong sha256\n  expected {expected}\n  found    {found}\n"
        "the content differs from what was pinned; check the source, or pin the new hash"
    )


def _mapped(error: OSError, what: str, root: Path) -> FarmError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FarmError(f"{what}: no space left for the store in {root}; free some or set FARM_HOME")
    return FarmError(f"{what}: cannot be copied to the store in {root}: {error.strerror}")
