"""Outputs that are wrong in ways that broken kernels, drivers and delegates are: what a judge must notice.

Local errors (a channel, a row, a tile, a border, a single value) and systematic ones (a gain, an offset, a
wrong zero point, a clamp) are as strong as an engineer would call broken in the arithmetic (`STRENGTH`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.judge.agreement import FLOAT_QUANTA, OutputFacts
from runtime.judge.figures import TILE

Array = NDArray[Any]
Reals = NDArray[np.float64]
Sets = Sequence[Array]
"""One output of a model, for each input set."""

STRENGTH: Final = {"fp32": 1e-3, "fp16": 1e-2, "quantised": 5e-2}
"""Share of itself by which a small systematic error changes a value, by arithmetic: about ten times what
rounding explains in a network of usual depth. Local errors are ten times as strong, or replace values."""

_SEED: Final = 20_240_307


@dataclass(frozen=True, slots=True)
class Right:
    """A right output, dequantised, in its shape without axes of length 1; the next set's; its quantum.

    `strength` is that of `STRENGTH`, `draw` a generator with the same state for every output.
    """

    values: Reals
    stale: Reals
    quantum: float
    strength: float
    draw: np.random.Generator

    @property
    def norm(self) -> float:
        """The root mean square of the values."""
        return float(np.sqrt(np.mean(self.values**2)))

    def strong(self, axis: int | None = None) -> int:
        """Return the flat place of a value, or the index along an axis, that is well above the others."""
        norms = np.abs(self.values).reshape(-1)
        if axis is not None:
            others = tuple(a for a in range(self.values.ndim) if a != axis)
            norms = np.sqrt(np.mean(self.values**2, axis=others))
        return int(np.argsort(norms)[int(0.9 * (norms.size - 1))])


Wrong = Callable[[Right], Reals]


def corrupted(sets: Sets, fact: OutputFacts, arithmetic: str) -> dict[str, list[Array]]:
    """Return each corruption of an output; those that change no set by enough to matter are left out."""
    made = {name: [_applied(wrong, sets, k, fact, arithmetic) for k in range(len(sets))]
            for name, wrong in CORRUPTIONS.items()}  # fmt: skip
    return {
        name: values
        for name, values in made.items()
        if any(_matters(v, s, fact, STRENGTH[arithmetic]) for v, s in zip(values, sets, strict=True))
    }


def _applied(wrong: Wrong, sets: Sets, k: int, fact: OutputFacts, arithmetic: str) -> Array:
    value, other = sets[k], sets[(k + 1) % len(sets)]
    if not value.size or not np.isfinite(value).all() or other.shape != value.shape:
        return value
    real = _real(value, fact)
    right = Right(
        np.squeeze(real),
        np.squeeze(_real(other, fact)),
        # The quantum of a float output is the one by which the judge knows it.
        fact.scale or float(np.ptp(real)) / FLOAT_QUANTA,
        STRENGTH[arithmetic],
        np.random.Generator(np.random.PCG64(_SEED)),
    )
    return _held(value, wrong(right).reshape(value.shape), fact)


def _matters(wrong: Array, right: Array, fact: OutputFacts, strength: float) -> bool:
    """Return whether a change is of the strength meant: all values by half of it, or one by five times it."""
    if wrong.tobytes() == right.tobytes():
        return False
    change = _real(wrong, fact) - _real(right, fact)
    if not np.isfinite(change).all():
        return True
    norm = float(np.sqrt(np.mean(_real(right, fact) ** 2)))
    rms, largest = float(np.sqrt(np.mean(change**2))), float(np.abs(change).max())
    return rms >= 0.5 * strength * norm or largest >= 5 * strength * norm


def _real(values: Array, fact: OutputFacts) -> Reals:
    real = np.asarray(values, np.float64)
    return real if fact.scale == 0.0 else fact.scale * (real - fact.zero_point)


def _held(like: Array, real: Reals, fact: OutputFacts) -> Array:
    """Return real values as the type of `like` can hold them: integers are rounded and saturate."""
    stored = real / fact.scale + fact.zero_point if fact.scale else real
    if like.dtype.kind not in "iu":
        return stored.astype(like.dtype)
    bounds = np.iinfo(like.dtype)
    held: Array = np.clip(np.rint(np.nan_to_num(stored)), bounds.min, bounds.max).astype(like.dtype)
    return held


def _gain(factor: Callable[[float], float]) -> Wrong:
    return lambda right: right.values * factor(right.strength)


def _offset(by: Callable[[Right], float]) -> Wrong:
    return lambda right: right.values + by(right)


def _at(place: Callable[[Right], Any], wrong: Callable[[Right, Reals], Any]) -> Wrong:
    """Change the values at a place of the array."""

    def changed(right: Right) -> Reals:
        values = right.values.copy()
        if values.ndim:
            chosen = place(right)
            values[chosen] = wrong(right, values[chosen])
        return values

    return changed


def _value(which: Callable[[Right], int]) -> Callable[[Right], Any]:
    return lambda right: np.unravel_index(which(right) % right.values.size, right.values.shape)


def _channel(which: Callable[[Right], int]) -> Callable[[Right], Any]:
    return lambda right: (..., which(right) % right.values.shape[-1])


def _row(which: Callable[[Right], int]) -> Callable[[Right], Any]:
    """Return a chooser of a row of the first axis, or of a run of values in a vector."""

    def place(right: Right) -> Any:
        if right.values.ndim == 1:
            first = which(right) % right.values.size // TILE * TILE
            return slice(first, first + TILE)
        return which(right) % right.values.shape[0]

    return place


def _tile(right: Right) -> Any:
    """Pixels of a tile that has a well visible one, of a vector a run of values."""
    first = max(0, right.values.ndim - 3)
    place = np.unravel_index(right.strong(), right.values.shape)
    starts = [int(i) // TILE * TILE for i in place[first : first + 2]]
    return (*[slice(None)] * first, *(slice(start, start + TILE) for start in starts))


def _border(right: Right) -> NDArray[np.bool_]:
    """Return the outermost pixels of a picture, or the ends of a vector."""
    edge = np.zeros(right.values.shape, bool)
    first = max(0, right.values.ndim - 3)
    for axis in range(first, min(first + 2, right.values.ndim)):
        moved = np.moveaxis(edge, axis, 0)
        moved[0] = moved[-1] = True
    return edge


def _every(step: int, start: int = 1) -> Callable[[Right], Any]:
    return lambda right: np.unravel_index(np.arange(start, right.values.size, step), right.values.shape)


def _strong_channel(right: Right) -> int:
    return right.strong(-1 % right.values.ndim)


def _strong_row(right: Right) -> int:
    return right.strong() if right.values.ndim == 1 else right.strong(0)


_LAST: Final[Callable[[Right], int]] = lambda _right: -1  # noqa: E731  # a choice beside those above
_ZERO: Final[Callable[[Right, Reals], Any]] = lambda _right, values: np.zeros_like(values)  # noqa: E731


def _stronger(right: Right, values: Reals) -> Any:
    return values * (1 + 10 * right.strength)


def _raised(right: Right, values: Reals) -> Any:
    return values + 10 * right.strength * right.norm


def _clipped(low: float, high: float) -> Wrong:
    return lambda right: np.clip(right.values, *np.quantile(right.values, [low, high]))


def _lost_bits(right: Right) -> Reals:
    """Keep so many bits of the mantissa that the error is some `strength` of each value."""
    mantissa, exponent = np.frexp(right.values)
    # A mantissa of `frexp` lies in [0.5, 1): in steps of 1 / steps it is off by up to 0.5 / steps, which is
    # the strength, or up to twice as much.
    steps = 2.0 ** np.floor(np.log2(0.5 / right.strength))
    return np.asarray(np.ldexp(np.rint(mantissa * steps) / steps, exponent))


def _rounded_down(right: Right) -> Reals:
    """Truncate where the rounding to a quantum would be to the nearest: half of the values lose one."""
    return right.values - right.quantum * (right.draw.random(right.values.shape) < 0.5)


def _ramp(right: Right) -> Reals:
    """Apply a gain that grows along the values, as an accumulated error does."""
    ramp = np.linspace(0.0, 4 * right.strength, right.values.size).reshape(right.values.shape)
    return right.values * (1 + ramp)


def _bent(right: Right) -> Reals:
    """Approximate a curve poorly: large values are too small."""
    most = float(np.abs(right.values).max()) or 1.0
    return right.values * (1 - 4 * right.strength * np.abs(right.values) / most)


def _noisy(right: Right) -> Reals:
    return right.values + 3 * right.strength * right.norm * right.draw.standard_normal(right.values.shape)


def _neighbour(axis: int, step: int) -> Wrong:
    def rolled(right: Right) -> Reals:
        return np.roll(right.values, step, axis) if right.values.ndim >= -axis else right.values

    return rolled


def _halves_swapped(right: Right) -> Reals:
    return np.roll(right.values.reshape(-1), right.values.size // 2).reshape(right.values.shape)


def _first_half_stronger(right: Right) -> Reals:
    values = right.values.reshape(-1).copy()
    values[: values.size // 2] *= 1 + 3 * right.strength
    return values.reshape(right.values.shape)


def _channels_swapped(right: Right) -> Reals:
    if not right.values.ndim or right.values.shape[-1] < 2:
        return right.values
    values, channel = right.values.copy(), _strong_channel(right)
    other = (channel + 1) % values.shape[-1]
    values[..., [channel, other]] = values[..., [other, channel]]
    return values


CORRUPTIONS: Final[dict[str, Wrong]] = {
    # Everything is wrong.
    "constant": lambda right: np.full_like(right.values, right.values.mean()),
    "zero": lambda right: np.zeros_like(right.values),
    "permuted": lambda right: right.draw.permutation(right.values.reshape(-1)).reshape(right.values.shape),
    "another set's": lambda right: right.stale,
    "shifted by one": _neighbour(-1, 1),
    "shifted by a pixel": _neighbour(-2, 1),
    "halves swapped": _halves_swapped,
    "reversed": lambda right: np.flip(right.values),
    "negated": lambda right: -right.values,
    "absolute": lambda right: np.abs(right.values),
    "one NaN": _at(_value(lambda right: right.values.size // 2), lambda _r, _v: np.nan),
    "one Inf": _at(_value(lambda right: right.values.size // 2), lambda _r, _v: np.inf),
    # Everything is a little wrong, in one direction.
    "gain, too large": _gain(lambda strength: 1 + strength),
    "gain, too small": _gain(lambda strength: 1 - strength),
    "gain, twice as wrong": _gain(lambda strength: 1 + 2 * strength),
    "gain of 1.1": _gain(lambda _strength: 1.1),
    "gain of 1/2": _gain(lambda _strength: 0.5),
    "offset up": _offset(lambda right: 2 * right.strength * right.norm),
    "offset down": _offset(lambda right: -2 * right.strength * right.norm),
    "one quantum up": _offset(lambda right: right.quantum),
    "one quantum down": _offset(lambda right: -right.quantum),
    "zero point off by 4": _offset(lambda right: 4 * right.quantum),
    "zero point off by 16": _offset(lambda right: -16 * right.quantum),
    "rounded down": _rounded_down,
    "lost bits": _lost_bits,
    "bent": _bent,
    "noise": _noisy,
    "ramp": _ramp,
    "clamped below the mean": lambda right: np.maximum(right.values, right.values.mean()),
    "clamped too early": _clipped(0.0, 0.95),
    "clamped on both sides": _clipped(0.05, 0.95),
    "first half too strong": _first_half_stronger,
    # A part is wrong.
    "one value zero": _at(_value(Right.strong), _ZERO),
    "one value negated": _at(_value(Right.strong), lambda _r, v: -v),
    "one value at the most": _at(_value(Right.strong), lambda right, _v: 2 * np.abs(right.values).max()),
    "last value at the most": _at(_value(_LAST), lambda right, _v: right.values.max()),
    "first value at the least": _at(
        _value(lambda _right: 0), lambda right, _v: right.values.min() - right.norm
    ),
    "last values not written": _at(_row(_LAST), _ZERO),
    "last row stale": _at(_row(_LAST), lambda right, _v: right.stale[_row(_LAST)(right)]),
    "one row zero": _at(_row(_strong_row), _ZERO),
    "one row too strong": _at(_row(_strong_row), _stronger),
    "one channel zero": _at(_channel(_strong_channel), _ZERO),
    "one channel too strong": _at(_channel(_strong_channel), _stronger),
    "one channel raised": _at(_channel(_strong_channel), _raised),
    "last channel zero": _at(_channel(_LAST), _ZERO),
    "two channels swapped": _channels_swapped,
    "one tile zero": _at(_tile, _ZERO),
    "one tile stale": _at(_tile, lambda right, _v: right.stale[_tile(right)]),
    "one tile shifted": _at(_tile, lambda _r, v: np.roll(v, 1, 0) if v.ndim else v),
    "one tile too strong": _at(_tile, _stronger),
    "border zero": _at(_border, _ZERO),
    "one lane of 16 zero": _at(_every(16), _ZERO),
    "one lane of 8 too strong": _at(_every(8), lambda right, v: v * (1 + 5 * right.strength)),
}
"""Each by its name: what it makes of a right output."""
