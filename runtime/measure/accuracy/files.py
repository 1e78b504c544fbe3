"""The files of a data set: a folder, a tar or a zip. Their names are held in one block of bytes."""

from __future__ import annotations

import os
import tarfile
import zipfile
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray

from runtime.errors import DataError
from runtime.measure.accuracy.zips import FIELDS, names_of_zip, read_member

SUFFIXES: Final = (".jpg", ".jpeg", ".png")

MOST_BYTES: Final = 1 << 28
"""Bytes of a file of a data set. Chosen: a small archive could otherwise unpack to fill the memory."""

_TABLE_BYTES: Final = 1 << 26
"""Bytes of the table by which names are sorted. Chosen: a million usual names; where a few are much
longer than the others, sorting takes a list of them instead."""


class Names(Sequence[str]):
    """Names in order, a sixth of a tuple's memory. `places`: where each was when they were given."""

    def __init__(self, block: bytes, ends: NDArray[np.uint32], places: NDArray[np.uint32]) -> None:
        self._block, self._ends, self.places = block, ends, places

    @classmethod
    def sorted(cls, names: Iterable[str]) -> Names:
        """Sort names by their characters' numbers."""
        block, ends = bytearray(), array("I")
        for name in names:
            block += name.encode("utf-8", "surrogateescape")
            ends.append(len(block))
        made = cls(bytes(block), np.array(ends), np.arange(len(ends), dtype=np.uint32))
        made.places = made._order()
        return made

    def _order(self) -> NDArray[np.uint32]:
        width, count = max(map(len, map(self._bytes, self.places)), default=0), len(self._ends)
        if width * count > _TABLE_BYTES:
            return np.array(sorted(self.places.tolist(), key=self._bytes), np.uint32)
        table = bytearray(width * count)
        for place in range(count):
            name = self._bytes(place)
            table[place * width : place * width + len(name)] = name
        rows = np.frombuffer(table, f"S{max(width, 1)}", count if width else 0)
        # UTF-8 sorts as the numbers of the characters do.
        return np.argsort(rows, kind="stable").astype(np.uint32)

    def _bytes(self, place: int) -> bytes:
        return self._block[self._ends[place - 1] if place else 0 : self._ends[place]]

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice | NDArray[np.bool_]) -> Names: ...
    def __getitem__(self, index: int | slice | NDArray[np.bool_]) -> str | Names:
        if isinstance(index, int):
            return self._bytes(int(self.places[index])).decode("utf-8", "surrogateescape")
        return Names(self._block, self._ends, self.places[index])


class Files:
    """The files of a folder or of an archive by their names; `/` divides the parts of a name."""

    def __init__(self, path: Path) -> None:
        """Raise `OSError`, and `DataError` for an archive of another kind."""
        self.path = path
        self._spans = array("Q")
        """Offset and size of a tar's members by their places, or what `read_member` takes of a zip's; empty
        for a folder. A `TarInfo` of each is a kilobyte."""
        self._is_zip = path.is_file() and zipfile.is_zipfile(path)
        if path.is_dir():
            self.names = Names.sorted(_of_folder(path, ""))
        elif self._is_zip:
            try:
                self.names = Names.sorted(names_of_zip(path, self._spans))
            except zipfile.BadZipFile as error:
                raise DataError(f"{path}: a damaged .zip: {error}") from error
        else:
            try:
                self.names = Names.sorted(_of_tar(path, self._spans))
            except tarfile.TarError as error:
                raise DataError(
                    f"{path}: neither a folder nor a .zip nor a plain .tar; unpack what is compressed"
                ) from error

    @property
    def pictures(self) -> Names:
        """Return the names of pictures, sorted."""
        found = (name.lower().endswith(SUFFIXES) for name in self.names)
        return self.names[np.fromiter(found, bool, len(self.names))]

    def where(self, name: str) -> str:
        """Return a file's name for a text."""
        return f"{self.path}: {name}"

    def has(self, name: str) -> bool:
        """Whether there is a file of this name."""
        index = bisect_left(self.names, name)
        return index < len(self.names) and self.names[index] == name

    def read(self, name: str) -> bytes:
        """Return the bytes of a file. Raises `DataError`."""
        if not self.has(name):
            raise DataError(f"{self.where(name)}: there is no such file")
        try:
            start, size = self._span(name)
            if size > MOST_BYTES:
                raise DataError(f"{self.where(name)}: {size} bytes; at most {MOST_BYTES}")
            if self._is_zip:
                return read_member(self.path, self._fields(name, FIELDS))
            with (self.path if self._spans else self.path / name).open("rb") as file:
                file.seek(start)
                return file.read(size)
        except (OSError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(f"{self.where(name)}: cannot be read: {error}") from error

    def _span(self, name: str) -> tuple[int, int]:
        """Return where a file begins in that which is opened, and its bytes."""
        if self._is_zip:
            return 0, self._fields(name, FIELDS)[2]
        if not self._spans:
            return 0, (self.path / name).stat().st_size
        start, size = self._fields(name, 2)
        return start, size

    def _fields(self, name: str, count: int) -> array[int]:
        """Return the numbers that are held of a member of an archive."""
        place = count * int(self.names.places[bisect_left(self.names, name)])
        return self._spans[place : place + count]


def _of_folder(folder: Path, inner: str) -> Iterator[str]:
    with os.scandir(folder) as found:
        for entry in found:
            # Links to folders are not followed: one to a folder above would never end.
            if entry.is_dir(follow_symlinks=False):
                yield from _of_folder(folder / entry.name, f"{inner}{entry.name}/")
            else:
                yield inner + entry.name


def _of_tar(path: Path, spans: array[int]) -> Iterator[str]:
    """Yield the names of files and append the span of each."""
    # "r:" refuses compression: members are read later, by their offsets in the file.
    with tarfile.open(path, "r:") as archive:
        while (member := archive.next()) is not None:
            if member.isfile():
                spans.extend((member.offset_data, member.size))
                yield member.name.removeprefix("./")
            archive.members.clear()  # type: ignore[attr-defined]  # it keeps all that it has read
