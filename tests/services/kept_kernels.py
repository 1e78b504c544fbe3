"""Compiled kernels, and what a device does with narrow numbers, that runs of the suite keep for each other.

They lie in `delegate-farm-tests/kernels` of the user's cache (or in `FARM_TEST_CACHE`), and are keyed by the
text, the driver with its settings, and the product's files that compile and probe. What fails is not kept.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import selectors
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from runtime.delegates.gpu.backends import opencl
from runtime.delegates.gpu.backends.opencl import precision_probe
from runtime.delegates.gpu.backends.opencl.compilers import Compilers, Form, environment_of_child
from runtime.delegates.gpu.backends.opencl.device import capabilities, list_devices
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph import graph
from runtime.delegates.gpu.keep.cache import _DRIVERS, Cache, open_cache
from runtime.delegates.gpu.layout.source import Kernel
from runtime.delegates.gpu.settings import precision
from runtime.delegates.gpu.settings.precision import Findings

LIMIT_BYTES = 1 << 30
"""Bytes that the folder may take. All kernels of the suite are a tenth of it; smaller would forget those of
another branch, larger only takes disk space.
"""

OWN = frozenset(
    {"PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "VIRTUAL_ENV", "PYTHONPATH", "PYOPENCL_HOME", *_DRIVERS}
)
"""Settings of a compiling process that say where files are, and are others in every tree and run. The first
delegate of a process with a cache names the drivers' folders, pyopencl its own when it is imported.
"""

COMPILING = (
    "__init__", "by_address", "compile_child", "compilers", "device", "faults", "precision_child",
    "precision_probe", "program", "unused_code",
)  # fmt: skip
"""Modules of the backend that its compiling and probing processes, or their other ends, import."""

UNFINISHED = ("ends its process", "its process cannot be started", "no end")
"""How the faults of trials begin that a busy machine, or one without memory, may have ended."""


def folder() -> Path:
    """Return the folder in which runs of the suite keep kernels for the next ones."""
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("FARM_TEST_CACHE") or user / "delegate-farm-tests")


@cache
def keeping_compilers(index: int, name: str, working: Path, idle_s: float) -> Compilers:
    """Return the children of this process for a device, with their files in `working`, behind what is
    kept.
    """
    made = KeepingCompilers(index, name, working, idle_s, kept=open_cache(folder() / "kernels", LIMIT_BYTES))
    atexit.register(made.close)
    return made


def probe_once(device: object, described: Capabilities, cache: Cache) -> Findings:
    """Return what `probe_precision` does, and leave it in `cache`; the trials run once for all runs, unless
    one did not finish.
    """
    state = hashlib.sha256("\0".join((*_settings(), _product())).encode()).hexdigest()
    kept = open_cache(folder() / f"findings-{state[:16]}", LIMIT_BYTES)
    found = precision_probe.probe_precision(device, described, kept)
    key = precision_probe.key_of_findings(described)
    if (known := kept.read("precision", key)) is not None:
        cache.write("precision", key, known)
    entry = kept.path("precision", key)
    if entry is not None and any(fault.startswith(UNFINISHED) for fault in found.faults.values()):
        entry.unlink(missing_ok=True)
    return found


@dataclass(slots=True)
class KeepingCompilers(Compilers):
    """Compilers whose children are asked only for what no run has kept.

    Whoever calls `compile` gets the same either way, and a test that notes the calls sees them all.
    """

    kept: Cache = field(kw_only=True)

    def _compile(
        self,
        form: Form,
        common: str,
        kernels: Sequence[Kernel],
        take: Callable[[str, bytes], None],
        waiting: selectors.BaseSelector,
    ) -> None:
        # A trial has one result, that of its last kernel, which has called the others.
        wanted = {kernel.name: [kernel] for kernel in kernels}
        if form == "trial":
            wanted = {kernels[-1].name: list(kernels)}
        device = _device(self.index)
        keys = {name: _key(form, common, texts, device) for name, texts in wanted.items()}
        for name, key in keys.items():
            if (result := self.kept.read(form, key)) is not None:
                take(name, result)
                del wanted[name]

        def taken(name: str, result: bytes) -> None:
            self.kept.write(form, keys[name], result)
            take(name, result)

        if wanted:
            missing = [kernel for texts in wanted.values() for kernel in texts]
            Compilers._compile(self, form, common, missing, taken, waiting)


def _key(form: Form, common: str, kernels: Sequence[Kernel], device: str) -> str:
    texts = [part for kernel in kernels for part in (kernel.name, repr(kernel.group), kernel.text)]
    parts = (form, common, *texts, device, *_settings(), _product())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _settings() -> list[str]:
    """Return the settings of drivers that a child of this process gets."""
    return sorted(
        f"{name}={value}" for name, value in environment_of_child(Path()).items() if name not in OWN
    )


@cache
def _device(index: int) -> str:
    """Describe the processor, driver and compiler of a device."""
    return capabilities(list_devices()[index]).key


@cache
def _product() -> str:
    """Hash the files that compile and probe: the work of an older state of them is not taken for theirs."""
    (package,) = map(Path, opencl.__path__)
    compiling = (package / f"{name}.py" for name in COMPILING)
    files = (*compiling, Path(graph.__file__), Path(precision.__file__))
    contents = [path.read_bytes() for path in files]
    return hashlib.sha256(b"\0".join(contents)).hexdigest()
