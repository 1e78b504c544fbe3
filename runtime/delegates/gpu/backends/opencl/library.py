"""The library of a device's kernels: compiled once, kept on disk, shared by all models and processes.

A kernel's key is a hash of its text, the text in front of it, the build options, the device with its driver,
and the form in which the driver's results are kept. Models that use the same functions find them there.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from runtime.common.system import usable_cpus
from runtime.delegates.gpu.backends.base import Progress, check_groups, unwatched
from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.by_address import bind_threads, load_function, may_call_addresses
from runtime.delegates.gpu.backends.opencl.compilers import (
    MOST_ON_GPU,
    CompilerLostError,
    ContextRefusedError,
    Form,
    compilers,
)
from runtime.delegates.gpu.backends.opencl.device import usable_compute_units
from runtime.delegates.gpu.backends.opencl.program import (
    BUILD_OPTIONS,
    binary_of,
    built,
    from_binary,
    largest_group,
)
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.keep.cache import Cache
from runtime.delegates.gpu.layout.source import Kernel, Source, trial_kernels
from runtime.errors import DelegateError

_addresses: Final[dict[str, int]] = {}
"""Addresses of the functions that this process has loaded, by their keys; all its delegates share them."""

_WORKS: Final = b"works\n"
_FAILS: Final = b"fails\n"

_trials: Final[dict[str, bytes]] = {}
"""What this process knows of trials, by their keys: `_WORKS` and the binary of `run_layers`, or `_FAILS` and
the reason."""

_bound: Final[dict[tuple[int, int], bool]] = {}
"""Whether the driver's threads could be bound to CPUs, by process and context."""

