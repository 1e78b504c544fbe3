"""Finds what the environment puts between a program and the driver: layers, injected libraries, debug output.

Such things change times, and may change results or fail by themselves; a report names them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_VARIABLES: Final = (
    "OPENCL_LAYERS",
    "LD_PRELOAD",
    "POCL_DEBUG",
    "POCL_TRACING",
    "OCL_ICD_DEBUG",
    "RUSTICL_DEBUG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_INJECTION64_PATH",
    "VK_INSTANCE_LAYERS",
    "VK_LOADER_LAYERS_ENABLE",
)


def in_the_way(environment: Mapping[str, str] = os.environ) -> str:
    """Return the variables that put something there, with their values; empty if there are none."""
    found = ((name, environment.get(name, "").strip()) for name in _VARIABLES)
    return "; ".join(f"{name}={value}" for name, value in found if value not in ("", "0"))
