"""Facts about this host and this software: those that split a series of results, and those only recorded;
the installed size of a delegate.
"""

import functools
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Collection, Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions, version
from importlib.resources import files
from pathlib import Path
from typing import Final

from agent.machine.conditions import settings
from agent.machine.host_tuning import in_force
from agent.wire.exclusion import HOST_GROUP
from agent.wire.measurement import Installed
from agent.wire.messages import HOST_TUNING_FACT
from agent.wire.provenance import RESERVED
from runtime.common.installation import DISTRIBUTION, WHEEL_PACKAGE, installed_version, own_build
from runtime.common.system import fields_of, sysctl, told_by, usable_cpus
from runtime.delegates.descriptor import DelegateDescriptor
from runtime.delegates.processor import BRAND, processor
from runtime.delegates.registry import delegate_descriptor, delegate_distribution
from runtime.errors import DelegateError
from runtime.measure.benchmark import MEASURING_VERSION

HOST_CPU: Final = "host-cpu"
"""Id of the host's CPU, and the exclusion group of everything that runs on it."""

HOST_CPUS_VARIABLE: Final = "FARM_HOST_CPUS"
"""In the environment of a measuring process: how many CPUs the farm may use, of which it has its share."""

SIDE_BY_SIDE_VARIABLE: Final = "FARM_GPUS_SIDE_BY_SIDE"

_CPUINFO = Path("/proc/cpuinfo")
_SOURCES = (".py", ".cl")
"""Suffixes of the files whose change may change an output or a time."""


def host_environment() -> dict[str, str]:
    """Return the conditions and versions of every device of this host, as this process finds them.

    LiteRT's version is among them whether or not `litert` runs there: LiteRT makes the references.
    """
    cpus = host_cpus()
    return {
        "cpu": cpu_model(),
        "processor": processor().model,
        "processor_features": processor().features,
        "cpus": str(len(cpus)),
        "machine": platform.machine(),
        "kernel": platform.release(),
        **settings(cpus),
        "python": platform.python_version(),
        "numpy": package_version("numpy"),
        "litert": package_version("ai-edge-litert"),
        "measuring": MEASURING_VERSION,
    }


def host_cpus() -> Collection[int]:
    """Return the CPUs that the farm may use: in a measuring process, which is bound to some, its runner's."""
    listed = os.environ.get(HOST_CPUS_VARIABLE)
    return usable_cpus() if listed is None else [int(cpu) for cpu in listed.split(",")]


def exclusion_group(device_id: str, *, cpu: bool) -> str:
    """Return the group that must not run beside a device: everything on its host, or only the CPU if the
    operator lets GPUs be measured side by side (`FARM_GPUS_SIDE_BY_SIDE=1`).
    """
    if cpu or os.environ.get(SIDE_BY_SIDE_VARIABLE) != "1":
        return HOST_GROUP
    return f"{HOST_GROUP}/{device_id}"


def delegate_environment(descriptor: DelegateDescriptor) -> dict[str, str]:
    """Return the versions of a delegate's results: the runtime files that it executes, and its own fields.

    Raises `DelegateError` for a field that describes the machine, which would put its results into series
    that are not its own, and for a field that is not a text.
    """
    own = dict(descriptor.environment())
    for name, value in own.items():
        if name in RESERVED or name in host_environment():
            raise DelegateError(
                f"{descriptor.name}: the environment field {name!r} is the device's own; use another name"
            )
        if not isinstance(value, str):  # foreign code may break its type annotations
            raise DelegateError(f"{descriptor.name}: the environment field {name!r} must be a text")
    return {"runtime": runtime_identity(descriptor.executes), **own}


def host_facts() -> dict[str, str]:
    """Facts that are recorded beside the environment and are never part of its id."""
    page_bytes, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    return {
        "hostname": platform.node(),
        "os": _os_name(),
        "memory_bytes": str(page_bytes * pages),
        "cpus_installed": str(os.cpu_count() or 0),
        **host_tuning(),
    }


