"""One model on one device: `.tflite` in, tensors out. Imports numpy and itself only, and both on demand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runtime.delegates.registry import load_delegate as load_delegate
    from runtime.interpreter import Interpreter as Interpreter
    from runtime.model.graph import Model as Model
    from runtime.model.reader import read_model as read_model

_HOME = {
    "Interpreter": "runtime.interpreter",
    "Model": "runtime.model.graph",
    "load_delegate": "runtime.delegates.registry",
    "read_model": "runtime.model.reader",
}

__all__ = ["Interpreter", "Model", "load_delegate", "read_model"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'runtime' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
