"""Runs and measures `.tflite` models: the interpreter, its delegates and the farm, imported on demand.

This is the one name that other projects import; a wheel installs nothing else at top level. What a package
with a delegate or an operator of its own needs besides is in `delegate_farm.delegates`, `.operators` and
`.model`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.api import How as How
    from orchestrator.api import UndecidedError as UndecidedError
    from orchestrator.api import assert_accuracy as assert_accuracy
    from orchestrator.api import assert_latency as assert_latency
    from orchestrator.api import measure as measure
    from orchestrator.api import results as results
    from runtime.api.compiled_model import CompiledModel as CompiledModel
    from runtime.api.cpu_kernel_mode import CpuKernelMode as CpuKernelMode
    from runtime.api.cpu_options import CpuOptions as CpuOptions
    from runtime.api.environment import Environment as Environment
    from runtime.api.environment import EnvironmentOptions as EnvironmentOptions
    from runtime.api.event import Event as Event
    from runtime.api.gpu_options import GpuOptions as GpuOptions
    from runtime.api.hardware_accelerator import HardwareAccelerator as HardwareAccelerator
    from runtime.api.interpreter import Interpreter as Interpreter
    from runtime.api.interpreter import InterpreterWithCustomOps as InterpreterWithCustomOps
    from runtime.api.interpreter import OpResolverType as OpResolverType
    from runtime.api.interpreter import SignatureRunner as SignatureRunner
    from runtime.api.options import Options as Options
    from runtime.api.tensor_buffer import TensorBuffer as TensorBuffer
    from runtime.delegates.registry import load_delegate as load_delegate
    from runtime.errors import DelegateError as DelegateError
    from runtime.errors import DeviceError as DeviceError
    from runtime.errors import InvocationError as InvocationError
    from runtime.errors import ModelFormatError as ModelFormatError
    from runtime.errors import OutOfMemoryError as OutOfMemoryError
    from runtime.errors import StatusError as StatusError
    from runtime.errors import UnsupportedOperatorError as UnsupportedOperatorError

_OFFERED = {
    "orchestrator.api": "How UndecidedError assert_accuracy assert_latency measure results",
    "runtime.api.compiled_model": "CompiledModel",
    "runtime.api.cpu_kernel_mode": "CpuKernelMode",
    "runtime.api.cpu_options": "CpuOptions",
    "runtime.api.environment": "Environment EnvironmentOptions",
    "runtime.api.event": "Event",
    "runtime.api.gpu_options": "GpuOptions",
    "runtime.api.hardware_accelerator": "HardwareAccelerator",
    "runtime.api.interpreter": "Interpreter InterpreterWithCustomOps OpResolverType SignatureRunner",
    "runtime.api.options": "Options",
    "runtime.api.tensor_buffer": "TensorBuffer",
    "runtime.delegates.registry": "load_delegate",
    "runtime.errors": "DelegateError DeviceError InvocationError ModelFormatError OutOfMemoryError "
    "StatusError UnsupportedOperatorError",
}
_HOME = {name: module for module, names in _OFFERED.items() for name in names.split()}

__all__ = [*_HOME]  # noqa: PLE0604  # names, which ruff does not follow


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
