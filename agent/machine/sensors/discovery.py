"""Finds the sensors of a part of the machine, of any vendor; those of NVIDIA's GPUs by NVML.

NVML comes with the package `nvidia-ml-py`, extra `nvidia`.
"""

from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from agent.machine.cgroups import ROOT
from agent.machine.sensors import graphics
from agent.machine.sensors.processor import processor_sensors
from agent.machine.sensors.sensor import PROCESSOR, Found, Missing, Quantity, Sensor, Throttle, together

_REASONS: Final = {
    0x04: Throttle.POWER,
    0x08: Throttle.HARDWARE,
    0x20: Throttle.HEAT,
    0x40: Throttle.HEAT | Throttle.HARDWARE,
    0x80: Throttle.HARDWARE,
}
"""NVML's clocks event reasons (nvml.h): software power cap, hardware slowdown, software thermal slowdown,
hardware thermal slowdown, hardware power brake. Others (idle, locked clocks, sync boost) disturb nothing."""

_SM_CLOCK: Final = 1
"""NVML_CLOCK_SM: the clock of the multiprocessors."""

_GPU_SENSOR: Final = 0
"""NVML_TEMPERATURE_GPU: the sensor of the die."""

_SLOWDOWN: Final = 1
"""NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: where the hardware slows the clock down."""


def nvidia_sensors(address: str, library: Any = None) -> Found:
    """Return the sensors of the NVIDIA GPU at a PCI address. `library` replaces the module `pynvml`."""
    try:
        nvml = library or import_module("pynvml")
    except ImportError:
        return graphics.none_of(
            address, "NVML needs the package nvidia-ml-py: pip install delegate-farm[nvidia]"
        )
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByPciBusId(address.encode())
    except nvml.NVMLError as error:
        return graphics.none_of(address, f"NVML: {error}")
    return together(_all(address, nvml, handle))


def _all(address: str, nvml: Any, handle: Any) -> Iterator[Sensor | Missing]:
    def asked(function: str, *arguments: Any) -> Callable[[], Any]:
        def ask() -> Any:
            try:
                return getattr(nvml, function)(handle, *arguments)
            # Older releases of pynvml lack some functions; a GPU that lacks a counter answers with an error.
            except (nvml.NVMLError, AttributeError) as error:
                raise ValueError(f"NVML: {error}") from error

        return ask

    def known(ask: Callable[[], Any]) -> float | None:
        try:
            return float(ask())
        except ValueError:
            return None

    def scaled(ask: Callable[[], Any], per_unit: float = 1.0) -> Callable[[], float]:
        return lambda: float(ask()) / per_unit

    clock, default = (
        asked(f"nvmlDeviceGet{name}", _SM_CLOCK) for name in ("ClockInfo", "DefaultApplicationsClock")
    )
    heat = asked("nvmlDeviceGetTemperature", _GPU_SENSOR)
    slowdown = asked("nvmlDeviceGetTemperatureThreshold", _SLOWDOWN)
    reasons = asked("nvmlDeviceGetCurrentClocksThrottleReasons")
    processes = asked("nvmlDeviceGetComputeRunningProcesses")
    yield Sensor(address, graphics.CLOCK, Quantity.CLOCK, scaled(clock), known(default))
    yield Sensor(address, graphics.TEMPERATURE, Quantity.TEMPERATURE, scaled(heat), known(slowdown))
    # NVML counts power in mW, and energy in mJ.
    yield Sensor(address, graphics.POWER, Quantity.POWER, scaled(asked("nvmlDeviceGetPowerUsage"), 1e3))
    yield Sensor(
        address, graphics.ENERGY, Quantity.ENERGY, scaled(asked("nvmlDeviceGetTotalEnergyConsumption"), 1e3)
    )
    yield Sensor(address, graphics.THROTTLING, Quantity.THROTTLING, lambda: _throttled(int(reasons())))
    yield Sensor(address, graphics.PROCESSES, Quantity.PROCESSES, lambda: float(len(processes())))


def _throttled(mask: int) -> float:
    found = Throttle(0)
    for bit, why in _REASONS.items():
        if mask & bit:
            found |= why
    return float(found)


NOWHERE = ""
"""The part of a GPU whose driver does not tell its place on the PCI bus."""


def sensors_of(part: str, cpus: Collection[int], root: Path = ROOT, nvml: Any = None) -> Found:
    """Return the sensors of a part. `cpus`: those the farm may use; `nvml` replaces `pynvml`."""
    if part == PROCESSOR:
        return processor_sensors(cpus, root)
    if part == NOWHERE:
        return graphics.none_of(part, "the OpenCL driver does not tell where on the PCI bus the device is")
    if graphics.driver_of(part, root) == graphics.NVIDIA:
        return nvidia_sensors(part, nvml)
    return graphics.graphics_sensors(part, root)
