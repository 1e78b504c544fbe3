"""Labelled pictures and sounds as the arrays that models want."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from tests.models.collection import data_folder


def picture(path: Path, size: tuple[int, int], mode: str = "RGB") -> np.ndarray:
    """uint8 [height, width, channels], squeezed to `size` (width, height)."""
    with Image.open(path) as image:
        return np.asarray(image.convert(mode).resize(size, Image.Resampling.BILINEAR))


def labelled(group: str, pattern: str) -> Iterator[tuple[Path, int]]:
    """Files `name_NN_LABEL.ext` of a group with their labels."""
    for path in sorted(data_folder(group).glob(pattern)):
        yield path, int(path.stem.rsplit("_", 1)[1])


def sound(path: Path) -> np.ndarray:
    """float32 [samples] in [-1, 1) of a 16-bit mono file."""
    with wave.open(str(path)) as file:
        frames = file.readframes(file.getnframes())
    return np.frombuffer(frames, "<i2").astype(np.float32) / 32768
