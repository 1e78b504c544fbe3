"""The noise of a device, as its A/A series found it (`orchestrator.results.noise`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


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
