"""The environment of a measuring process: the caches and threads that it may use, and its report of it."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from agent.processes.environment import own_caches
from agent.runner.probe.cuda_devices import CUDA, with_cuda_now
from agent.runner.probe.host import HOST_CPUS_VARIABLE, delegate_environment, host_environment
from agent.runner.probe.webgpu_adapters import OPENCL, with_adapter
from agent.wire.messages import INTERFACE_FACT, Device
from runtime.common.system import THREADS_VARIABLE
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import DeviceError, FarmRuntimeError

_POOLS = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "POCL_MAX_PTHREAD_COUNT",
    "POCL_CPU_MAX_CU_COUNT",
)
"""Thread pools that would otherwise take every CPU of the host."""


def measuring_environment(
    base: Mapping[str, str], caches: Path, threads: int, host_cpus: Iterable[int] = ()
) -> dict[str, str]:
    """Return the environment of a measuring process: `base`, cache folders below `caches`, pools of
    `threads`.

    `host_cpus`: the CPUs that the farm may use, which a process that is bound to some cannot find out.
    """
    environment = {**base, **own_caches(caches)}
    if listed := ",".join(map(str, sorted(host_cpus))):
        environment[HOST_CPUS_VARIABLE] = listed
    environment.update(dict.fromkeys((*_POOLS, THREADS_VARIABLE), str(threads)))
    return environment


def choose_cpus(allowed: Sequence[int], siblings: Mapping[int, frozenset[int]], threads: int) -> list[int]:
    """Choose the CPUs for `threads` threads: one per physical core first, then their hyper-threads.

    `siblings` maps a CPU to all logical CPUs of its core. Raises `ValueError` for more threads than CPUs.
    """
    if not 1 <= threads <= len(allowed):
        raise ValueError(f"threads: {threads}, but this host lets us use {len(allowed)} CPUs")
    # A hyper-thread shares its core's units: two threads on one core would measure each other.
    place: dict[int, int] = {}
    for cpu in sorted(allowed):
        core = siblings.get(cpu, frozenset({cpu}))
        # How many CPUs of its core come before it: 0 for the first one of each core.
        place[cpu] = sum(1 for other in place if other in core)
    return sorted(sorted(allowed, key=lambda cpu: (place[cpu], cpu))[:threads])


def core_siblings(cpus: Sequence[int]) -> dict[int, frozenset[int]]:
    """Logical CPUs that share a core, as the kernel lists them; a CPU without topology is alone."""
    found = {}
    for cpu in cpus:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        found[cpu] = _cpu_list(path.read_text()) if path.exists() else frozenset({cpu})
    return found


def _cpu_list(text: str) -> frozenset[int]:
    """Parse `0-3,8`."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


log = logging.getLogger(__name__)


def present_device(device: Device) -> Device:
    """Return the device as this process finds it. Raises `DeviceError` if another one has taken its place."""
    if device.api == "opencl":
        from agent.runner.probe.opencl_devices import found_again  # noqa: PLC0415  # loads the drivers

        present = found_again(device)
    else:
        present = device.model_copy(update={"environment": host_environment()})
    interface = device.facts.get(INTERFACE_FACT, OPENCL)
    if interface == CUDA:
        return with_cuda_now(present)
    return present if interface == OPENCL else with_adapter(present, interface)


def reported_environment(device: Device, kind: str) -> dict[str, str]:
    """Return the environment of this process, which has run a delegate on a device.

    Raises `DeviceError` where that device is not at the index any more at which it was opened.
    """
    present = present_device(device)
    used, found = (which.facts.get("opencl_index") for which in (device, present))
    if used != found:
        raise DeviceError(
            f"{device.device_id} moved from OpenCL device {used} to {found} while it was measured"
        )
    descriptor = delegate_descriptor(kind)
    through = descriptor.interfaces(present).get(present.facts.get(INTERFACE_FACT, ""), {})
    return present.environment | delegate_environment(descriptor) | dict(through)


def environment_of_failed(device: Device, kind: str) -> dict[str, str]:
    """Return the environment of a process that measured nothing; empty if it cannot be determined."""
    try:
        return reported_environment(device, kind)
    except (FarmRuntimeError, OSError) as error:
        log.warning("the environment is not known: %s", error)
        return {}
