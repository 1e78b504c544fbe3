"""The environment of an agent and of every process that it starts: only the variables listed here.

Whoever starts an agent or a runner may have a database URL with its password, tokens and the broker's URL. A
runner executes strangers' models and installed delegates, so it gets the variables that a loader, a driver, a
thread pool, Python or a locale reads. One that is missing here is handed on by naming it in
`FARM_PASS_ENVIRONMENT`.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

EXTRA_VARIABLE: Final = "FARM_PASS_ENVIRONMENT"
"""Comma-separated names of further variables for the agent's processes, such as those of a rare driver."""

SYSTEM: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CACHE_HOME",
    "LANG", "LANGUAGE", "LC_", "TZ", "TZDIR", "LOCPATH",
)  # fmt: skip
"""Where programs, temporary files and caches are, and how text and times are written."""

LOADER: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_BIND_NOW", "GLIBC_TUNABLES", "MALLOC_")
"""What decides which libraries are loaded and how memory is allocated: without it, a driver is not found, or
another one is measured."""

PYTHON: Final = ("PYTHON", "VIRTUAL_ENV", "COVERAGE_")
"""The interpreter's own, so that a runner imports what its agent imports."""

_DRIVERS: Final = (
    "OCL_", "OPENCL_", "PYOPENCL_", "POCL_", "CL_",
    "CUDA_", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE", "__NV_",
    "ROCM_", "ROCR_", "HIP_", "HSA_", "AMD_", "GPU_",
    "NEO_", "IGC_", "ZE_", "ZES_", "SYCL_", "ONEAPI_",
    "MESA_", "RUSTICL_", "LIBGL_", "GALLIUM_", "RADV_", "ANV_", "LP_NUM_THREADS", "DRI_", "VK_", "__EGL_",
    "MALI_", "FARM_GPUS_SIDE_BY_SIDE",
)  # fmt: skip
"""Settings of the loaders of OpenCL, Vulkan and EGL, and of the drivers of PoCL, NVIDIA, AMD, Intel, Mesa and
Arm: the visible devices, compilers, caches."""

_THREADS: Final = (
    "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "GOTO_", "MKL_", "BLIS_", "NUMEXPR_", "XNNPACK_",
    "TF_CPP_", "TFLITE_",
)  # fmt: skip
"""Thread pools and kernels of BLAS, OpenMP and LiteRT."""

_ATTEMPT: Final = ("FARM_CACHE_DIR", "FARM_ATTEMPT", "FARM_LEASE_DESCRIPTOR")
"""Set by the agent itself: the program cache, the mark of the attempt, the inherited locks of its device."""

_AGENT: Final = (
    "FARM_LEASES", "FARM_AGENT_STATE", "FARM_FAILPOINT",
    "FARM_RUNNER_MEMORY_BYTES", "FARM_RUNNER_SANDBOX", "FARM_RUNNER_READ", "FARM_RUNNER_WRITE",
    "FARM_RUNNER_USERS", "FARM_RUNNER_WHEELS", "FARM_ATTACHED",
    "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip
"""Settings of an agent, for the one that a farm of one machine starts: none of them is a secret."""

RUNNER: Final = (*SYSTEM, *LOADER, *PYTHON, *_DRIVERS, *_THREADS, *_ATTEMPT)
"""What a runner gets."""


def for_agent(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of an agent that a farm of one machine starts, in a folder of its own.

    What `PYTHONPATH` names relative to this process's folder is named absolutely; an empty entry, which would
    stand for that folder, is left out.
    """
    found = chosen(inherited, (*RUNNER, *_AGENT))
    if "PYTHONPATH" in found:
        folders = [str(Path(part).absolute()) for part in found["PYTHONPATH"].split(os.pathsep) if part]
        found["PYTHONPATH"] = os.pathsep.join(folders)
    return found


def chosen(inherited: Mapping[str, str], listed: Iterable[str]) -> dict[str, str]:
    """Return the variables that are listed or named by the user. A listed name that ends with `_` stands for
    all names that begin with it, as does `PYTHON`.
    """
    named = [name.strip() for name in inherited.get(EXTRA_VARIABLE, "").split(",")]
    exact = {*listed, *named, EXTRA_VARIABLE}
    groups = tuple(name for name in listed if name.endswith("_") or name == "PYTHON")
    return {name: value for name, value in inherited.items() if name in exact or name.startswith(groups)}
