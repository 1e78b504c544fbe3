"""Runs one model on one device: `.tflite` in, tensors out. It imports only numpy and itself, on demand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.api.compiled_model import CompiledModel as CompiledModel
    from runtime.api.environment import Environment as Environment
    from runtime.api.hardware_accelerator import HardwareAccelerator as HardwareAccelerator
    from runtime.api.interpreter import Interpreter as Interpreter
    from runtime.api.options import Options as Options
    from runtime.api.tensor_buffer import TensorBuffer as TensorBuffer
    from runtime.delegates.registry import load_delegate as load_delegate
    from runtime.model.graph import Model as Model
    from runtime.model.reader import read_model as read_model
    from runtime.ops.support.registry import custom_operator as custom_operator

_HOME = {
    "CompiledModel": "runtime.api.compiled_model",
    "Environment": "runtime.api.environment",
    "HardwareAccelerator": "runtime.api.hardware_accelerator",
    "Interpreter": "runtime.api.interpreter",
    "Model": "runtime.model.graph",
    "Options": "runtime.api.options",
    "TensorBuffer": "runtime.api.tensor_buffer",
    "custom_operator": "runtime.ops.support.registry",
    "load_delegate": "runtime.delegates.registry",
    "read_model": "runtime.model.reader",
}

__all__ = [
    "CompiledModel",
    "Environment",
    "HardwareAccelerator",
    "Interpreter",
    "Model",
    "Options",
    "TensorBuffer",
    "custom_operator",
    "load_delegate",
    "read_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'runtime' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
