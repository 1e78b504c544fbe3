"""The OpenCL devices of this host, as the drivers list them and as their compilers prove them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agent.runner.probe.host import cpu_model, exclusion_group, host_environment, host_facts
from agent.wire import messages
from runtime.delegates.gpu.backends.choice import in_the_way
from runtime.errors import DeviceError

if TYPE_CHECKING:
    import pyopencl

_PLATFORM_SLUGS = (
    ("portable computing language", "pocl"),
    ("nvidia", "nvidia"),
    ("intel", "intel"),
    ("amd", "amd"),
    ("rusticl", "rusticl"),
)

_SLUG_WORDS = 3
"""How many words of an unknown platform's name its devices' ids carry. Chosen: enough to tell vendors apart,
short enough to type. A change renames devices, which starts new series."""


@dataclass(slots=True)
class Trials:
    """Findings that take seconds, by device and driver: those `known` from before, and all that hold now."""

    known: Mapping[str, str] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)

    def of(self, key: str, make: Callable[[], str]) -> str:
        """Return a finding, made once."""
        if key not in self.found:
            self.found[key] = self.known.get(key) or make()
        return self.found[key]


def opencl_devices(trials: Trials) -> tuple[list[messages.Device], list[str]]:
    """Every OpenCL device of every platform that can be compiled for, and why others cannot.

    The devices' `delegates` are empty. Raises `DeviceError`, or `ImportError` without pyopencl.
    """
    from runtime.delegates.gpu.backends.opencl.device import (  # noqa: PLC0415  # loads the drivers
        list_devices,
        platforms_without_devices,
    )
    from runtime.delegates.gpu.backends.opencl.program import probe_compiler  # noqa: PLC0415  # as above

    seen: Counter[str] = Counter()
    found, faults = [], []
    for index, device in enumerate(list_devices()):
        stem = f"opencl-{platform_slug(device.platform.name)}-{'cpu' if _is_cpu(device) else 'gpu'}"
        compiler = probe_compiler(device)
        if compiler.fault is None:
            found.append(_describe(device, index, f"{stem}-{seen[stem]}", compiler.seconds, trials))
        else:
            faults.append(
                f"the OpenCL driver {device.driver_version.strip()} lists {device.name.strip()} but cannot "
                f"compile for it; install a newer driver ({compiler.fault})"
            )
        # A device without a compiler is counted too: its neighbours keep their ids once it is repaired.
        seen[stem] += 1
    caches = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", "not set")
    faults += [
        f"the OpenCL platform {name} is installed but lists no device; PoCL does so where it can write "
        f"neither XDG_CACHE_HOME nor HOME ({caches})"
        for name in platforms_without_devices()
    ]
    return found, faults


def platform_slug(name: str) -> str:
    """Return a short stable name of an OpenCL platform: `pocl`, `nvidia`, ..., else its own first words."""
    lowered = name.lower()
    for part, slug in _PLATFORM_SLUGS:
        if part in lowered:
            return slug
    return "-".join(re.findall(r"[a-z0-9]+", lowered)[:_SLUG_WORDS]) or "unnamed"


def _is_cpu(device: pyopencl.Device) -> bool:
    import pyopencl  # noqa: PLC0415  # loaded by `list_devices`

    return bool(device.type & pyopencl.device_type.CPU)


def _found_before(device: pyopencl.Device, trials: Trials) -> dict[str, str]:
    """Return earlier findings about the device: the probe of fp16 and bfloat16, and from the delegate's cache
    the check of operators, if one ran.
    """
    from runtime.delegates.gpu.backends.opencl.device import capabilities  # noqa: PLC0415  # loads the drivers
    from runtime.delegates.gpu.backends.opencl.precision_probe import (  # noqa: PLC0415  # as above
        key_of_findings,
        probe_precision,
    )
    from runtime.delegates.gpu.keep.cache import cache_folder, open_cache  # noqa: PLC0415  # as above
    from runtime.delegates.gpu.keep.kept_conformance import kept_conformance  # noqa: PLC0415  # as above

    described = capabilities(device)
    cache = open_cache(cache_folder(None, dict(os.environ)))
    able = trials.of(key_of_findings(described), lambda: probe_precision(device, described, cache).able)
    facts = {messages.NARROW_NUMBERS_FACT: able}
    if (checked := kept_conformance(described, cache)) is not None:
        facts[messages.CONFORMANCE_FACT] = str(checked)
        if checked.wrong:
            facts[messages.WRONG_OPERATORS_FACT] = ",".join(checked.wrong)
    return facts


def _describe(
    device: pyopencl.Device,
    index: int,
    device_id: str,
    compile_seconds: float,
    trials: Trials,
) -> messages.Device:
    cpu = _is_cpu(device)
    return messages.Device(
        device_id=device_id,
        kind="cpu" if cpu else "gpu",
        api="opencl",
        # PoCL names a processor by its compiler's class of them: pthread-skylake-avx512.
        name=f"{cpu_model()} (OpenCL on CPU)" if cpu else device.name.strip(),
        vendor=device.vendor.strip(),
        delegates=(),
        exclusion_group=exclusion_group(device_id, cpu=cpu),
        environment={**host_environment(), **_environment(device)},
        facts={
            **host_facts(),
            "opencl_index": str(index),
            "opencl_compute_units": str(device.max_compute_units),
            "opencl_clock_mhz": str(device.max_clock_frequency),
            "opencl_memory_bytes": str(device.global_mem_size),
            "opencl_timer_resolution_ns": str(device.profiling_timer_resolution),
            messages.FIRST_KERNEL_FACT: f"{compile_seconds:.2f}",
            **_found_before(device, trials),
            **({messages.IN_THE_WAY_FACT: found} if (found := in_the_way()) else {}),
        },
    )


def _environment(device: pyopencl.Device) -> dict[str, str]:
    """Return the fields that distinguish an OpenCL device and its driver from others."""
    from runtime.delegates.gpu.backends.opencl.device import identity  # noqa: PLC0415  # loads the drivers

    return {
        "opencl_platform": device.platform.name.strip(),
        "opencl_platform_version": device.platform.version.strip(),
        "opencl_device": device.name.strip(),
        "opencl_device_version": device.version.strip(),
        "opencl_driver": device.driver_version.strip(),
        **identity(device),
    }


def found_again(known: messages.Device) -> messages.Device:
    """Find the device again: at its present index, with its present environment.

    The loader's order may have changed since the agent listed it. A device is known by its UUID, else by its
    place on the PCI bus, else by its name and its platform's. Raises `DeviceError` where none is the device.
    """
    from runtime.delegates.gpu.backends.opencl.device import list_devices  # noqa: PLC0415  # loads the drivers

    present = [_environment(device) for device in list_devices()]
    listed = int(known.facts["opencl_index"])
    # Every device has the last of them, its name.
    name = next(mark for mark in _MARKS if mark in known.environment)
    wanted = _mark(known.environment, name)
    # Of several that share a name and have no mark of their own, the one at the known index is taken.
    order = sorted(range(len(present)), key=lambda index: index != listed)
    index = next((i for i in order if _mark(present[i], name) == wanted), None)
    if index is None:
        now = present[listed]["opencl_device"] if listed < len(present) else "absent"
        raise DeviceError(
            f"{known.device_id} is not the device that the agent listed: OpenCL device {listed} was "
            f"{known.environment['opencl_device']} ({', '.join(wanted)}) and is {now} now; restart the agent"
        )
    return known.model_copy(
        update={
            "environment": {**host_environment(), **present[index]},
            "facts": {**known.facts, "opencl_index": str(index)},
        }
    )


_MARKS = ("opencl_uuid", "opencl_pci", "opencl_device")
"""The fields that a device is known by, the surest first."""


def _mark(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return the identifying value of a mark; for a mere name, with that of its platform."""
    names = (name, "opencl_platform") if name == _MARKS[-1] else (name,)
    return tuple(environment.get(part, "") for part in names)
