"""The form of a budget, `p50<=5ms`, in a campaign file and on the command line."""

import re
from dataclasses import dataclass
from typing import Final

from orchestrator.errors import UsageError

MEMORIES: Final = {"memory": "memory_peak_bytes", "memory_cold": "memory_peak_cold_bytes"}
"""Figures in bytes, with the property of a cell's record that has each."""

ENERGY: Final = "energy"
"""Energy of an invoke, where the machine counts it."""

RATIO: Final = "ratio"
"""The p50 of the campaign in `baseline.against` over the own one: above 1 is faster."""

FPS: Final = "fps"
"""Frames per second of the pipeline pass."""

_FROM_BELOW: Final = {RATIO: f"{RATIO}>=0.95", FPS: f"{FPS}>=30"}
"""Figures of which more is better, each with an example: the limit is the least, and has no unit."""

_LATENCIES: Final = ("p50", "p90", "p95", "p99", "mean", "init", "init_warm", "first", "first_warm")
_MS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_MJ: Final = {"uJ": 1e-3, "mJ": 1.0, "J": 1e3}
_BYTES: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_FORM: Final = re.compile(r"\s*([a-z0-9_]+)\s*(<=|>=)\s*(-?\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_EXPECTED: Final = (
    "expected FIGURE<=LIMIT, e.g. p50<=5ms, p99<=12.5ms, init<=2s, memory<=200MB, or fps>=30, ratio>=0.95"
)


@dataclass(frozen=True, slots=True)
class Budget:
    """One limit: the figure's name, and the limit in ms, mJ, bytes or, of `ratio` and `fps`, without a unit.
    `text` is how it was written.
    """

    figure: str
    limit: float
    text: str


def read_budget(text: str) -> Budget:
    """Read `p50<=5ms`. Raises `UsageError` with the form that is expected."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise UsageError(f"budget {text!r}: {_EXPECTED}")
    figure, sign, number, unit = found.groups()
    from_below = figure in _FROM_BELOW
    if figure not in (*_LATENCIES, *MEMORIES, ENERGY, *_FROM_BELOW):
        known = ", ".join((*_LATENCIES, *MEMORIES, ENERGY, *_FROM_BELOW))
        raise UsageError(f"budget {text!r}: no figure is called {figure!r}; known: {known}")
    if from_below and unit:
        raise UsageError(f"budget {text!r}: {figure} has no unit, e.g. {_FROM_BELOW[figure]}")
    # Before the next check, whose message divides by the number.
    _require_positive(text, float(number))
    if figure == RATIO and sign == "<=":
        raise UsageError(
            f"budget {text!r}: {RATIO} is the earlier time over the own one, above 1 is faster; "
            f"in place of this: {RATIO}>={1 / float(number):.3g}"
        )
    if from_below != (sign == ">="):
        raise UsageError(f"budget {text!r}: {_EXPECTED}")
    units = _units(figure)
    if unit not in units:
        if not unit:
            raise UsageError(f"budget {text!r}: {_EXPECTED}")
        raise UsageError(f"budget {text!r}: {figure} is measured in {', '.join(units)}, not {unit!r}")
    return Budget(figure, float(number) * units[unit], f"{figure}{sign}{number}{unit}")


def _units(figure: str) -> dict[str, float]:
    """Return the units that a figure's limit may have, by how many of the figure's own each one is."""
    if figure in MEMORIES:
        return {name: float(size) for name, size in _BYTES.items()}
    if figure == ENERGY:
        return _MJ
    return {"": 1.0} if figure in _FROM_BELOW else _MS


def latency_budget(figure: str, max_ms: float) -> Budget:
    """Return a figure's budget in milliseconds. Raises `UsageError` for another figure or no limit."""
    text = f"{figure}<={max_ms:g}ms"
    if figure not in _LATENCIES:
        raise UsageError(f"budget {text!r}: no time is called {figure!r}; known: {', '.join(_LATENCIES)}")
    _require_positive(text, max_ms)
    return Budget(figure, max_ms, text)


def _require_positive(text: str, limit: float) -> None:
    # Written so that NaN, for which every comparison is false, is refused.
    if not limit > 0.0:
        raise UsageError(f"budget {text!r}: a limit is above 0, or nothing could keep it")
