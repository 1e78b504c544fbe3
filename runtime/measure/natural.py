"""Inputs such as a model meets in use, beside noise: a smooth picture, a sound with harmonics.

Noise has no structure: a trained network answers all of it alike, and filters that find edges or pitch never
respond. All values lie in [0, 1]; who fills an input stretches them over its range.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

_PICTURE_CHANNELS: Final = (1, 3, 4)
"""Grey, colours, colours with transparency."""

_LEAST_SIDE: Final = 16
"""Pixels of a side below which a smooth picture is a constant."""

_LEAST_SAMPLES: Final = 4000
"""Values of a vector from which it is taken for sound: a quarter of a second at 16 kHz. Vectors of features
are shorter."""

_SAMPLE_RATE: Final = 16_000.0
"""Samples a second of the sound, the rate of speech models."""

_WAVES: Final = 6
"""Cosines of a picture. Chosen: enough that no two channels look alike, few enough to stay smooth."""


def natural(generator: np.random.Generator, shape: tuple[int, ...]) -> Reals | None:
    """Return values of a natural input of this shape, or None where the shape is of no known modality."""
    if len(shape) == 4 and shape[3] in _PICTURE_CHANNELS and min(shape[1:3]) >= _LEAST_SIDE:
        return np.stack([_picture(generator, shape[1:3], shape[3]) for _ in range(shape[0])])
    if len(shape) == 4 and shape[1] in _PICTURE_CHANNELS and min(shape[2:4]) >= _LEAST_SIDE:
        pictures = [_picture(generator, shape[2:4], shape[1]) for _ in range(shape[0])]
        return np.stack([np.moveaxis(picture, -1, 0) for picture in pictures])
    if len(shape) in (1, 2) and shape[-1] >= _LEAST_SAMPLES:
        rows = [_sound(generator, shape[-1]) for _ in range(1 if len(shape) == 1 else shape[0])]
        return np.stack(rows).reshape(shape)
    return None


def _picture(generator: np.random.Generator, sides: tuple[int, ...], channels: int) -> Reals:
    """Return [height, width, channels]: soft waves under a lit disc with an edge, faintly grained."""
    y, x = np.meshgrid(*(np.linspace(0.0, 1.0, side) for side in sides), indexing="ij")
    values = np.zeros((*x.shape, channels))
    for _ in range(_WAVES):
        across, down, phase = generator.uniform(0.5, 4.0, 3)
        weights = generator.uniform(0.2, 1.0, channels)
        values += weights * np.cos(2 * np.pi * (across * x + down * y + phase))[..., None]
    centre_y, centre_x, radius = generator.uniform(0.3, 0.7), generator.uniform(0.3, 0.7), 0.25
    disc = np.hypot(y - centre_y, x - centre_x) < radius
    values += disc[..., None] * generator.uniform(1.0, 3.0, channels)
    values += 0.05 * generator.standard_normal(values.shape)
    return _stretched(values)


def _sound(generator: np.random.Generator, samples: int) -> Reals:
    """Return a voice-like tone: harmonics of a gliding pitch, in syllables, over faint noise."""
    time_s = np.arange(samples) / _SAMPLE_RATE
    pitch_hz = generator.uniform(100.0, 220.0) * (1 + 0.1 * np.sin(2 * np.pi * 3 * time_s))
    phase = 2 * np.pi * np.cumsum(pitch_hz) / _SAMPLE_RATE
    tone = sum(np.cos(n * phase + generator.uniform(0, 6.28)) / n for n in range(1, 12))
    loudness = 0.55 + 0.45 * np.sin(2 * np.pi * generator.uniform(3.0, 5.0) * time_s)
    sound = loudness * tone + 0.02 * generator.standard_normal(samples)
    # Silence lies in the middle of the range.
    return np.asarray(0.5 + 0.5 * sound / np.abs(sound).max())


def _stretched(values: Reals) -> Reals:
    low, high = values.min(), values.max()
    return np.asarray((values - low) / (high - low))
