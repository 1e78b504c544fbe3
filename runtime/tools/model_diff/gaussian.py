"""Inputs of a comparison: Gaussian noise over each input's range, as in LiteRT's Inference Diff."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import Array
from runtime.measure.inputs import InputRule, check_names, value_range

_MEAN: Final = 0.5
"""Mean of the draws, as a share of an input's range: LiteRT's."""

_DEVIATION: Final = 1 / 3
"""Standard deviation of the draws, as a share of an input's range: LiteRT's. What falls outside of the range,
some 13 of 100, is drawn again."""


class GaussianInputs:
    """Draws input sets, one after the other; the same seed gives the same ones."""

    def __init__(
        self, details: Sequence[Mapping[str, Any]], rules: Mapping[str, InputRule], seed: int
    ) -> None:
        """Look up the range of each input. Raises `InputSpecNeededError`."""
        check_names(details, rules)
        self._inputs = [
            (
                np.dtype(detail["dtype"]),
                tuple(int(n) for n in detail["shape"]),
                value_range(detail, rules.get(str(detail["name"]), InputRule())),
            )
            for detail in details
        ]
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def draw(self) -> tuple[Array, ...]:
        """Return the next input set."""
        return tuple(self._values(*one) for one in self._inputs)

    def _values(self, dtype: np.dtype[Any], shape: tuple[int, ...], bounds: tuple[float, float]) -> Array:
        low, high = bounds
        shares = self._shares(math.prod(shape)).reshape(shape)
        if dtype.kind == "f":
            return (low + (high - low) * shares).astype(dtype)
        # Each integer of the range has an equal part of it.
        return np.minimum(np.floor(low + (high - low + 1) * shares), high).astype(dtype)

    def _shares(self, count: int) -> NDArray[np.float64]:
        values = self._generator.normal(_MEAN, _DEVIATION, count)
        while (outside := (values < 0.0) | (values >= 1.0)).any():
            values[outside] = self._generator.normal(_MEAN, _DEVIATION, int(outside.sum()))
        return values
