"""NVIDIA's driver library by ctypes: the functions that the backend calls, and their errors.

Names, parameters and constants are those of `cuda.h`, with the version of each function as the library
exports it; a test compares them with NVIDIA's own header. Drivers from 11.5 on have them all.
"""

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p
from functools import cache
from typing import Any, Final

from runtime.errors import DelegateError, DelegateMissingError

LIBRARY: Final = "libcuda.so.1"

_HANDLE: Final = c_void_p
_HANDLE_OUT: Final = POINTER(c_void_p)
_POINTER: Final = c_ulonglong
"""CUdeviceptr: an address on the device."""

FUNCTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetUuid_v2": (POINTER(c_ubyte * 16), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (_HANDLE_OUT, c_int),
    "cuCtxPushCurrent_v2": (_HANDLE,),
    "cuCtxPopCurrent_v2": (_HANDLE_OUT,),
    "cuLinkCreate_v2": (c_uint, POINTER(c_int), _HANDLE_OUT, _HANDLE_OUT),
    "cuLinkAddData_v2": (
        _HANDLE, c_int, c_void_p, c_size_t, c_char_p, c_uint, POINTER(c_int), _HANDLE_OUT,
    ),
    "cuLinkComplete": (_HANDLE, _HANDLE_OUT, POINTER(c_size_t)),
    "cuLinkDestroy": (_HANDLE,),
    "cuModuleLoadData": (_HANDLE_OUT, c_void_p),
    "cuModuleGetFunction": (_HANDLE_OUT, _HANDLE, c_char_p),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, _HANDLE),
    "cuFuncSetAttribute": (_HANDLE, c_int, c_int),
    "cuMemAlloc_v2": (POINTER(_POINTER), c_size_t),
    "cuMemFree_v2": (_POINTER,),
    "cuMemHostAlloc": (_HANDLE_OUT, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoD_v2": (_POINTER, c_void_p, c_size_t),
    "cuMemcpyHtoDAsync_v2": (_POINTER, c_void_p, c_size_t, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (c_void_p, _POINTER, c_size_t, _HANDLE),
    "cuMemsetD8Async": (_POINTER, c_ubyte, c_size_t, _HANDLE),
    "cuStreamCreate": (_HANDLE_OUT, c_uint),
    "cuStreamDestroy_v2": (_HANDLE,),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamBeginCapture_v2": (_HANDLE, c_int),
    "cuStreamEndCapture": (_HANDLE, _HANDLE_OUT),
    "cuGraphInstantiateWithFlags": (_HANDLE_OUT, _HANDLE, c_ulonglong),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuGraphDestroy": (_HANDLE,),
    "cuGraphExecDestroy": (_HANDLE,),
    "cuLaunchKernel": (_HANDLE, *(c_uint,) * 7, _HANDLE, _HANDLE_OUT, _HANDLE_OUT),
    "cuEventCreate": (_HANDLE_OUT, c_uint),
    "cuEventDestroy_v2": (_HANDLE,),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventElapsedTime": (POINTER(c_float), _HANDLE, _HANDLE),
}  # fmt: skip
"""Types of the parameters, by the functions' names; every one returns a CUresult."""

CONSTANTS: Final[Mapping[str, int]] = {
    "CUDA_ERROR_OUT_OF_MEMORY": 2,
    "CUDA_ERROR_DEVICE_UNAVAILABLE": 46,
    "CUDA_ERROR_ECC_UNCORRECTABLE": 214,
    "CUDA_ERROR_NVLINK_UNCORRECTABLE": 220,
    "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
    "CUDA_ERROR_LAUNCH_TIMEOUT": 702,
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": 709,
    "CUDA_ERROR_ASSERT": 710,
    "CUDA_ERROR_HARDWARE_STACK_ERROR": 714,
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": 715,
    "CUDA_ERROR_MISALIGNED_ADDRESS": 716,
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": 717,
    "CUDA_ERROR_INVALID_PC": 718,
    "CUDA_ERROR_LAUNCH_FAILED": 719,
    "CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 1,
    "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": 16,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_MODE": 20,
    "CU_DEVICE_ATTRIBUTE_PCI_BUS_ID": 33,
    "CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID": 34,
    "CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID": 50,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 75,
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 76,
    "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 97,
    "CU_COMPUTEMODE_PROHIBITED": 2,
    "CU_COMPUTEMODE_EXCLUSIVE_PROCESS": 3,
    "CU_JIT_ERROR_LOG_BUFFER": 5,
    "CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES": 6,
    "CU_JIT_INPUT_PTX": 1,
    "CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK": 0,
    "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": 8,
    "CU_STREAM_NON_BLOCKING": 1,
    "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL": 1,
    "CU_EVENT_DEFAULT": 0,
}

_LACKING: Final = (
    f"gpu delegate: the backend cuda needs NVIDIA's driver, and {LIBRARY} cannot be loaded ({{}}): install "
    "the driver; in a container, start it with NVIDIA's container toolkit, and NVIDIA_DRIVER_CAPABILITIES "
    "with `compute`"
)


class CudaError(Exception):
    """A call that the driver answered with an error: its number, its name, and the call's."""

    def __init__(self, code: int, name: str, text: str, call: str) -> None:
        super().__init__(f"{call}: {name} ({text})")
        self.code = code


class Driver:
    """The loaded library. `call` raises `CudaError`. Raises `DelegateError` without a driver that serves."""

    def __init__(self) -> None:
        try:
            library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise DelegateMissingError(_LACKING.format(error)) from error
        self._functions: dict[str, Any] = {}
        for name, types in FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise DelegateError(
                    f"gpu delegate: the backend cuda needs NVIDIA's driver for CUDA 11.5 or a newer one: "
                    f"{LIBRARY} has no {name}"
                ) from error
            function.argtypes, function.restype = types, c_int
            self._functions[name] = function
        try:
            self.call("cuInit", 0)
        except CudaError as error:
            raise DelegateError(
                f"gpu delegate: the backend cuda cannot begin: {error}; `nvidia-smi` must work here, and the "
                "device nodes /dev/nvidia* must be there"
            ) from error

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library. Raises `CudaError`."""
        code = self._functions[name](*arguments)
        if code:
            raise self.error(code, name)

    def error(self, code: int, call: str) -> CudaError:
        """Return the error of a number, with the driver's words."""
        words = []
        for ask in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            # Not through `call`, which ends up here for every
            # error. For an unknown number the text stays null.
            self._functions[ask](code, ctypes.byref(text))
            words.append((text.value or b"unknown").decode(errors="replace"))
        return CudaError(code, words[0], words[1], call)

    def handle(self, name: str, *arguments: Any) -> int:
        """Call a function whose first parameter receives a handle or an address, and return that."""
        # For a pointer type, ctypes keeps in `_type_` what it points to.
        first = FUNCTIONS[name][0]._type_()
        self.call(name, ctypes.byref(first), *arguments)
        return int(first.value or 0)

    def attribute(self, device: int, name: str) -> int:
        """Return an attribute of a device by its name in `CONSTANTS`, without the common beginning."""
        return self.handle("cuDeviceGetAttribute", CONSTANTS[f"CU_DEVICE_ATTRIBUTE_{name}"], device)


@cache
def driver() -> Driver:
    """Return the process's driver. Raises `DelegateError`."""
    return Driver()
