"""Packed constants in files, one for each buffer: mapped where they lie, shared by all processes.

A file belongs to a model, a device, and exactly the launches that read it. Hashing hundreds of megabytes with
every start would take longer than all the rest, so a file is hashed while it is written, and its *seal*, an
entry of the cache, holds the state that it then had: inode, size, and the times of its last change. A file in
that state is what was written. One in another state (copied, restored, touched) is hashed again, and either
gets a new seal or is removed.
"""

import hashlib
import logging
import mmap
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runtime.common.durable import replacing
from runtime.delegates.gpu.keep.cache import Cache, own_state
from runtime.delegates.gpu.layout.constants import packed
from runtime.delegates.gpu.layout.memory import Placement
from runtime.delegates.gpu.layout.source import function_of, parameters_of
from runtime.delegates.gpu.lowering.spec import Argument, PackedConstant
from runtime.model.fingerprint import fingerprint, sample
from runtime.model.graph import Model
from runtime.model.source import ModelBytes, file_state

Bytes: TypeAlias = NDArray[np.uint8]

_HEADER_BYTES: Final = 4096
"""Bytes in front of the constants, which drivers want at the start of a page; larger pages need more."""

_MARK: Final = b"delegate-farm packed constants 1"
"""First line of every file; another form of files gets another number, and older ones are made anew."""

_RELEASED: Final = 1 << 20
"""Bytes of a packed constant behind which the model's own pages are released, so that no weights are in
memory twice while they are packed. Smaller asks the kernel more often, for little."""

_CHUNK: Final = 4 << 20
"""Bytes that are read at a time where a file is hashed. Chosen; it hardly matters."""

_TOUCH_S: Final = 1800.0
"""Age of a file's last use above which a further use is noted. Noting changes the file's state, so that a
process which opens it at this moment has to hash it; smaller makes that likelier, and above the time after
which the cache may remove what was not used, files in use would go."""

_FILE_MODE: Final = 0o600
"""Mode of a file of constants: its user alone reads it."""

_OTHERS_MAY_WRITE: Final = 0o022
"""Bits of a mode that let group or others write."""

_log = logging.getLogger(__name__)


class Constants(Protocol):
    """The source of a recording's buffers of constants; `found`: keys and sizes of those in files."""

    @property
    def found(self) -> Mapping[int, tuple[str, int]]:
        """By the numbers of the buffers, once they were asked for."""

    def mapped(self, number: int) -> Bytes | None:
        """Return a buffer that is a mapped file, with what kernels may read behind it, or None."""

    def fill(self, number: int, content: Bytes) -> None:
        """Pack a buffer that is no file, with zeros wherever there is no constant."""


@dataclass(frozen=True, slots=True)
class PlacedConstants:
    """The constants of a placement, from `files` where they are kept.

    `slack` bytes are behind each buffer. `found` gets the key and the size of each that is a mapped file.
    """

    placement: Placement
    files: "PackedFiles | None"
    slack: int
    found: dict[int, tuple[str, int]] = field(default_factory=dict)

    def mapped(self, number: int) -> Bytes | None:
        """See `Constants`."""
        if self.files is None:
            return None
        content = self.files.constants(self.placement, number, self.slack)
        if content is not None:
            self.found[number] = (self.files.key(self.placement, number), content.size)
        return content

    def fill(self, number: int, content: Bytes) -> None:
        """See `Constants`."""
        end = 0
        for part in packed(self.placement.constants.offsets[number], content.size):
            content[end : end + part.size] = part
            end += part.size
            if self.files is not None:
                self.files.release_model(part.size)


@dataclass(frozen=True, slots=True)
class MappedConstants:
    """Buffers that were all found in files; None for those that have nothing in them."""

    buffers: Sequence[Bytes | None]
    found: Mapping[int, tuple[str, int]] = field(default_factory=dict)

    def mapped(self, number: int) -> Bytes | None:
        """See `Constants`."""
        return self.buffers[number]

    def fill(self, number: int, content: Bytes) -> None:  # noqa: ARG002 - the protocol's signature
        """See `Constants`; nothing has to be packed."""
        content[:] = 0


