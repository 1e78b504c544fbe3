"""Weights that lie in files of their own (`ExternalBuffer` of schema.fbs), found by a loader hook.

A hook receives the name of a group, which is a file, and returns its bytes. `files_beside` is the hook for
models on disk; a caller that keeps weights elsewhere passes another to `read_model` or `load_model`.
"""

import mmap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

from runtime.errors import ModelFormatError
from runtime.model.flatbuffer import Table, describe

ExternalLoader: TypeAlias = Callable[[str], "bytes | memoryview"]


@dataclass(frozen=True, slots=True)
class ExternalBuffer:
    """`length` bytes from `offset` of the file `group`; `packing` is empty where they are not encoded."""

    id: int
    group: str
    offset: int
    length: int
    packing: str = ""

    def view(self, load: ExternalLoader) -> memoryview:
        """Return the bytes. Raises `ModelFormatError` where the file does not hold them."""
        where = f"external buffer {self.id}"
        if self.packing:
            raise ModelFormatError(f"{where}: the packing {self.packing!r} is not supported")
        content = memoryview(load(self.group))
        if self.length > len(content) or self.offset > len(content) - self.length:
            wanted = f"{self.length} bytes at offset {self.offset} of {self.group!r}"
            raise ModelFormatError(f"{where}: {wanted}, which has {len(content)}")
        return content[self.offset : self.offset + self.length]


def read_external(root: Table) -> dict[int, ExternalBuffer]:
    """Return the external buffers by id. Raises `ModelFormatError` for one without its group."""
    groups = [table.string(0, "name") or "" for table in root.tables(8, "external_buffer_groups")]
    found: dict[int, ExternalBuffer] = {}
    for table in root.tables(9, "external_buffers"):
        number, group = table.scalar(0, "id", "I"), table.scalar(1, "group", "I")
        if group >= len(groups):
            raise ModelFormatError(f"{describe(table.path)}: group {group} of {len(groups)}")
        if number == 0 or number in found:
            raise ModelFormatError(f"{describe(table.path)}: id {number} is 0 or used twice")
        found[number] = ExternalBuffer(
            id=number,
            group=groups[group],
            offset=table.scalar(2, "offset", "Q"),
            length=table.scalar(3, "length", "Q"),
            packing=table.string(4, "packing") or "",
        )
    return found


def files_beside(model: Path) -> ExternalLoader:
    """Return a hook that maps files in the folder of `model`; names that leave the folder are refused."""

    @cache
    def load(name: str) -> memoryview:
        try:
            path = (model.parent / name).resolve()
            # The second test looks at the resolved path: a link beside the model must not lead out of the
            # folder either.
            if Path(name).name != name or path.parent != model.parent.resolve():
                raise ModelFormatError(f"{model}: weights in {name!r}, which is not a file beside the model")
            with path.open("rb") as file:
                return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ModelFormatError:
            raise
        except (OSError, ValueError) as error:
            raise ModelFormatError(f"{model}: its weights in {name!r} cannot be read: {error}") from error

    return load


def groups_of(buffers: Iterable[ExternalBuffer]) -> Mapping[str, int]:
    """Return the number of each group, in the order of first use."""
    return {name: i for i, name in enumerate(dict.fromkeys(b.group for b in buffers))}