_loading: Final = Lock()
"""Held while functions are loaded: two threads that load the same ones would load them twice, for good."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedKernels:
    """The kernels of a partition, by the numbers of its functions.

    Where functions are called by address, `layers` is the program of `run_layers`, `addresses` are theirs.
    Elsewhere `programs` has one program for each, in which its kernel has the name `names[number]`.
    """

    names: Sequence[str]
    addresses: Sequence[int] = ()
    layers: cl.Program | None = None
    programs: Sequence[cl.Program] = ()


def kernel_key(form: Form, text: str, device: Capabilities) -> str:
    """Cache key of what a driver makes of a text that is complete."""
    return hashlib.sha256("\0".join((form, text, *BUILD_OPTIONS, device.key)).encode()).hexdigest()


class KernelLibrary:
    """The kernels of an opened device, the `index`-th of the machine; `cache` keeps them."""

    def __init__(self, context: cl.Context, device: Capabilities, index: int, cache: Cache) -> None:
        self._context = context
        self._device = device
        self._cache = cache
        folder = None if cache.folder is None else cache.folder / "compiling"
        self._compilers = compilers(index, device.name, folder)
        self._compilers.most = MOST_ON_GPU if device.is_gpu else None
        self._layers: cl.Program | None = self._tried() if may_call_addresses(device) else None

    @property
    def calls_addresses(self) -> bool:
        """True where a trial has shown that functions can be called by their addresses."""
        return self._layers is not None

    def bind_threads(self, device: cl.Device) -> str:
        """Bind the driver's threads to CPUs, where this process may use as many; once for a context.

        With fewer CPUs than threads nobody knows which ones will work. Returns where they run, or nothing
        on a device that calls no functions by address. Raises pyopencl's errors.
        """
        if self._layers is None:
            return ""
        cpus, units = sorted(usable_cpus()), device.max_compute_units
        if not usable_compute_units(device) == units == len(cpus):
            return f"not bound to CPUs: {units} for {len(cpus)}"
        key = (os.getpid(), int(self._context.int_ptr))
        with _loading:
            if key not in _bound:
                # A single thread has no other to share a CPU with.
                _bound[key] = units == 1 or bind_threads(self._context, self._layers, cpus)
            return "one on each CPU" if _bound[key] else "not bound to CPUs, which were busy at the start"

    def keys(self, source: Source) -> dict[str, str]:
        """Return the keys of a program's kernels, by their names."""
        form: Form = "code" if self.calls_addresses else "binaries"
        return {kernel.name: kernel_key(form, kernel.whole, self._device) for kernel in source.kernels}

    def load(self, source: Source, progress: Progress = unwatched) -> LoadedKernels:
        """Load the kernels of a program; what the library lacks is compiled and kept.

        Raises `DelegateError` with the compiler's first error and its whole log, and `GroupLimitError`.
        """
        names = [kernel.name for kernel in source.kernels]
        keys = self.keys(source)
        with _loading:
            if self._layers is not None:
                self._load_addresses(source, keys, progress)
                return LoadedKernels(names, [_addresses[keys[name]] for name in names], self._layers)
            programs = self._load_programs(source, keys, progress)
            return LoadedKernels(names, programs=[programs[name] for name in names])

    def known(self, kernels: Mapping[str, str]) -> LoadedKernels | None:
        """Kernels by their names and keys; None where the library lacks one. Nothing compiles."""
        with _loading:
            if self._layers is not None:
                if not all(self._has_address(name, key) for name, key in kernels.items()):
                    return None
                return LoadedKernels(
                    tuple(kernels), [_addresses[key] for key in kernels.values()], self._layers
                )
            binaries = [self._cache.read("kernels", key) for key in kernels.values()]
            programs = [from_binary(self._context, one) for one in binaries if one is not None]
            loaded = [program for program in programs if program is not None]
            return LoadedKernels(tuple(kernels), programs=loaded) if len(loaded) == len(kernels) else None

    def _has_address(self, name: str, key: str) -> bool:
        """Whether a function is loaded, be it from the library."""
        if key in _addresses:
            return True
        code = self._cache.read("kernels", key)
        if code is None:
            return False
        try:
            _addresses[key] = load_function(name, code)
        except DelegateError:
            _log.exception("gpu delegate: %s is compiled again", name)
            return False
        return True

    def _load_addresses(self, source: Source, keys: Mapping[str, str], progress: Progress) -> None:
        missing = [
            kernel for kernel in source.kernels if not self._has_address(kernel.name, keys[kernel.name])
        ]

        def take(name: str, code: bytes) -> None:
            self._cache.write("kernels", keys[name], code)
            _addresses[keys[name]] = load_function(name, code)

        self._compile("code", missing, take, progress)

    def _load_programs(
        self, source: Source, keys: Mapping[str, str], progress: Progress
    ) -> dict[str, cl.Program]:
        """Load programs; a driver may refuse binaries, or children a context: this process compiles then."""
        programs: dict[str, cl.Program] = {}
        missing = []
        for kernel in source.kernels:
            binary = self._cache.read("kernels", keys[kernel.name])
            if binary is None:
                missing.append(kernel)
            elif (program := from_binary(self._context, binary)) is not None:
                programs[kernel.name] = program

        def take(name: str, binary: bytes) -> None:
            program = from_binary(self._context, binary)
            if program is not None:
                programs[name] = program
                self._cache.write("kernels", keys[name], binary)

        try:
            self._compile("binaries", missing, take, progress)
        except ContextRefusedError as error:
            _log.info("gpu delegate: this process compiles by itself: %s", error)
        for kernel in source.kernels:
            if kernel.name not in programs:
                programs[kernel.name] = built(self._context, kernel.whole)
                self._cache.write("kernels", keys[kernel.name], binary_of(programs[kernel.name]))
        # For all kernels at once, so that a single further try avoids every one that is refused.
        limits = (largest_group(programs[kernel.name], kernel.name) for kernel in source.kernels)
        check_groups(self._device.name, source, limits)
        return programs

    def _compile(
        self, form: Form, missing: Sequence[Kernel], take: Callable[[str, bytes], None], progress: Progress
    ) -> None:
        done = 0

        def counted(name: str, result: bytes) -> None:
            nonlocal done
            done += 1
            take(name, result)
            progress(done, len(missing))

        if missing:
            progress(done, len(missing))
        # A request carries a single common text for all of its kernels.
        for common in dict.fromkeys(kernel.common for kernel in missing):
            alike = [kernel for kernel in missing if kernel.common == common]
            self._compilers.compile(form, common, alike, counted)

    def _tried(self) -> cl.Program | None:
        """Return the program of `run_layers`, if a trial in a child process has called functions with it.

        The program is kept on disk, and so is the reason of a failure. A child that was lost is no answer.
        """
        trial = trial_kernels()
        common = trial[0].common
        key = kernel_key("trial", common + "".join(kernel.text for kernel in trial), self._device)
        entry = _trials.get(key) or self._cache.read("trials", key)
        program = self._layers_of(entry)
        # A recorded failure stands; a recorded binary that the driver now refuses is tried again.
        if entry is None or (program is None and entry.startswith(_WORKS)):
            entry = self._try(common, trial)
            program = self._layers_of(entry)
            self._cache.write("trials", key, entry)
            if program is None:
                reason = entry.removeprefix(_FAILS).decode()
                _log.warning("gpu delegate: kernels are enqueued one by one: %s", reason)
        _trials[key] = entry
        return program

    def _layers_of(self, entry: bytes | None) -> cl.Program | None:
        if entry is None or not entry.startswith(_WORKS):
            return None
        return from_binary(self._context, entry.removeprefix(_WORKS))

    def _try(self, common: str, trial: Sequence[Kernel]) -> bytes:
        results: list[bytes] = []
        try:
            self._compilers.compile("trial", common, trial, lambda _, binary: results.append(binary))
        except CompilerLostError:
            raise
        except DelegateError as error:
            return _FAILS + str(error).encode()
        return _WORKS + results[0]
