"""Computes scales and ticks of the drawings; a scale maps a value to a coordinate in px."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_ROUNDING = 1e-9
"""Slack in steps for the rounding of a division, so that a tick that lies on the end of an axis is kept."""

_LOG_MARGIN = 0.06
"""Space at both ends of a logarithmic axis, as a share of its length in logarithms."""

_DENSE_LOG_RATIO = 300
"""High over low up to which 2 and 5 get ticks besides the powers of ten; above, labels would run together."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled position on an axis, in px or, across a drawing, in per cent."""

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

    def ticks(self, wanted: int = 5, *, percent_of: float | None = None) -> tuple[Tick, ...]:
        """Round values inside the scale, labelled; `percent_of`: the width of which places are a share."""

        def place(value: float) -> str:
            return px(self(value)) if percent_of is None else percent(self(value), percent_of)

        values = _log_values(self.low, self.high) if self.logarithmic else []
        # A narrow logarithmic scale may hold no two round values: it gets the ticks of a linear one.
        if len(values) >= 2:
            return tuple(Tick(place(v), f"{v:g}") for v in values)
        step, values = _linear_values(self.low, self.high, wanted)
        digits = max(0, -math.floor(math.log10(step) + _ROUNDING))
        return tuple(Tick(place(v), f"{v:.{digits}f}") for v in values)


def px(value: float) -> str:
    """Write a coordinate with one decimal, a whole number without: pages hold thousands of them."""
    return f"{value:.1f}".removesuffix(".0")


def percent(value: float, whole: float) -> str:
    """Write a place across a drawing as a share of its width: `12.35%`."""
    return f"{100 * value / whole:.2f}%"


def log_scale(values: Sequence[float], start: float, end: float, least_factor: float = 1.25) -> Scale:
    """Return a logarithmic scale around positive values, at least `least_factor` wide: noise stays small."""
    # `barOf` of templates/choices.js places figures on the same scale.
    low, high = min(values), max(values)
    # Half of what is missing goes to either end.
    widen = max(1.0, math.sqrt(least_factor / (high / low)))
    margin = (high / low * widen * widen) ** _LOG_MARGIN
    return Scale(low / widen / margin, high * widen * margin, start, end, logarithmic=True)


def _linear_values(low: float, high: float, wanted: int) -> tuple[float, list[float]]:
    """Return the step (1, 2 or 5 times a power of ten) and its multiples inside the range."""
    raw = (high - low) / max(1, wanted)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    # 0.999: a step that is too small by a rounding error alone is taken all the same.
    step = next(m * magnitude for m in (1.0, 2.0, 5.0, 10.0) if m * magnitude >= raw * 0.999)
    first = math.ceil(low / step - _ROUNDING)
    last = math.floor(high / step + _ROUNDING)
    # Multiplied, not added up, so that rounding errors do not add up either.
    return step, [i * step for i in range(first, last + 1)]


def _log_values(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1.0, 2.0, 5.0) if high / low < _DENSE_LOG_RATIO else (1.0,)
    return [v for d in decades for m in steps if low <= (v := m * 10.0**d) <= high]
