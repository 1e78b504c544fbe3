"""Separates the conditions in an environment from the versions.

A measuring process reports its environment as one table. *Conditions* are the machine and its settings: a
changed one begins another series. *Versions* are the software: the axis along which a history is plotted. An
earlier result is reused where both are the same. What is neither is recorded as a fact beside them.
"""

from collections.abc import Mapping
from typing import Final

CONDITIONS: Final = frozenset(
    {
        "cpu", "processor", "processor_features", "machine", "microcode", "cpus", "smt",
        "kernel", "governor", "turbo", "cpu_quota", "measuring",
        "opencl_device", "opencl_uuid", "opencl_pci", "cuda_uuid", "webgpu_adapter",
        "gpu_uuid", "gpu_vbios", "gpu_mig", "gpu_ecc", "gpu_power_limit_w", "gpu_clocks_locked",
    }
)  # fmt: skip
"""The fields that are conditions. Every other one, those of foreign delegates too, is a version."""

RESERVED: Final = CONDITIONS | {"runtime"}
"""Fields that no delegate may set itself."""


def conditions_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the machine and its settings."""
    return {name: value for name, value in environment.items() if name in CONDITIONS}


def versions_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the software."""
    return {name: value for name, value in environment.items() if name not in CONDITIONS}
