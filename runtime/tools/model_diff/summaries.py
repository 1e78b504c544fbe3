"""LiteRT's statistics of a series of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of at least one value. `deviation` is that of the population, and 0 where all are equal."""

    count: int
    last: float
    smallest: float
    largest: float
    total: float
    average: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarise values. Where one is not a number, neither are the figures that it is part of."""
        known = np.asarray(values, np.float64)
        smallest, largest = float(known.min()), float(known.max())
        with np.errstate(invalid="ignore"):
            # The rounding of a mean is no deviation.
            deviation = 0.0 if smallest == largest else float(known.std())
            average = smallest if smallest == largest else float(known.mean())
        return cls(known.size, float(known[-1]), smallest, largest, float(known.sum()), average, deviation)