@dataclass(frozen=True, slots=True)
class PackedFiles:
    """The files of one model on one device, which `owner` names. `source` has the model's bytes.

    `may_write` says whether a file that is missing is made.
    """

    cache: Cache
    owner: str
    source: ModelBytes | None
    may_write: bool = True

    def constants(self, placement: Placement, number: int, slack: int) -> Bytes | None:
        """Return a buffer of constants and `slack` bytes behind them, mapped from its file, or None.

        Where the file is missing and may be written, it is made from what the placement packs.
        """
        key = self.key(placement, number)
        path = self.cache.path("constants", key)
        content = placement.constants.sizes[number]
        size = content + slack
        if path is None or not content:
            return None
        found = self._open(path, key, size)
        if found is None and self.may_write and not self.cache.fault and self.cache.has_room(size):
            parts = packed(placement.constants.offsets[number], size)
            found = self._make(path, key, size, parts)
        return found

    def release_model(self, packed_bytes: int) -> None:
        """Give up the model's own pages behind a large constant that was packed from them."""
        if self.source is not None and packed_bytes > _RELEASED:
            self.source.release()

    def known(self, key: str, size: int) -> Bytes | None:
        """Return a buffer of this key and size from its file; None where that is not what was written."""
        path = self.cache.path("constants", key)
        return None if path is None else self._open(path, key, size)

    def key(self, placement: Placement, number: int) -> str:
        """Return a hash of what decides what is packed in which order: owner, code and launches."""
        launches = [
            (
                function_of(launch),
                parameters_of(launch),
                launch.sources,
                [_described(argument) for argument in (*launch.args, *launch.epilogue.operands)],
            )
            for launch, buffer in zip(placement.launches, placement.constants.chosen, strict=True)
            if buffer == number
        ]
        offsets = [
            (_described(constant), offset) for constant, offset in placement.constants.offsets[number].items()
        ]
        content = repr((self.owner, own_state(), launches, offsets))
        return hashlib.sha256(content.encode()).hexdigest()

    def _open(self, path: Path, key: str, size: int) -> Bytes | None:
        try:
            with _opened(path) as descriptor:
                found = os.fstat(descriptor)
                whole = found.st_size == _HEADER_BYTES + size and _is_ours(found)
                digest = _digest_in(os.read(descriptor, _HEADER_BYTES), key) if whole else None
                seal = repr(file_state(descriptor)).encode()
                # The seal is the cheap check; only a file whose state has changed is hashed.
                if digest is None or (
                    self.cache.read("seals", key) != seal and _digest_of(descriptor) != digest
                ):
                    path.unlink()
                    return None
                if time.time() - found.st_mtime > _TOUCH_S:
                    with suppress(OSError):  # a folder that is only read
                        os.utime(descriptor)
                # Sealed after `utime`, which changes the state that a seal describes.
                self._seal(descriptor, key, seal)
                return _mapped(descriptor, size)
        except OSError:
            return None

    def _seal(self, descriptor: int, key: str, present: bytes = b"") -> None:
        seal = repr(file_state(descriptor)).encode()
        if seal != present or self.cache.read("seals", key) != seal:
            self.cache.write("seals", key, seal)

    def _make(self, path: Path, key: str, size: int, parts: Iterable[Bytes]) -> Bytes | None:
        """Written, not mapped: on a full disk a write fails, where a store would end the process."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with ExitStack() as stack:
                # Not synchronised: a file that a power cut spoils has another hash, and is packed anew.
                with replacing(path, _FILE_MODE, sync=False) as file:
                    # This file is mapped, whatever another process puts in its place meanwhile.
                    descriptor = os.dup(file.fileno())
                    stack.callback(os.close, descriptor)
                    if sys.platform != "darwin":  # which has no call that reserves room
                        os.posix_fallocate(descriptor, 0, _HEADER_BYTES + size)
                    file.seek(_HEADER_BYTES)
                    for part in parts:
                        digest.update(part.data)
                        file.write(part.data)
                        self.release_model(part.nbytes)
                    file.seek(0)
                    file.write(_header(key, digest.hexdigest()))
                # After the rename, which changes the state that a seal describes.
                self._seal(descriptor, key)
                # `Cache.write` sweeps only once in a process, but each of these files may exceed the limit.
                self.cache.sweep()
                return _mapped(descriptor, size)
        except OSError as error:
            _log.warning(
                "gpu delegate: %d bytes of packed constants are not kept in %s (%s): the next start packs "
                "them again, and each process has its own copy. Name a folder of your own with space left: "
                "the option serialization_dir, or FARM_CACHE_DIR", size, path.parent, error.strerror or error,
            )  # fmt: skip
            return None


def packed_files(
    model: Model, cache: Cache, settings: str, token: str | None, *, may_write: bool
) -> PackedFiles | None:
    """Return the files of a model's packed constants; None if nothing is kept, or the model has no bytes.

    `settings` names the device, and the options that change constants but no function. `token` stands for
    the model where it is given; a sample of the bytes counts too, so that one token of two models is seen.
    """
    if cache.folder is None:
        return None
    owner = model_token(model, cache) if token is None else repr((token, sample(model)))
    return None if owner is None else PackedFiles(cache, repr((owner, settings)), model.source, may_write)


def model_token(model: Model, cache: Cache) -> str | None:
    """Return the sha256 of a model's bytes, which the cache remembers, or None without them."""
    # The state of a model's own file says nothing of external buffers, which lie in other files.
    if model.source is None or not model.source.file or model.external:
        return fingerprint(model)
    key = hashlib.sha256(repr(model.source.file).encode()).hexdigest()
    known = cache.read("tokens", key)
    if known is not None:
        return known.decode()
    found = fingerprint(model)
    if found is not None:
        cache.write("tokens", key, found.encode())
    return found


def _described(argument: Argument) -> object:
    """Describe an argument without the function that packs it, which is new in every process."""
    if isinstance(argument, PackedConstant):
        return (argument.name, argument.elements, argument.type.name)
    return argument


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_ours(found: os.stat_result) -> bool:
    is_closed = not found.st_mode & _OTHERS_MAY_WRITE
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and is_closed


def _header(key: str, digest: str) -> bytes:
    return b"\n".join((_MARK, key.encode(), digest.encode(), b"")).ljust(_HEADER_BYTES, b"\0")


def _digest_in(header: bytes, key: str) -> str | None:
    """Return the hash of the constants in a header; None for the header of something else."""
    lines = header.split(b"\n")
    is_known = len(lines) == len(_header("", "").split(b"\n")) and lines[:2] == [_MARK, key.encode()]
    return lines[2].decode("ascii", "replace") if is_known else None


def _digest_of(descriptor: int) -> str:
    digest, place = hashlib.sha256(), _HEADER_BYTES
    while part := os.pread(descriptor, _CHUNK, place):
        digest.update(part)
        place += len(part)
    return digest.hexdigest()


def _mapped(descriptor: int, size: int) -> Bytes:
    whole = mmap.mmap(descriptor, _HEADER_BYTES + size, access=mmap.ACCESS_READ)
    # The array keeps the mapping alive, even after the file has been removed.
    return np.frombuffer(whole, np.uint8, offset=_HEADER_BYTES)
