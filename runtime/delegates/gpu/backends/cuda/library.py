"""The kernels of a CUDA device: PTX from the compiler, machine code from the driver, kept on disk."""

import ctypes
import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from runtime.delegates.gpu.backends.base import Progress, check_groups, unwatched
from runtime.delegates.gpu.backends.cuda.device import OpenedDevice
from runtime.delegates.gpu.backends.cuda.driver import CONSTANTS, CudaError, driver
from runtime.delegates.gpu.backends.cuda.ptx import STATIC_BYTES, Compiler, Ptx, bounds, options
from runtime.delegates.gpu.keep.cache import Cache
from runtime.delegates.gpu.layout.source import Kernel, Source
from runtime.errors import DelegateError

_LOG_BYTES: Final = 8 << 10
"""Room for what the driver's assembler says of an error; longer texts are cut."""


@dataclass(frozen=True, slots=True)
class LoadedKernel:
    """A function on the device, and the shared memory that its launch asks for, in bytes."""

    function: int
    dynamic_bytes: int


@dataclass(frozen=True, slots=True)
class LoadedKernels:
    """The kernels of a partition, by the numbers of its functions."""

    kernels: Sequence[LoadedKernel]


_loaded: Final[dict[tuple[int, str, str], LoadedKernel]] = {}
"""The kernels that a process has loaded, by device and key; they stay as long as its primary context."""


@dataclass(frozen=True, slots=True)
class KernelLibrary:
    """The kernels of an opened device. The device's context is current wherever one is loaded."""

    opened: OpenedDevice
    cache: Cache

    def keys(self, source: Source) -> dict[str, str]:
        """Return the keys of kernels, as entries of the kind `kernels`, by their names."""
        return {kernel.name: self._key(kernel) for kernel in source.kernels}

    def _key(self, kernel: Kernel) -> str:
        target = options(self.opened.device.target)
        # The bounds only enter the PTX, so the kernel's text does not cover them.
        parts = ("cubin", kernel.whole, bounds(kernel), *target, self.opened.capabilities.key)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def load(self, source: Source, progress: Progress = unwatched) -> LoadedKernels:
        """Load the kernels of a program; what is not kept is compiled and kept.

        Raises `DelegateError`: no compiler, or an error of the compiler's or the assembler's; `CudaError`;
        `GroupLimitError`.
        """
        keys = self.keys(source)
        missing = [kernel for kernel in source.kernels if self._kept(kernel.name, keys[kernel.name]) is None]
        if missing:
            compiler, target = Compiler.found(), self.opened.device.target
            progress(0, len(missing))
            # The compilers are processes of their own: threads are enough to keep all CPUs busy.
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                texts = pool.map(lambda kernel: compiler.ptx(kernel, target), missing)
                for number, (kernel, ptx) in enumerate(zip(missing, texts, strict=True), 1):
                    # An entry holds the size of dynamic shared memory in decimal, a
                    # newline, and the machine code. The driver assembles in this thread,
                    # where the context is current, while clang works on later kernels.
                    code = b"%d\n%s" % (ptx.dynamic_bytes, assembled(kernel.name, ptx))
                    # Loaded before it is kept, because an entry that
                    # the driver refuses would fail every later start.
                    self._load(kernel.name, keys[kernel.name], code)
                    self.cache.write("kernels", keys[kernel.name], code)
                    progress(number, len(missing))
        found = [self._kept(kernel.name, keys[kernel.name]) for kernel in source.kernels]
        loaded = [one for one in found if one is not None]
        check_groups(self.opened.device.name, source, map(_largest_group, loaded))
        return LoadedKernels(loaded)

    def known(self, kernels: Mapping[str, str]) -> LoadedKernels | None:
        """Kernels by their names and keys; None where one is not kept. Nothing compiles."""
        found = [self._kept(name, key) for name, key in kernels.items()]
        loaded = [one for one in found if one is not None]
        return LoadedKernels(loaded) if len(loaded) == len(found) else None

    def _kept(self, name: str, key: str) -> LoadedKernel | None:
        """Return a kernel that is loaded, or load its machine code; None without any."""
        known = _loaded.get(self._place(key))
        if known is not None:
            return known
        code = self.cache.read("kernels", key)
        return None if code is None else self._load(name, key, code)

    def _load(self, name: str, key: str, code: bytes) -> LoadedKernel:
        head, _, cubin = code.partition(b"\n")
        cuda, dynamic_bytes = driver(), int(head)
        module = cuda.handle("cuModuleLoadData", cubin)
        function = cuda.handle("cuModuleGetFunction", module, name.encode())
        # Without this opt-in of the function, a launch that asks for more is refused.
        if dynamic_bytes > STATIC_BYTES:
            attribute = CONSTANTS["CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"]
            cuda.call("cuFuncSetAttribute", function, attribute, dynamic_bytes)
        _loaded[self._place(key)] = loaded = LoadedKernel(function, dynamic_bytes)
        return loaded

    def _place(self, key: str) -> tuple[int, str, str]:
        return os.getpid(), self.opened.device.uuid, key


def assembled(name: str, ptx: Ptx) -> bytes:
    """Return the machine code that the driver makes of PTX for the device of the current context.

    Raises `DelegateError` with the driver's log.
    """
    cuda, log = driver(), ctypes.create_string_buffer(_LOG_BYTES)
    asked = (ctypes.c_int * 2)(
        CONSTANTS["CU_JIT_ERROR_LOG_BUFFER"], CONSTANTS["CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"]
    )
    # A numeric option is passed in place of the pointer itself (cuda.h).
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
    state, code, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    cuda.call("cuLinkCreate_v2", len(asked), asked, values, ctypes.byref(state))
    try:
        # PTX must be null-terminated, and its size includes the null.
        text = ptx.text.encode() + b"\0"
        kind = CONSTANTS["CU_JIT_INPUT_PTX"]
        cuda.call("cuLinkAddData_v2", state, kind, text, len(text), name.encode(), 0, None, None)
        cuda.call("cuLinkComplete", state, ctypes.byref(code), ctypes.byref(size))
        # A copy, because the code is owned by the linker state that is destroyed below.
        return ctypes.string_at(code.value or 0, size.value)
    except CudaError as error:
        said = log.value.decode(errors="replace").strip()
        raise DelegateError(f"gpu delegate: the driver cannot assemble {name}: {error}: {said}") from error
    finally:
        cuda.call("cuLinkDestroy", state)


def _largest_group(loaded: LoadedKernel) -> int:
    """Return how many work-items the device lets a group of a kernel have."""
    attribute = CONSTANTS["CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK"]
    return driver().handle("cuFuncGetAttribute", attribute, loaded.function)
