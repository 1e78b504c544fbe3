"""The conditions of a Mac, as pmset(1) tells them to every user: source of power, Low Power Mode, heat.

Clocks, temperatures and energy are told to root alone (powermetrics(1)), which an agent is not.
"""

import re
from collections.abc import Iterator
from typing import Final

from agent.machine.sensors.sensor import PROCESSOR, Missing, Quantity, Sensor, Throttle
from runtime.common.system import told_by

_ROOT_ALONE: Final = "macOS tells it to root alone (powermetrics)"
_FULL_SPEED: Final = 100
"""CPU_Speed_Limit of `pmset -g therm` where heat slows nothing down, in percent."""


def mac_settings() -> dict[str, str]:
    """Return the settings that a Mac has and Linux has not."""
    told = told_by("pmset", "-g")
    found = re.search(r"^\s*lowpowermode\s+(\d)", told, re.MULTILINE)
    mode = {"0": "off", "1": "on"}.get(found[1] if found else "", "not readable")
    return {"low_power_mode": mode, "cpu_binding": "none: macOS binds no thread to a CPU"}


def why_mac_not_published() -> str | None:
    """Return what is to be changed before figures of this Mac are published; None where nothing is."""
    if is_on_battery(told_by("pmset", "-g", "batt")):
        return "the machine runs on battery; connect it"
    if mac_settings()["low_power_mode"] == "on":
        return "Low Power Mode is on; switch it off (sudo pmset -a lowpowermode 0)"
    return None


def is_on_battery(told: str) -> bool:
    """Return whether `pmset -g batt` names the battery as the source of power."""
    return "Now drawing from 'Battery Power'" in told


def mac_sensors() -> Iterator[Sensor | Missing]:
    """Yield the sensors of a Mac's processors, and those that it lacks."""
    for quantity in ("clock", "temperature", "energy"):
        yield Missing(PROCESSOR, f"CPU {quantity}", _ROOT_ALONE)
    yield Sensor(
        PROCESSOR,
        "CPU throttling by heat",
        Quantity.THROTTLING,
        lambda: throttled(told_by("pmset", "-g", "therm")),
    )


def throttled(told: str) -> float:
    """Return the bits of `Throttle` in what `pmset -g therm` prints.

    Raises `ValueError` where it has neither a limit nor a level: "No … has been recorded" is no reading,
    since Macs that never record one print it too.
    """
    limit = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", told)
    level = re.search(r"(?:thermal|performance) warning level\s*(?:=|:|set to)\s*(\d+)", told, re.IGNORECASE)
    if limit is None and level is None:
        raise ValueError("pmset -g therm names neither a speed limit nor a warning level")
    is_hot = (limit is not None and int(limit[1]) < _FULL_SPEED) or (level is not None and int(level[1]) > 0)
    return float(Throttle.HEAT if is_hot else Throttle(0))
