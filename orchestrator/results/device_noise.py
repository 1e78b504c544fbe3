"""Computes by how much equal things differ on a device, and from session to session of a machine.

The noise series of a device knows it of sessions minutes apart. The two runs that are compared know it of
themselves: a cell whose model, options, conditions and versions are the same in both differs by its own
noise and by the sessions alone. Such *controls* are asked first, as a series sees nothing of a machine that
drifts more slowly than the series lasts; the larger spread counts.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class DeviceNoise:
    """`floor`: root mean square of the logarithms of the paired ratios of equal things, as a share.

    `session_sd`: standard deviation of the logarithm of the median over the `sessions`, likewise.
    `measured_at`: ISO 8601, UTC.
    """

    floor: float
    session_sd: float
    sessions: int
    delegate: str
    measured_at: str

    @property
    def text(self) -> str:
        """`0.4 % (sessions 1.2 %)`."""
        return f"{100 * self.floor:.2g} % (sessions {100 * self.session_sd:.2g} %)"


def noise_from(stored: Mapping[str, Any] | None) -> DeviceNoise | None:
    """Read the noise as the database has it, also of a release that stored more of it."""
    if stored is None:
        return None
    return DeviceNoise(**{field.name: stored[field.name] for field in fields(DeviceNoise)})


FEWEST_CONTROLS: Final = 3
"""Controls below which the runs tell nothing of their sessions: two that agree by chance would make any
difference certain.
"""

SESSIONS_DIFFER: Final = "unpaired, and unchanged cells of the two runs differ by"
"""Begins why a ratio stays open that the sessions explain."""


@dataclass(frozen=True, slots=True)
class Controls:
    """Unchanged cells of two runs: how many, and the sum of what their own blocks do not explain.

    One cell contributes the square of its ratio's logarithm, less that logarithm's own variance. The squares
    are taken about 0, not about their mean: what moves all cells alike is a difference of the sessions, too.
    """

    count: int = 0
    excess: float = 0.0

    def with_one(self, log: float, variance: float) -> "Controls":
        """Return these and one more."""
        return Controls(self.count + 1, self.excess + log**2 - variance)

    def without_one(self, log: float, variance: float) -> "Controls":
        """Return these without one of them: a cell is no witness in its own case."""
        return Controls(self.count - 1, self.excess - log**2 + variance)


@dataclass(frozen=True, slots=True)
class SessionSpread:
    """The variances that sessions add to the logarithm of a ratio, each with its degrees of freedom.

    `text` says by how much they differ, for a ratio that stays open.
    """

    parts: tuple[tuple[float, float], ...]
    text: str = ""

    @property
    def variance(self) -> float:
        """Return the whole variance."""
        return math.fsum(variance for variance, _ in self.parts)


def spread_of(
    controls: Controls, first: DeviceNoise | None, second: DeviceNoise | None
) -> SessionSpread | None:
    """Return the larger of what controls and noise series tell; None where neither tells anything."""
    known = [spread for spread in (_of_controls(controls), _of_series(first, second)) if spread is not None]
    return max(known, key=lambda spread: spread.variance, default=None)


def _of_controls(controls: Controls) -> SessionSpread | None:
    if controls.count < FEWEST_CONTROLS:
        return None
    # By chance the blocks may explain more than the ratios differ by.
    variance = max(0.0, controls.excess / controls.count)
    share = 100 * math.expm1(math.sqrt(variance))
    text = f"{SESSIONS_DIFFER} {share:.2g} %"
    return SessionSpread(((variance, float(controls.count)),), f"{text}: farm compare … --rerun decides")


def _of_series(first: DeviceNoise | None, second: DeviceNoise | None) -> SessionSpread | None:
    if first is None or second is None:
        return None
    # Stored as a share of the median; all variances here are of logarithms.
    one, two = (math.log1p(noise.session_sd) ** 2 for noise in (first, second))
    if first == second:
        # Of one device both are known from the same series, and no more freely.
        return SessionSpread(((one + two, first.sessions - 1.0),))
    return SessionSpread(((one, first.sessions - 1.0), (two, second.sessions - 1.0)))
