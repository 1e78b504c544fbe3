"""Lists the files that a runner may reach: the system, its interpreter, its drivers, its attempt's files.

What is not listed cannot be opened: home folders, the farm's home, the agent's state with its credentials and
journal, other attempts, `/etc/shadow`, `/tmp`, `/run`.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.processes.sandbox import landlock

Rule = tuple[Path, int]

_PROGRAMS: Final = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
)
"""Programs and libraries of the distribution."""

_DRIVERS: Final = (
    "/opt/rocm*", "/opt/amdgpu*", "/opt/intel", "/opt/nvidia", "/opt/cuda*", "/opt/hailo*",
    "/run/opengl-driver", "/run/nvidia*", "/sys",
)  # fmt: skip
"""Where vendors install drivers, and where drivers learn of their devices."""

_SETTINGS: Final = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "alternatives",
    "OpenCL", "vulkan", "glvnd", "egl", "drirc", "nvidia",
    "ssl/openssl.cnf", "pki/tls/openssl.cnf", "crypto-policies",
    "os-release", "lsb-release", "debian_version", "redhat-release",
    "localtime", "timezone", "locale.conf", "default/locale", "passwd", "group", "nsswitch.conf",
    "host.conf", "hosts", "hostname", "machine-id", "fonts", "mime.types",
)  # fmt: skip
"""What programs read in /etc. Keys and passwords of services are there too, so the rest stays closed."""

_NODES: Final = (
    "null", "zero", "full", "random", "urandom",
    "dri", "kfd", "nvidia*", "nvhost*", "nvmap", "dxg", "accel", "mali*", "kgsl*", "dma_heap", "ion",
    "galcore", "apex_*", "hailo*", "bus/usb", "adsprpc*", "fastrpc*",
)  # fmt: skip
"""Nodes in /dev of what every program opens, and of GPUs and other accelerators."""

_PATH_VARIABLES: Final = (
    "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "LOCPATH", "TZDIR", "SSL_CERT_FILE",
    "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH", "OPENCL_LAYERS", "VK_ICD_FILENAMES",
    "CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "ROCM_HOME", "VIRTUAL_ENV",
)  # fmt: skip
"""Variables that name files of programs and drivers, separated by colons: who set them wants them read."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The files of one attempt. `read` and `write` are readable and writable whole."""

    command: Sequence[str]
    environment: Mapping[str, str]
    read: Sequence[Path]
    write: Sequence[Path]

    def needs(self, folder: Path) -> bool:
        """Return whether anything that this attempt needs lies below a folder."""
        wanted = [*self.read, *self.write, *_python(), *_named(self.command, self.environment)]
        # Either way: a file that lies in the folder, and one outside of it to which a link in it leads.
        return any(path.resolve().is_relative_to(folder) or path.is_relative_to(folder) for path in wanted)

    def rules(self, *, own_tmp: bool, own_shm: bool, changes_proc: bool) -> list[Rule]:
        """Return what Landlock is to allow. `own_tmp`, `own_shm`: /tmp and /dev/shm are the runner's own.
        `changes_proc`: files of /proc can be written safely, so that the peak of memory can be reset.
        """
        proc = landlock.READ | landlock.APPEND if changes_proc else landlock.READ
        rules = [(Path("/proc"), proc), (Path("/dev"), landlock.LIST)]
        rules += [(path, landlock.READ) for path in self._readable()]
        # Folders that an import lists, though only some of their contents are readable.
        folders = map(Path, filter(None, sys.path))
        rules += [(folder, landlock.LIST) for folder in folders if _is_checkout(folder)]
        rules += [(path, landlock.DEVICE) for path in device_nodes()]
        own = {Path("/dev/shm"): own_shm, Path("/tmp"): own_tmp}  # noqa: S108
        writable = [*self.write, *(path for path, is_own in own.items() if is_own)]
        rules += [(path, landlock.WRITE) for path in writable]
        return rules

    def _readable(self) -> Iterator[Path]:
        yield from map(Path, _PROGRAMS)
        yield from _found("/", [pattern.removeprefix("/") for pattern in _DRIVERS])
        yield from (Path("/etc", name) for name in _SETTINGS)
        yield from _python()
        yield from _named(self.command, self.environment)
        yield from self.read


def device_nodes() -> list[Path]:
    """Return the nodes in /dev that a runner may open."""
    return list(_found("/dev", _NODES))


def _python() -> Iterator[Path]:
    """Yield the interpreter's folders, and of a checkout on its path the packages and modules alone: a farm's
    home may lie beside them.
    """
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix):
        yield Path(prefix)
    # In a virtual environment the interpreter is a link that leads out of it.
    yield Path(os.path.realpath(sys.executable)).parent
    for entry in map(Path, filter(None, sys.path)):
        if _is_checkout(entry):
            yield from _modules(entry)
        elif entry.is_absolute():
            yield entry


def _is_checkout(entry: Path) -> bool:
    installed = any(entry.is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))
    return not installed and entry.name not in ("site-packages", "dist-packages") and entry.is_dir()


def _modules(checkout: Path) -> Iterator[Path]:
    """Yield what can be imported from a folder, and what describes it."""
    for path in checkout.iterdir():
        importable = path.is_dir() and any(path.glob("*.py"))
        if importable or path.suffix in (".py", ".so", ".dist-info", ".egg-info"):
            yield path


def _named(command: Iterable[str], environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files that a command line and the variables of drivers name."""
    yield from (Path(word) for word in command if word.startswith("/"))
    for variable in _PATH_VARIABLES:
        for word in environment.get(variable, "").split(":"):
            if word.startswith("/") and word != "/":
                yield Path(word)


def _found(folder: str, patterns: Iterable[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from Path(folder).glob(pattern)
