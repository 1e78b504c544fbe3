"""Outputs that are wrong in ways that broken kernels, drivers and delegates are: what a judge must notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.tools.agreement import OutputFacts

Array = NDArray[Any]
Sets = Sequence[Array]
"""One output of a model, for each input set."""

SCALE: Final = 1.1
"""The factor of the output that is scaled. Chosen: a wrong scale of a layer rarely does less."""

_SEED: Final = 20_240_307
"""Seed of the permutation."""


def corrupted(sets: Sets, fact: OutputFacts) -> dict[str, list[Array]]:
    """Return each corruption of an output; those that leave every set as it was are left out."""
    made = {name: [wrong(sets, k, fact) for k in range(len(sets))] for name, wrong in CORRUPTIONS.items()}
    return {
        name: values
        for name, values in made.items()
        if any(value.tobytes() != right.tobytes() for value, right in zip(values, sets, strict=True))
    }


def _constant(sets: Sets, k: int, _fact: OutputFacts) -> Array:
    value = sets[k]
    finite = value[np.isfinite(value)]
    return np.full_like(value, _held(value, float(finite.mean()) if finite.size else 0.0))


def _permuted(sets: Sets, k: int, _fact: OutputFacts) -> Array:
    order = np.random.Generator(np.random.PCG64(_SEED)).permutation(sets[k].size)
    return sets[k].reshape(-1)[order].reshape(sets[k].shape)


def _zero(sets: Sets, k: int, fact: OutputFacts) -> Array:
    return np.full_like(sets[k], fact.zero_point if fact.scale else 0)


def _scaled(sets: Sets, k: int, fact: OutputFacts) -> Array:
    value, zero = sets[k], fact.zero_point if fact.scale else 0
    if value.dtype.kind == "b":
        return value
    return _held(value, (value.astype(np.float64) - zero) * SCALE + zero)


def _shifted(sets: Sets, k: int, _fact: OutputFacts) -> Array:
    """By one pixel along a row of an image [..., width, channels], by one value of anything else."""
    value = sets[k]
    if value.ndim == 0:
        return value
    axis = -2 if value.ndim > 2 and value.shape[-2] > 1 else -1
    return np.roll(value, 1, axis)


def _of_another_set(sets: Sets, k: int, _fact: OutputFacts) -> Array:
    other = sets[(k + 1) % len(sets)]
    return other if other.shape == sets[k].shape else sets[k]


def _one_nan(sets: Sets, k: int, _fact: OutputFacts) -> Array:
    if sets[k].dtype.kind != "f" or not sets[k].size:
        return sets[k]
    value = sets[k].copy()
    value.flat[value.size // 2] = np.nan
    return value


def _held(like: Array, values: Any) -> Array:
    """Values as the type of `like` can hold them: integers are rounded and saturate."""
    if like.dtype.kind not in "iu":
        return np.asarray(values).astype(like.dtype)
    bounds = np.iinfo(like.dtype)
    return np.clip(np.rint(values), bounds.min, bounds.max).astype(like.dtype)


CORRUPTIONS: Final[dict[str, Callable[[Sets, int, OutputFacts], Array]]] = {
    "constant": _constant,
    "permuted": _permuted,
    "zero": _zero,
    f"x {SCALE:g}": _scaled,
    "shifted": _shifted,
    "another set's": _of_another_set,
    "one NaN": _one_nan,
}
"""Each by its name: the right outputs, the number of a set, what is known of the output; the wrong values."""
