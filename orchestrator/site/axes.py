"""Scales and ticks of the drawings. Pure arithmetic; a scale maps a value to a coordinate in px."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled position on an axis, in px."""

    position: str
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps [low, high] to [start, end] px, linearly or by logarithm; values outside are held at the ends."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Coordinate in px."""
        held = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(held / self.low) / math.log(self.high / self.low)
        else:
            share = (held - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> tuple[Tick, ...]:
        """Round values inside the scale, labelled."""
        values = _log_values(self.low, self.high) if self.logarithmic else []
        if len(values) >= 2:
            return tuple(Tick(px(self(v)), f"{v:g}") for v in values)
        step, values = _linear_values(self.low, self.high, wanted)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return tuple(Tick(px(self(v)), f"{v:.{digits}f}") for v in values)


def px(value: float) -> str:
    """A coordinate with one decimal; a whole number has none."""
    return f"{value:.1f}".removesuffix(".0")


def log_scale(values: Sequence[float], start: float, end: float, least_factor: float = 1.25) -> Scale:
    """A logarithmic scale around positive values, at least `least_factor` wide, so that noise stays small."""
    low, high = min(values), max(values)
    widen = max(1.0, math.sqrt(least_factor / (high / low)))
    margin = (high / low * widen * widen) ** 0.06
    return Scale(low / widen / margin, high * widen * margin, start, end, logarithmic=True)


def _linear_values(low: float, high: float, wanted: int) -> tuple[float, list[float]]:
    """The step (1, 2 or 5 times a power of ten) and its multiples inside the range."""
    raw = (high - low) / max(1, wanted)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1.0, 2.0, 5.0, 10.0) if m * magnitude >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return step, [i * step for i in range(first, last + 1)]


def _log_values(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    return [v for d in decades for m in steps if low <= (v := m * 10.0**d) <= high]
