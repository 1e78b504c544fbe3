"""The sensors of the host's processors: clock, temperature, throttling by heat, energy.

Formats, in the Linux kernel's Documentation: admin-guide/pm/cpufreq.rst and intel_pstate.rst,
hwmon/sysfs-interface.rst, ABI/testing/sysfs-devices-system-cpu (thermal_throttle) and
power/powercap/powercap.rst.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from agent.machine.cgroups import ROOT, text_of
from agent.machine.sensors.macos import mac_sensors
from agent.machine.sensors.sensor import PROCESSOR, Found, Missing, Quantity, Sensor, number_in, together

CLOCK: Final = "CPU clock"
TEMPERATURE: Final = "CPU temperature"
THROTTLING: Final = "CPU throttling by heat"
ENERGY: Final = "CPU energy"

_CPUS: Final = "sys/devices/system/cpu"
_THERMOMETERS: Final = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Names of the hwmon drivers whose first temperature is that of a processor's package."""

_LISTS_NOMINAL: Final = "acpi-cpufreq"
"""The frequency driver of which the highest frequency that can be asked for is the nominal one. Its
`cpuinfo_max_freq` is the boost of one core where CPPC tells that (drivers/cpufreq/acpi-cpufreq.c)."""


def processor_sensors(cpus: Collection[int], root: Path = ROOT) -> Found:
    """Return the sensors of the CPUs `cpus`."""
    return together(mac_sensors() if sys.platform == "darwin" else _all(sorted(cpus), root))


def _all(cpus: Sequence[int], root: Path) -> Iterator[Sensor | Missing]:
    yield _clock([root / _CPUS / f"cpu{cpu}/cpufreq" for cpu in cpus])
    yield _temperature(root)
    yield _throttling([root / _CPUS / f"cpu{cpu}/thermal_throttle" for cpu in cpus])
    yield _energy(root)


def _clock(folders: Sequence[Path]) -> Sensor | Missing:
    present = [folder for folder in folders if (folder / "scaling_cur_freq").exists()]
    if not present:
        return Missing(PROCESSOR, CLOCK, "the kernel has no cpufreq for these CPUs")

    def fastest_mhz() -> float:
        # An idle CPU beside the one that computes is clocked down, which slows nothing.
        return max(number_in(folder / "scaling_cur_freq") for folder in present) / 1e3

    return Sensor(PROCESSOR, CLOCK, Quantity.CLOCK, fastest_mhz, _nominal_mhz(present[0]))


def _nominal_mhz(folder: Path) -> float | None:
    is_listed = text_of(folder / "scaling_driver").strip() == _LISTS_NOMINAL
    words = text_of(folder / ("scaling_available_frequencies" if is_listed else "base_frequency")).split()
    return max((int(khz) / 1e3 for khz in words if khz.isdecimal()), default=None)


def _temperature(root: Path) -> Sensor | Missing:
    monitors = sorted((root / "sys/class/hwmon").glob("hwmon*"))
    found = [path for path in monitors if text_of(path / "name").strip() in _THERMOMETERS]
    if not found:
        return Missing(PROCESSOR, TEMPERATURE, f"no hwmon of {', '.join(_THERMOMETERS)}")
    critical = text_of(found[0] / "temp1_crit").strip()

    def hottest() -> float:
        return max(number_in(path / "temp1_input") for path in found) / 1e3

    limit = int(critical) / 1e3 if critical.isdecimal() else None
    return Sensor(PROCESSOR, TEMPERATURE, Quantity.TEMPERATURE, hottest, limit)


def _throttling(folders: Sequence[Path]) -> Sensor | Missing:
    names = ("core_throttle_count", "package_throttle_count")
    found = [folder / name for folder in folders for name in names if (folder / name).exists()]
    if not found:
        return Missing(PROCESSOR, THROTTLING, "the kernel does not count it for these CPUs")
    # Each CPU shows the count of its package, too, which the sum has several times: only growth is judged.
    return Sensor(PROCESSOR, THROTTLING, Quantity.THROTTLINGS, lambda: sum(number_in(path) for path in found))


def _energy(root: Path) -> Sensor | Missing:
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
    # Zones below a package, such as its cores, are parts of it and would count twice.
    packages = [zone for zone in zones if text_of(zone / "name").startswith("package-")]
    if not packages:
        return Missing(PROCESSOR, ENERGY, "no RAPL counter of a package in /sys/class/powercap")
    counters = [_unwrapped(zone) for zone in packages]
    return Sensor(PROCESSOR, ENERGY, Quantity.ENERGY, lambda: sum(counter() for counter in counters))


def _unwrapped(zone: Path) -> Callable[[], float]:
    """Read a counter in joules that goes on where the kernel's begins again at 0, every minute or hour."""
    last, wraps = 0.0, 0.0

    def read() -> float:
        nonlocal last, wraps
        now = number_in(zone / "energy_uj")
        if now < last:
            wraps += number_in(zone / "max_energy_range_uj")
        last = now
        return (now + wraps) / 1e6

    return read
