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
    np.dtype(np.object_): TensorType.STRING,
    np.dtype(np.complex64): TensorType.COMPLEX64,
    np.dtype(np.complex128): TensorType.COMPLEX128,
    np.dtype(np.float64): TensorType.FLOAT64,
    np.dtype(np.uint16): TensorType.UINT16,
    np.dtype(np.uint32): TensorType.UINT32,
    np.dtype(np.uint64): TensorType.UINT64,
}


def per_tensor(scale: float, zero_point: int = 0) -> Quantization:
    return Quantization((float(np.float32(scale)),), (zero_point,))


def per_channel(scales: Sequence[float], dimension: int = 0) -> Quantization:
    return Quantization(tuple(float(np.float32(s)) for s in scales), (0,) * len(scales), dimension)


@dataclass(frozen=True)
class Arg:
    """An operand: fed at run time, or constant. `type` where the dtype does not tell, INT4 held as int8."""

    value: np.ndarray
    quantization: Quantization | None = None
    constant: bool = False
    type: TensorType | None = None


def const(value: Any, dtype: Any = np.float32, quantization: Quantization | None = None) -> Arg:
    return Arg(np.asarray(value, dtype), quantization, constant=True)


@dataclass(frozen=True)
class Out:
    """A result; LiteRT and our runtime infer its shape, unless the file must declare it."""

    dtype: Any = np.float32
    quantization: Quantization | None = None
    type: TensorType | None = None
    shape: tuple[int, ...] = ()


def stored_bytes(value: np.ndarray, tensor_type: TensorType | None = None) -> bytes:
    """Return an array as a file's buffer holds it: strings with their offsets, narrow integers packed."""
    if value.dtype == np.object_:
        items = [bytes(v) for v in value.reshape(-1)]
        start = 4 * (len(items) + 2)
        offsets = np.cumsum([start, *(len(v) for v in items)])
        return np.array([len(items), *offsets], "<i4").tobytes() + b"".join(items)
    bits = {TensorType.INT4: 4, TensorType.UINT4: 4, TensorType.INT2: 2}.get(tensor_type)
    if bits is None:
        return np.ascontiguousarray(value).tobytes()
    flat = value.reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    per_byte = 8 // bits
    flat = np.concatenate([flat, np.zeros(-flat.size % per_byte, np.uint8)]).reshape(-1, per_byte)
    return np.bitwise_or.reduce(flat << (bits * np.arange(per_byte, dtype=np.uint8)), axis=1).tobytes()


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
        tensor_type = more.pop("type", None)
        self.tensors.append(
            Tensor(
                index=index,
                name=more.pop("name", f"t{index}"),
                type=TYPES[np.dtype(dtype)] if tensor_type is None else tensor_type,
                shape=tuple(shape),
                quantization=quantization,
                has_rank=True,
                **more,
            )
        )
        return index

    def input(
        self, dtype: Any, shape: Sequence[int], quantization: Quantization | None = None, **more: Any
    ) -> int:
        index = self.tensor(dtype, shape, quantization, **more)
        self.inputs.append(index)
        return index

    def constant(self, value: np.ndarray, quantization: Quantization | None = None, **more: Any) -> int:
        data = memoryview(stored_bytes(value, more.get("type")))
        return self.tensor(value.dtype, value.shape, quantization, data=data, **more)

    def operator(
        self,
        opcode: BuiltinOperator,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: Mapping[str, Any] | None = None,
        version: int = 1,
        custom_code: str | None = None,
        custom_options: bytes = b"",
        intermediates: Sequence[int] = (),
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
                custom_options=custom_options,
                intermediates=tuple(intermediates),
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
    """Build a model of one operator; every operand that is not constant is an input of the model."""
    builder = Builder()
    indices = []
    for arg in args:
        if arg is None:
            indices.append(-1)
        elif arg.constant:
            indices.append(builder.constant(arg.value, arg.quantization, type=arg.type))
        else:
            indices.append(builder.input(arg.value.dtype, arg.value.shape, arg.quantization, type=arg.type))
    outputs = [builder.tensor(o.dtype, o.shape, o.quantization, type=o.type) for o in outs]
    builder.operator(opcode, indices, outputs, options, version)
    return builder.write(outputs)
