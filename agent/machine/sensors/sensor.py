"""The definition of a sensor: a named quantity of one part of the machine, and the way to read it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from pathlib import Path
from typing import Final

PROCESSOR: Final = "cpu"
"""The part of the sensors of the host's processors; a GPU's part is its address on the PCI bus."""


class Quantity(StrEnum):
    """A physical quantity that a sensor reads, with its unit."""

    CLOCK = "clock"
    """MHz."""

    TEMPERATURE = "temperature"
    """Degrees Celsius."""

    POWER = "power"
    """Watts."""

    ENERGY = "energy"
    """Joules since some time in the past; it only grows."""

    THROTTLING = "throttling"
    """The reasons for which the part is slowed down now, bits of `Throttle`."""

    THROTTLINGS = "throttlings"
    """The number of times heat has slowed the part down since some time in the past; it only grows."""

    PROCESSES = "processes"
    """Processes that compute on the part now."""


class Throttle(IntFlag):
    """Why a part runs below its clock."""

    HEAT = 1
    HARDWARE = 2
    """The board's own protection: heat, power brake, or another reason that it does not tell."""

    POWER = 4
    """The power limit."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """One sensor. `read` raises `OSError` or `ValueError` where it has vanished.

    `limit`: the nominal clock or the critical temperature of its part; None where the machine does not say.
    """

    part: str
    name: str
    quantity: Quantity
    read: Callable[[], float]
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """A sensor that this machine lacks, and why."""

    part: str
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """The sensors of a machine, and those that it lacks."""

    sensors: tuple[Sensor, ...] = ()
    missing: tuple[Missing, ...] = ()

    def __add__(self, other: "Found") -> "Found":
        return Found((*self.sensors, *other.sensors), (*self.missing, *other.missing))


def tried(sensor: Sensor | Missing) -> Found:
    """Return a sensor as found where it can be read once, else as missing with the reason."""
    if isinstance(sensor, Missing):
        return Found(missing=(sensor,))
    try:
        sensor.read()
    except (OSError, ValueError) as error:
        return Found(missing=(Missing(sensor.part, sensor.name, why_unreadable(error)),))
    return Found(sensors=(sensor,))


def together(found: Iterable[Sensor | Missing]) -> Found:
    """Try each of several sensors."""
    return sum((tried(one) for one in found), Found())


def why_unreadable(error: Exception) -> str:
    """Say in a few words why a sensor was not read."""
    if isinstance(error, PermissionError):
        return f"{error.filename} may be read by root alone"
    if isinstance(error, OSError):
        return f"{error.filename or 'the driver'}: {error.strerror or error}"
    return str(error)


def number_in(path: Path) -> float:
    """Return the number in a kernel's file. Raises `OSError`, `ValueError`."""
    text = path.read_text(encoding="ascii", errors="replace").strip()
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{path} holds no number: {text[:20]!r}") from None
