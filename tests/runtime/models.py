"""Small models for tests, built with the writer: one operator, or a chain of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runtime.model.graph import Model, Operator, Quantization, Signature, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model

TYPES = {
    np.dtype(np.float32): TensorType.FLOAT32,
    np.dtype(np.float16): TensorType.FLOAT16,
    np.dtype(np.int32): TensorType.INT32,
    np.dtype(np.uint8): TensorType.UINT8,
    np.dtype(np.int64): TensorType.INT64,
    np.dtype(np.bool_): TensorType.BOOL,
    np.dtype(np.int16): TensorType.INT16,
    np.dtype(np.int8): TensorType.INT8,
}


def per_tensor(scale: float, zero_point: int = 0) -> Quantization:
    return Quantization((float(np.float32(scale)),), (zero_point,))


def per_channel(scales: Sequence[float], dimension: int = 0) -> Quantization:
    return Quantization(tuple(float(np.float32(s)) for s in scales), (0,) * len(scales), dimension)


@dataclass(frozen=True)
class Arg:
    """An operand: fed at run time, or constant."""

    value: np.ndarray
    quantization: Quantization | None = None
    constant: bool = False


def const(value: Any, dtype: Any = np.float32, quantization: Quantization | None = None) -> Arg:
    return Arg(np.asarray(value, dtype), quantization, constant=True)


@dataclass(frozen=True)
class Out:
    """A result; LiteRT and our runtime infer its shape."""

    dtype: Any = np.float32
    quantization: Quantization | None = None


@dataclass
class Builder:
    """Collects tensors and operators of one subgraph."""

    tensors: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)

    def tensor(
        self, dtype: Any, shape: Sequence[int] = (), quantization: Quantization | None = None, **more: Any
    ) -> int:
        index = len(self.tensors)
        self.tensors.append(
            Tensor(
                index=index,
                name=more.pop("name", f"t{index}"),
                type=TYPES[np.dtype(dtype)],
                shape=tuple(shape),
                quantization=quantization,
                has_rank=True,
                **more,
            )
        )
        return index

    def input(self, dtype: Any, shape: Sequence[int], quantization: Quantization | None = None) -> int:
        index = self.tensor(dtype, shape, quantization)
        self.inputs.append(index)
        return index

    def constant(self, value: np.ndarray, quantization: Quantization | None = None) -> int:
        data = memoryview(np.ascontiguousarray(value).tobytes())
        return self.tensor(value.dtype, value.shape, quantization, data=data)

    def operator(
        self,
        opcode: BuiltinOperator,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Mapping[str, Any] | None = None,
        version: int = 1,
        custom_code: str | None = None,
    ) -> None:
        self.operators.append(
            Operator(
                index=len(self.operators),
                opcode=opcode,
                version=version,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                options=dict(options or {}),
                custom_code=custom_code,
            )
        )

    def model(self, outputs: Sequence[int], signatures: Sequence[Signature] = ()) -> Model:
        subgraph = Subgraph(
            0, "main", tuple(self.tensors), tuple(self.inputs), tuple(outputs), tuple(self.operators)
        )
        return Model(3, "test", (subgraph,), tuple(signatures))

    def write(self, outputs: Sequence[int], signatures: Sequence[Signature] = ()) -> bytes:
        return write_model(self.model(outputs, signatures))


def one_operator(
    opcode: BuiltinOperator,
    args: Sequence[Arg | None],
    outs: Sequence[Out] = (Out(),),
    options: Mapping[str, Any] | None = None,
    version: int = 1,
) -> bytes:
    """A model of one operator; every operand that is not constant is an input of the model."""
    builder = Builder()
    indices = []
    for arg in args:
        if arg is None:
            indices.append(-1)
        elif arg.constant:
            indices.append(builder.constant(arg.value, arg.quantization))
        else:
            indices.append(builder.input(arg.value.dtype, arg.value.shape, arg.quantization))
    outputs = [builder.tensor(o.dtype, (), o.quantization) for o in outs]
    builder.operator(opcode, indices, outputs, options, version)
    return builder.write(outputs)
