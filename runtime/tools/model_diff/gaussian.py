"""Inputs of a comparison: Gaussian noise over each input's range, as in LiteRT's Inference Diff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runtime.delegates.base import Array
from runtime.measure.inputs import InputRule, check_names, normal_values, value_range


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
        return tuple(normal_values(self._generator, *one) for one in self._inputs)
