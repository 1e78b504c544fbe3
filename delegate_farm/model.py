"""Model files: what is in one, read with bounds and written again; nothing here runs a model."""

from runtime.errors import ModelError, ModelFormatError
from runtime.model.graph import Model, Operator, Quantization, Signature, Subgraph, Tensor
from runtime.model.reader import load_model, read_model
from runtime.model.schema import ActivationFunctionType, BuiltinOperator, TensorType
from runtime.model.writer import write_model

__all__ = [
    "ActivationFunctionType",
    "BuiltinOperator",
    "Model",
    "ModelError",
    "ModelFormatError",
    "Operator",
    "Quantization",
    "Signature",
    "Subgraph",
    "Tensor",
    "TensorType",
    "load_model",
    "read_model",
    "write_model",
]