def host_tuning() -> dict[str, str]:
    """Return the fact that records which settings `farm-agent tuning` now holds changed on this host."""
    return {HOST_TUNING_FACT: in_force() or "none"}


def cpu_model() -> str:
    """Return the CPU's name as the kernel gives it."""
    if sys.platform == "darwin":
        return sysctl(BRAND).get(BRAND) or platform.machine()
    text = _CPUINFO.read_text() if _CPUINFO.exists() else ""
    # `model name` is x86's; Arm's boards have one of the others, or none.
    named = re.search(r"^(?:model name|Model|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(named.group(1).split()) if named else platform.processor() or platform.machine()


def package_version(name: str) -> str:
    """Installed version of a distribution, or `not installed`."""
    return installed_version(name) or "not installed"


@functools.cache
def runtime_identity(executes: tuple[str, ...]) -> str:
    """Version of the runtime and a hash of these files and folders of it: an edit is another version of the
    results that execute it, and of no other. Of a wheel's process, the commit and a part of the wheel's hash.
    """
    if build := own_build():
        return build
    digest = hashlib.sha256()
    root = Path(str(files("runtime")))
    for path in sources(executes):
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes())
    return f"{version('delegate-farm')}+{digest.hexdigest()[:10]}"


def sources(names: Iterable[str], root: Path | None = None) -> list[Path]:
    """Return the runtime's source files under these names whose change may change an output or a time.

    `root`: the folder of the package `runtime`; None: that of this process.
    """
    root = root or Path(str(files("runtime")))
    named = (path for name in names for path in root.glob(name))
    found = (file for path in named for file in ([path] if path.is_file() else path.rglob("*")))
    return sorted({file for file in found if file.suffix in _SOURCES})


def _os_name() -> str:
    if sys.platform == "darwin":
        told = fields_of(told_by("sw_vers"))
        return " ".join(told.get(name, "") for name in ("ProductName", "ProductVersion", "BuildVersion"))
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform()


class _UnknownSizeError(Exception):
    """A distribution whose files are not listed."""


def installed(kind: str, release_of: Callable[[str], Path | None] = lambda _: None) -> Installed:
    """Return the bytes of the delegate's own files and of the packages that it names; without drivers, Python
    and numpy, which every delegate needs. Of this project's distribution, which brings several delegates,
    only the files that the delegate executes count. `release_of`: the folder of a package that is measured in
    place of the installed one. Raises `DelegateError` as `delegate_descriptor`.
    """
    descriptor = delegate_descriptor(kind)
    try:
        brings = delegate_distribution(kind)
        if brings is None or brings.name == DISTRIBUTION:
            release = release_of(DISTRIBUTION)
            root = None if release is None else release / WHEEL_PACKAGE / "runtime"
            own = sum(path.stat().st_size for path in sources(descriptor.executes, root))
        else:
            own = _bytes_of(brings)
        return Installed(
            bytes=own + sum(_bytes_of(_found(name, release_of(name))) for name in descriptor.packages)
        )
    except PackageNotFoundError as error:
        return Installed(note=f"the package {error.name} is not installed")
    except (_UnknownSizeError, OSError) as error:
        return Installed(note=str(error))


def _found(name: str, folder: Path | None) -> Distribution:
    # The folder is an unpacked wheel of this name (`agent.machine.wheels`), so there is one.
    return distribution(name) if folder is None else next(iter(distributions(name=name, path=[str(folder)])))


def _bytes_of(package: Distribution) -> int:
    """Return the size of all files of a distribution."""
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        raise _UnknownSizeError(f"the package {package.name} is installed as a link to its sources")
    if package.files is None:
        raise _UnknownSizeError(f"the package {package.name} does not list its files")
    found = {Path(str(package.locate_file(file))) for file in package.files}
    return sum(path.stat().st_size for path in found if path.is_file())
