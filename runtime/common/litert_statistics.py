"""Statistics by LiteRT's definitions, which are not the farm's own, and the line that its tools print."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Statistics:
    """Samples in microseconds by LiteRT's definitions: `std` is the population's, cut to an integer, and a
    percentile is the element at floor(n * p / 100) of the sorted samples.
    """

    samples: Sequence[int]

    @property
    def avg(self) -> float:
        """Return the mean, 0 without samples."""
        return sum(self.samples) / len(self.samples) if self.samples else 0.0

    @property
    def std(self) -> int:
        """Return the population's standard deviation, cut to an integer."""
        if not self.samples:
            return 0
        mean = self.avg
        return int(math.sqrt(sum((sample - mean) ** 2 for sample in self.samples) / len(self.samples)))

    def percentile(self, percent: int) -> int:
        """Return the element at floor(n * percent / 100) of the sorted samples, 0 without samples."""
        if not self.samples:
            return 0
        last = len(self.samples) - 1
        # At 100 % the element of LiteRT's definition would lie one behind the last.
        return sorted(self.samples)[min(last, len(self.samples) * percent // 100)]

    def line(self) -> str:
        """Return LiteRT's line of statistics."""
        count = len(self.samples)
        if not count:
            return "count=0"
        low, high, current = min(self.samples), max(self.samples), self.samples[-1]
        if low == high:
            return f"count={count} curr={current}(all same)"
        return (
            f"count={count} first={self.samples[0]} curr={current} min={low} max={high} avg={self.avg:g} "
            f"std={self.std} p5={self.percentile(5)} median={self.percentile(50)} p95={self.percentile(95)}"
        )
