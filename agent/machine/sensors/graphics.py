"""The sensors of AMD's and Intel's GPUs, from the files of their kernel drivers.

Formats: Documentation/gpu/amdgpu/thermal.rst, Documentation/hwmon/sysfs-interface.rst,
Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon and -intel-xe-hwmon,
Documentation/gpu/drm-uapi (gt/gt0/throttle_reason_*) of the Linux kernel. A driver's files are data: another
driver is another `_Layout`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.machine.cgroups import ROOT, text_of
from agent.machine.sensors.sensor import Found, Missing, Quantity, Sensor, Throttle, number_in, together

CLOCK: Final = "GPU clock"
TEMPERATURE: Final = "GPU temperature"
POWER: Final = "GPU power"
ENERGY: Final = "GPU energy"
THROTTLING: Final = "GPU throttling"
PROCESSES: Final = "other processes on the GPU"
ALL: Final = (CLOCK, TEMPERATURE, POWER, ENERGY, THROTTLING, PROCESSES)
"""What is looked for on every GPU."""

NVIDIA: Final = "nvidia"
"""The kernel driver whose GPUs are read by NVML instead."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file below a GPU's PCI folder, as a pattern, and by what its number is divided."""

    pattern: str
    per_unit: float = 1.0


@dataclass(frozen=True, slots=True)
class _Layout:
    """The file in which a driver has each quantity; None if it has none.

    Files of `heat` and `power_limit` hold 1 while the GPU is slowed down for that reason.
    """

    clock: _File
    temperature: _File | None = None
    critical: _File | None = None
    power: _File | None = None
    energy: _File | None = None
    clock_levels: str | None = None
    heat: tuple[str, ...] = ()
    power_limit: tuple[str, ...] = ()


# hwmon's units: thousandths of a degree, millionths of a watt and of a joule, hertz.
_HWMON_TEMPERATURE: Final = _File("hwmon/hwmon*/temp1_input", 1e3)
_HWMON_ENERGY: Final = _File("hwmon/hwmon*/energy1_input", 1e6)
_I915: Final = "drm/card*/gt/gt0"
_XE: Final = "tile0/gt0/freq0"

_LAYOUTS: Final = {
    "amdgpu": _Layout(
        clock=_File("hwmon/hwmon*/freq1_input", 1e6),
        clock_levels="pp_dpm_sclk",
        temperature=_HWMON_TEMPERATURE,
        critical=_File("hwmon/hwmon*/temp1_crit", 1e3),
        power=_File("hwmon/hwmon*/power1_average", 1e6),
    ),
    "i915": _Layout(
        clock=_File(f"{_I915}/rps_act_freq_mhz"),
        temperature=_HWMON_TEMPERATURE,
        energy=_HWMON_ENERGY,
        heat=tuple(f"{_I915}/throttle_reason_{name}" for name in ("thermal", "prochot", "vr_thermalert")),
        power_limit=tuple(f"{_I915}/throttle_reason_{name}" for name in ("pl1", "pl2", "pl4")),
    ),
    "xe": _Layout(
        clock=_File(f"{_XE}/act_freq"),
        temperature=_HWMON_TEMPERATURE,
        energy=_HWMON_ENERGY,
        heat=tuple(f"{_XE}/throttle/reason_{name}" for name in ("thermal", "prochot", "vr_thermalert")),
        power_limit=tuple(f"{_XE}/throttle/reason_{name}" for name in ("pl1", "pl2", "pl4")),
    ),
}  # fmt: skip
"""The files of each kernel driver. The largest clock of Intel's is one that a GPU never holds, so theirs have
no nominal clock."""


def driver_of(address: str, root: Path = ROOT) -> str:
    """Return the name of the kernel driver of a GPU, empty where the kernel shows none."""
    link = root / "sys/bus/pci/devices" / address / "driver"
    return link.resolve().name if link.exists() else ""


def graphics_sensors(address: str, root: Path = ROOT) -> Found:
    """Return the sensors of the GPU at a PCI address that is not NVIDIA's."""
    driver = driver_of(address, root)
    layout = _LAYOUTS.get(driver)
    if layout is None:
        known = ", ".join((*_LAYOUTS, NVIDIA))
        return none_of(address, f"its driver is {driver or 'not shown'}; known are {known}")
    return together(_all(address, layout, driver, root / "sys/bus/pci/devices" / address))


def none_of(address: str, why: str) -> Found:
    """Every sensor of a GPU as missing, for one reason."""
    return Found(missing=tuple(Missing(address, name, why) for name in ALL))


def _all(address: str, layout: _Layout, driver: str, folder: Path) -> Iterator[Sensor | Missing]:
    files = (
        (CLOCK, Quantity.CLOCK, layout.clock, _highest_level(folder, layout.clock_levels)),
        (TEMPERATURE, Quantity.TEMPERATURE, layout.temperature, _number(folder, layout.critical)),
        (POWER, Quantity.POWER, layout.power, None),
        (ENERGY, Quantity.ENERGY, layout.energy, None),
    )
    for name, quantity, file, limit in files:
        yield _sensor(address, name, quantity, file, limit, driver, folder)
    heat, power = (_present(folder, patterns) for patterns in (layout.heat, layout.power_limit))
    if heat or power:
        yield Sensor(address, THROTTLING, Quantity.THROTTLING, lambda: _throttled(heat, power))
    else:
        yield Missing(address, THROTTLING, f"{driver} shows no reasons of throttling")
    yield Missing(address, PROCESSES, f"{driver} tells a process of its own only")


def _sensor(
    address: str,
    name: str,
    quantity: Quantity,
    file: _File | None,
    limit: float | None,
    driver: str,
    folder: Path,
) -> Sensor | Missing:
    # Sorted: the process that reads has to choose the file that the runner chose.
    path = None if file is None else next(iter(sorted(folder.glob(file.pattern))), None)
    if file is None or path is None:
        return Missing(address, name, f"{driver} has no file for it")
    divisor = file.per_unit
    return Sensor(address, name, quantity, lambda: number_in(path) / divisor, limit)


def _present(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(folder.glob(pattern))]


def _throttled(heat: Sequence[Path], power: Sequence[Path]) -> float:
    found = Throttle(0)
    for paths, why in ((heat, Throttle.HEAT), (power, Throttle.POWER)):
        if any(number_in(path) for path in paths):
            found |= why
    return float(found)


def _number(folder: Path, file: _File | None) -> float | None:
    path = None if file is None else next(iter(sorted(folder.glob(file.pattern))), None)
    text = "" if path is None else text_of(path).strip()
    return int(text) / file.per_unit if file is not None and text.isdecimal() else None


def _highest_level(folder: Path, name: str | None) -> float | None:
    """Return the highest clock in MHz of lines such as `1: 1800Mhz *`."""
    found = re.findall(r"(\d+)\s*Mhz", text_of(folder / name), re.IGNORECASE) if name else []
    return max(map(float, found), default=None)
