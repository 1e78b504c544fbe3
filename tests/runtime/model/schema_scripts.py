"""Files made with the object API of LiteRT's own wheel; these functions run in the oracle's worker."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

PLACEHOLDER = 127


def _schema(litert: ModuleType) -> Any:
    del litert
    from ai_edge_litert import schema_py_generated  # only the worker may import it

    return schema_py_generated


def _packed(schema: Any, model: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
    del schema
    return bytes(builder.Output())


def _tensor(schema: Any, name: str, shape: tuple[int, ...], buffer: int = 0, kind: int = 0) -> Any:
    tensor = schema.TensorT()
    tensor.name, tensor.shape, tensor.buffer, tensor.type = name.encode(), list(shape), buffer, kind
    tensor.hasRank = True
    return tensor


def _model(schema: Any, code: Any, operator: Any, tensors: list[Any], inputs: list[int]) -> Any:
    model, subgraph = schema.ModelT(), schema.SubGraphT()
    operator.opcodeIndex = 0
    subgraph.tensors, subgraph.operators = tensors, [operator]
    subgraph.inputs, subgraph.outputs = inputs, list(operator.outputs)
    model.version, model.subgraphs, model.operatorCodes = 3, [subgraph], [code]
    model.buffers = [schema.BufferT()]
    return model


def _code(schema: Any, builtin: int, fields: str) -> Any:
    """`fields`: which of the two fields hold the builtin code."""
    code = schema.OperatorCodeT()
    code.version = 1
    code.deprecatedBuiltinCode = min(builtin, PLACEHOLDER) if "old" in fields else 0
    code.builtinCode = builtin if "new" in fields else 0
    return code


def product(litert: ModuleType, fields: str) -> bytes:
    """MUL with a fused RELU: options of the first union."""
    schema = _schema(litert)
    operator, options = schema.OperatorT(), schema.MulOptionsT()
    options.fusedActivationFunction = schema.ActivationFunctionType.RELU
    operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.MulOptions, options
    operator.inputs, operator.outputs = [0, 1], [2]
    tensors = [_tensor(schema, name, (2, 3)) for name in "abc"]
    code = _code(schema, schema.BuiltinOperator.MUL, fields)
    return _packed(schema, _model(schema, code, operator, tensors, [0, 1]))


def padding(litert: ModuleType) -> bytes:
    """STABLEHLO_PAD: options of the second union, a code beyond the old field."""
    schema = _schema(litert)
    operator, options = schema.OperatorT(), schema.StablehloPadOptionsT()
    options.edgePaddingLow, options.edgePaddingHigh, options.interiorPadding = [1, 0], [0, 2], [0, 1]
    operator.builtinOptions2Type = schema.BuiltinOptions2.StablehloPadOptions
    operator.builtinOptions2 = options
    operator.inputs, operator.outputs = [0, 1], [2]
    tensors = [_tensor(schema, "a", (2, 3)), _tensor(schema, "b", ()), _tensor(schema, "c", (3, 7))]
    code = _code(schema, schema.BuiltinOperator.STABLEHLO_PAD, "old new")
    return _packed(schema, _model(schema, code, operator, tensors, [0, 1]))


BEHIND = 4096
"""Where bytes behind the FlatBuffer begin."""


def behind(litert: ModuleType, weights: bytes) -> bytes:
    """MUL by weights that lie in the same file, behind the FlatBuffer."""
    schema = _schema(litert)
    operator, buffer = schema.OperatorT(), schema.BufferT()
    operator.builtinOptionsType = schema.BuiltinOptions.MulOptions
    operator.builtinOptions = schema.MulOptionsT()
    operator.inputs, operator.outputs = [0, 1], [2]
    buffer.offset, buffer.size = BEHIND, len(weights)
    tensors = [_tensor(schema, "a", (3,)), _tensor(schema, "b", (3,), 1), _tensor(schema, "c", (3,))]
    model = _model(schema, _code(schema, schema.BuiltinOperator.MUL, "old new"), operator, tensors, [0])
    model.buffers.append(buffer)
    return _packed(schema, model).ljust(BEHIND, b"\0") + weights


def custom_behind(litert: ModuleType, options: bytes) -> bytes:
    """Build a custom operator whose options lie behind the FlatBuffer."""
    schema = _schema(litert)
    operator = schema.OperatorT()
    operator.inputs, operator.outputs = [0], [1]
    operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize = BEHIND, len(options)
    code = _code(schema, schema.BuiltinOperator.CUSTOM, "old new")
    code.customCode = b"Mine"
    tensors = [_tensor(schema, "a", (3,)), _tensor(schema, "b", (3,))]
    return _packed(schema, _model(schema, code, operator, tensors, [0])).ljust(BEHIND, b"\0") + options


def external(litert: ModuleType, group: str, offset: int, length: int) -> bytes:
    """MUL by weights that lie in a file of their own."""
    schema = _schema(litert)
    operator = schema.OperatorT()
    operator.builtinOptionsType = schema.BuiltinOptions.MulOptions
    operator.builtinOptions = schema.MulOptionsT()
    operator.inputs, operator.outputs = [0, 1], [2]
    tensors = [_tensor(schema, name, (3,)) for name in "abc"]
    tensors[1].externalBuffer = 7
    model = _model(schema, _code(schema, schema.BuiltinOperator.MUL, "old new"), operator, tensors, [0])
    file, buffer = schema.ExternalBufferGroupT(), schema.ExternalBufferT()
    file.name = group.encode()
    buffer.id, buffer.group, buffer.offset, buffer.length = 7, 0, offset, length
    model.externalBufferGroups, model.externalBuffers = [file], [buffer]
    return _packed(schema, model)


def tensor_details(litert: ModuleType, model: bytes) -> list[dict[str, Any]]:
    """Details of every tensor of the file, before anything is allocated."""
    return list(litert.Interpreter(model_content=model).get_tensor_details())


def outcome(litert: ModuleType, model: bytes, feed: list[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of one invocation."""
    loaded = litert.Interpreter(model_content=model)
    loaded.allocate_tensors()
    for details, value in zip(loaded.get_input_details(), feed, strict=True):
        loaded.set_tensor(details["index"], value)
    loaded.invoke()
    return [loaded.get_tensor(d["index"]) for d in loaded.get_output_details()]
