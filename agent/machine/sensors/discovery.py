"""Finds the sensors of a part of the machine, of any vendor."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from agent.machine.cgroups import ROOT
from agent.machine.sensors.graphics import NVIDIA, driver_of, graphics_sensors, none_of
from agent.machine.sensors.nvml import nvidia_sensors
from agent.machine.sensors.processor import processor_sensors
from agent.machine.sensors.sensor import PROCESSOR, Found

NOWHERE = ""
"""The part of a GPU whose driver does not tell its place on the PCI bus."""


def sensors_of(part: str, cpus: Collection[int], root: Path = ROOT, nvml: Any = None) -> Found:
    """Return the sensors of a part. `cpus`: those the farm may use; `nvml` replaces `pynvml`."""
    if part == PROCESSOR:
        return processor_sensors(cpus, root)
    if part == NOWHERE:
        return none_of(part, "the OpenCL driver does not tell where on the PCI bus the device is")
    if driver_of(part, root) == NVIDIA:
        return nvidia_sensors(part, nvml)
    return graphics_sensors(part, root)
