"""Every error the runtime raises on purpose:

    FarmRuntimeError
    ├── ModelError              the model cannot be used
    │   ├── ModelFormatError    the bytes are not a valid .tflite file; the text says where
    │   ├── UnsupportedOperatorError   the CPU path lacks an operator, version or type
    │   ├── ShapeError          shapes do not fit together
    │   └── OutOfMemoryError    the model needs more memory than is available
    ├── InvocationError         a run of a planned model failed on values that an operator cannot process
    ├── StatusError             LiteRT answers this call of `CompiledModel` or `TensorBuffer` with a status
    ├── DelegateError           a delegate cannot be made, or cannot run this model
    │   └── DelegateMissingError   what it needs is not installed here; the text says how to install it
    ├── DataError               a file of labelled data cannot be used
    │   └── MisfitError         the model is none that the data judges
    └── DeviceError             the device does not exist, or it failed
        ├── DeviceLostError     it is lost to this process
        ├── DeviceMemoryError   its memory is full
        └── NoDeviceError       this machine has no device for the delegate

`ValueError` and `RuntimeError` are base classes where LiteRT's Python API raises them: ValueError for a
wrong file or call, RuntimeError for what `allocate_tensors` and `invoke` refuse, both where it may be either.
"""

from typing import Any

INVALID_ARGUMENT, RUNTIME_FAILURE, MISSING_INPUT, UNSUPPORTED, NOT_FOUND = 1, 3, 4, 5, 6
"""LiteRT's status codes (`LiteRtStatus` of `litert/c/litert_common.h`), which callers find in error texts."""

OUT_OF_RANGE = 1000
"""LiteRT's status code of an index out of bounds, from the same list."""


class FarmRuntimeError(Exception):
    """The root of the runtime's errors."""


class ModelError(FarmRuntimeError, ValueError):
    """The model cannot be used."""


class ModelFormatError(ModelError):
    """The bytes are not a valid .tflite file; the text says where and what was found."""


class UnsupportedOperatorError(ModelError, RuntimeError):
    """The CPU path lacks an operator, version or type; the text names operator, version and node index.

    `operator_name`, `version` and `index` are those of the first such operator; `delegation` is the report
    of what delegates would have taken (`runtime.delegates.partition.DelegationReport`), None without one.
    """

    def __init__(self, message: str, *, operator_name: str = "", version: int = 0, index: int = -1) -> None:
        super().__init__(message)
        self.operator_name = operator_name
        self.version = version
        self.index = index
        # `Any`, because the report's room lies above this module, which imports no other.
        self.delegation: Any | None = None


class ShapeError(RuntimeError, ModelError):
    """Tensor shapes, or values from which shapes follow, do not fit together."""


class OutOfMemoryError(RuntimeError, ModelError):
    """The model needs more memory than is available, to be planned or to be run."""


class InvocationError(FarmRuntimeError, RuntimeError):
    """A run of a planned model failed; the text names the operator and what it cannot take."""


class DeadlineError(InvocationError):
    """A run took longer than its deadline and was stopped; the model can be run again."""


class StatusError(FarmRuntimeError, RuntimeError):
    """A call that LiteRT answers with a status; `code` is LiteRT's number for it, 0 where it gives none."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(f"CompiledModel error: code={code}, message={message}" if code else message)
        self.code = code


class DataError(FarmRuntimeError, ValueError):
    """A file of labelled data cannot be used; the text names the file and the reason."""


class MisfitError(DataError):
    """The model is none that the labelled data judges: no classifier, no detector, other inputs."""


class DelegateError(FarmRuntimeError, RuntimeError, ValueError):
    """A delegate cannot be made, or cannot run this model."""


class DelegateMissingError(DelegateError):
    """A program or library that the delegate needs is not installed here; the text says how to install it."""


class FallbackForbiddenError(DelegateError):
    """Operators would run on the CPU, which a delegate's option `require_full_delegation` forbids.

    `delegation` is the report of what the delegates take (`runtime.delegates.partition.DelegationReport`).
    """

    def __init__(self, message: str, delegation: Any) -> None:
        super().__init__(message)
        self.delegation = delegation


class UnsupportedPrecisionError(DelegateError):
    """The device cannot compute in the precision that was asked for; the text says what failed."""


class DeviceError(FarmRuntimeError, RuntimeError):
    """The device does not exist, or it failed."""


class DeviceLostError(DeviceError):
    """The device failed in a way that this process cannot recover from; another process can go on."""


class DeviceMemoryError(DeviceError):
    """The device has no memory left; the text says how much was needed. The process stays usable."""


class NoDeviceError(DeviceError):
    """The machine has no device for a delegate; the text has the words of the library that looked for it."""
