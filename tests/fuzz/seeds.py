"""Real files to start from, each with the places where its structure lies."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from runtime.errors import ModelFormatError
from runtime.model.flatbuffer import Table
from runtime.model.reader import read_model
from runtime.model.skeleton import restore_skeleton
from tests.needs import REPOSITORY, SHARED

OPERATORS = Path(__file__).with_name("operators.zip")
"""Small models of every operator, which `collect.py` gathers."""

RUNNABLE_BYTES = 1 << 20
"""Larger files take too long to run thousands of times."""

_SMALL_ZOO = ("*mobilenet_v3_small*.skel", "*shufflenet*.skel", "*mnasnet*.skel", "hf_mobilevit_small.skel")
_DEMO = (
    "torchvision_efficientnet_b0",
    "torchvision_mobilenet_v2",
    "torchvision_mobilenet_v2__static_int8",
    "torchvision_mobilenet_v3_small",
    "torchvision_resnet18",
    "torchvision_squeezenet1_1",
)


@dataclass(frozen=True)
class Seed:
    """A file that is mutated in place and put right again. `places`: (offset, bytes) of its structure."""

    name: str
    data: bytearray
    places: tuple[tuple[int, int], ...]
    is_model: bool


def shared_files() -> list[Path]:
    """Return the trained models beside the repository; empty if there are none."""
    return sorted((SHARED / "models" / "vendored").rglob("*.tflite"))


def zoo_files() -> list[Path]:
    """Small skeletons of the repository, and of other kinds beside it."""
    own, beside = REPOSITORY / "examples" / "zoo", SHARED / "models" / "zoo"
    found = {path.name: path for pattern in _SMALL_ZOO for path in beside.glob(pattern)}
    found |= {path.name: path for path in (own / f"{name}.skel" for name in _DEMO)}
    return [found[name] for name in sorted(found)]


def seeds(files: list[Path], corpus: Path | None = None) -> Iterator[Seed]:
    """Yield a seed for each file; skeletons are restored. Files of a corpus need not be models."""
    for path in files:
        data = path.read_bytes()
        yield seed(path.stem, restore_skeleton(data) if path.suffix == ".skel" else bytearray(data))
    for path in sorted(corpus.iterdir()) if corpus else ():
        yield seed(path.name, bytearray(path.read_bytes()))


def operator_seeds() -> Iterator[Seed]:
    """Yield a seed for each operator, in the types that its kernels tell apart."""
    with zipfile.ZipFile(OPERATORS) as archive:
        for name in sorted(archive.namelist()):
            yield seed(name, bytearray(archive.read(name)))


def seed(name: str, data: bytearray) -> Seed:
    """Read the file once, and remember every place that the reader looked at."""
    places: set[tuple[int, int]] = set()
    original_init, original_field, original_vector = Table.__init__, Table._field, Table._vector

    def init(self: Table, buffer: Any, position: int, path: Any) -> None:
        original_init(self, buffer, position, path)
        vtable = position - int.from_bytes(buffer.view[position : position + 4], "little", signed=True)
        places.update({(position, 4), (vtable, 2), (vtable + 2, 2)})
        places.update((vtable + 4 + 2 * i, 2) for i in range(len(self._fields)))

    def field(self: Table, slot: int, name: str, size: int) -> int:
        found = original_field(self, slot, name, size)
        if found:
            places.add((found, size))
        return found

    def vector(self: Table, slot: int, name: str, item_size: int) -> tuple[int, int]:
        found, count = original_vector(self, slot, name, item_size)
        if found:
            places.add((found - 4, 4))
            places.update((found + item_size * i, item_size) for i in range(min(count, 64)))
        return found, count

    is_model = False
    with (
        patch.object(Table, "__init__", init),
        patch.object(Table, "_field", field),
        patch.object(Table, "_vector", vector),
        suppress(ModelFormatError),
    ):
        read_model(data)
        is_model = True
    inside = sorted(place for place in places if 0 <= place[0] <= len(data) - place[1])
    return Seed(name, data, tuple(inside) or ((0, min(4, len(data))),), is_model)
