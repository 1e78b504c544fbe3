"""Pictures, and what LiteRT's tools do to one before a model."""

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import Array
from runtime.errors import DataError, MisfitError

MOST_PIXELS: Final = 64_000_000
"""Pixels of a picture. Chosen: four times the largest of common data sets; decoded, it takes 192 MB."""

CROP: Final = 0.875
"""Share of a side that a classifier sees, the centre of the picture: LiteRT's and most training scripts'."""

LITERT_MEAN: Final = 127.5
"""Mean, and deviation, of LiteRT's normalisation of a real input."""

Reals = NDArray[np.float32]


def decoded(content: bytes, where: str, *, is_grey: bool = False) -> NDArray[np.uint8]:
    """Return a picture's pixels as they are stored, without its EXIF rotation: [height, width, 3], or 1.

    libjpeg's accurate integer transform, which is Pillow's, is LiteRT's. Raises `DataError`.
    """
    try:
        from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  # an extra of its own
    except ImportError as error:
        raise DataError('pictures need Pillow: pip install "delegate-farm[pictures]"') from error
    try:
        with warnings.catch_warnings():
            # The bound below is the narrower one.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as image:
                # `open` has read the header alone: nothing of this size is decoded yet.
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise DataError(
                        f"{where}: {width}x{height} is {width * height / 1e6:.0f} megapixels; "
                        f"at most {MOST_PIXELS // 1_000_000}: make the picture smaller"
                    )
                if image.mode.startswith("I"):
                    raise DataError(
                        f"{where}: 16 bits of grey a pixel, of which 8 would be cut; convert it to 8"
                    )
                pixels = np.asarray(image.convert("L" if is_grey else "RGB"))
    except UnidentifiedImageError as error:
        raise DataError(f"{where}: no JPEG or PNG, or a damaged one") from error
    except Image.DecompressionBombError as error:
        raise DataError(f"{where}: {error} At most {MOST_PIXELS} pixels: make it smaller") from error
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where}: the picture is damaged: {error}") from error
    return pixels.reshape(height, width, -1)


def cropped(image: NDArray[np.uint8], share: float) -> NDArray[np.uint8]:
    """Return the square in the centre whose side is this share of the shorter one, as LiteRT cuts it."""
    height, width = image.shape[:2]
    side = min(_rounded(share * height), _rounded(share * width))
    top, left = _rounded((height - side) / 2), _rounded((width - side) / 2)
    return image[top : top + side, left : left + side]


def _rounded(value: float) -> int:
    return max(0, math.floor(value + 0.5))


def resized(image: NDArray[np.uint8], height: int, width: int) -> Reals:
    """Return a picture in another size, by RESIZE_BILINEAR with both of its options off, as LiteRT does."""
    top, bottom, dy = _neighbours(image.shape[0], height)
    left, right, dx = _neighbours(image.shape[1], width)
    dy, dx = dy[:, None, None], dx[None, :, None]
    upper, lower = image[top], image[bottom]
    made = upper[:, left] * ((1 - dy) * (1 - dx)) + lower[:, left] * (dy * (1 - dx))
    made += upper[:, right] * ((1 - dy) * dx) + lower[:, right] * (dy * dx)
    return np.asarray(made, np.float32)


def _neighbours(source: int, target: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Reals]:
    places = np.arange(target, dtype=np.float32) * np.float32(source / target)
    first = np.minimum(places.astype(np.int64), source - 1)
    return first, np.minimum(first + 1, source - 1), places - first.astype(np.float32)


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Mean and deviation of the pixels, one for all channels or one for each, on the scale 0 to 255.

    `is_stated`: the task gave them; the input of an integer model is then quantised by its own parameters.
    """

    mean: tuple[float, ...] = (LITERT_MEAN,)
    std: tuple[float, ...] = (LITERT_MEAN,)
    is_stated: bool = False


@dataclass(frozen=True, slots=True)
class PictureInput:
    """The input of a model that takes one picture: channels last, or first."""

    height: int
    width: int
    channels: int
    is_channels_first: bool
    dtype: np.dtype[Any]
    scale: float
    zero_point: int

    @classmethod
    def of(cls, inputs: Sequence[Mapping[str, Any]]) -> "PictureInput":
        """Read `get_input_details`. Raises `MisfitError` for a model that takes no picture."""
        shapes = ", ".join(f"{np.dtype(d['dtype'])} {[int(n) for n in d['shape']]}" for d in inputs)
        shape = [int(n) for n in inputs[0]["shape"]] if len(inputs) == 1 else []
        dtype = np.dtype(inputs[0]["dtype"]) if inputs else np.dtype(np.float32)
        is_last = len(shape) == 4 and shape[0] == 1 and shape[3] in (1, 3)
        is_first = len(shape) == 4 and shape[0] == 1 and shape[1] in (1, 3) and not is_last
        if not (is_last or is_first) or dtype.name not in ("float32", "float16", "uint8", "int8"):
            raise MisfitError(
                f"the model takes {shapes or 'nothing'}; a picture needs one input [1, height, width, 3] of "
                "float32, float16, uint8 or int8"
            )
        height, width, channels = (shape[2], shape[3], shape[1]) if is_first else shape[1:]
        if any(n == 1 and open_ == -1 for n, open_ in zip(shape, _signature(inputs[0]), strict=False)):
            raise MisfitError(
                f"the input {inputs[0]['name']!r} has an open size, {_signature(inputs[0])}: give it a shape"
            )
        scale, zero_point = inputs[0]["quantization"]
        return cls(height, width, channels, is_first, dtype, float(scale), int(zero_point))

    def value(self, image: NDArray[np.uint8], normalisation: Normalisation) -> Array:
        """Return a picture of any size as the value of this input: resized, normalised, of its type."""
        pixels = resized(image, self.height, self.width)
        made: Array
        if self.dtype.kind == "f" or normalisation.is_stated:
            real = (pixels - _channels(normalisation.mean)) / _channels(normalisation.std)
            made = real.astype(self.dtype) if self.dtype.kind == "f" else self._quantised(real)
        else:
            # LiteRT's stage casts, which cuts towards zero.
            made = (pixels - (128.0 if self.dtype.kind == "i" else 0.0)).astype(self.dtype)
        return (np.moveaxis(made, -1, 0) if self.is_channels_first else made)[None].copy()

    def _quantised(self, real: Reals) -> Array:
        bounds = np.iinfo(self.dtype)
        levels = np.rint(real / (self.scale or 1.0)) + self.zero_point
        made: Array = np.clip(levels, bounds.min, bounds.max).astype(self.dtype)
        return made


def _signature(detail: Mapping[str, Any]) -> list[int]:
    """Return the sizes that a file declares, -1 for an open one; the batch is one picture."""
    declared = detail.get("shape_signature", detail["shape"])
    return [1, *(int(n) for n in declared[1:])]


def _channels(values: tuple[float, ...]) -> Reals:
    return np.array(values, np.float32)
