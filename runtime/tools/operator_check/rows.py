"""A row of the matrix: one operator with small operands, always the same ones; and rows as one model."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from runtime.delegates.base import Array
from runtime.model.graph import Model, Operator, Quantization, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model

_SCHEMA_VERSION: Final = 3
"""The version of LiteRT's file format, the only one that there is (schema.fbs)."""

_TYPES: Final = {
    np.dtype(np.float32): TensorType.FLOAT32,
    np.dtype(np.int8): TensorType.INT8,
    np.dtype(np.uint8): TensorType.UINT8,
    np.dtype(np.int16): TensorType.INT16,
    np.dtype(np.int32): TensorType.INT32,
    np.dtype(np.int64): TensorType.INT64,
    np.dtype(np.bool_): TensorType.BOOL,
    np.dtype(np.complex64): TensorType.COMPLEX64,
}

Role: TypeAlias = Literal["fed", "held", "state"]
"""An input of the model, a constant of the file, or a variable that is zero before the first run."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a row."""

    value: Array
    role: Role = "fed"
    quantization: Quantization | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: `operands`, None for an absent one, and a type for each of `results`.

    `shapes` are those of results that the file must declare, as of custom operators; `quantization` is that
    of the results; `name` is empty for an operator of the schema.
    """

    opcode: BuiltinOperator
    operands: tuple[Operand | None, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[Any, ...] = (np.float32,)
    shapes: tuple[tuple[int, ...], ...] = ()
    quantization: Quantization | None = None
    version: int = 1
    name: str = ""
    custom_options: bytes = b""

    @property
    def title(self) -> str:
        """The operator's name as reports show it."""
        return self.name or self.opcode.name

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The inputs of the model."""
        return tuple(one.value for one in self.operands if one is not None and one.role == "fed")


def model_of(rows: Sequence[Row]) -> bytes:
    """Build a file whose branches are the rows; inputs and outputs stand in the order of the rows."""
    tensors: list[Tensor] = []
    operators: list[Operator] = []
    inputs: list[int] = []
    outputs: list[int] = []

    def add(dtype: Any, shape: tuple[int, ...], **more: Any) -> int:
        index = len(tensors)
        kind = _TYPES[np.dtype(dtype)]
        tensors.append(Tensor(index, f"t{index}", kind, shape, has_rank=True, **more))
        return index

    def operand(one: Operand) -> int:
        more: dict[str, Any] = {"is_variable": one.role == "state", "quantization": one.quantization}
        if one.role == "held":
            more["data"] = memoryview(one.value.tobytes())
        return add(one.value.dtype, one.value.shape, **more)

    for row in rows:
        read = [-1 if one is None else operand(one) for one in row.operands]
        shapes = row.shapes or ((),) * len(row.results)
        written = [
            add(dtype, shape, quantization=row.quantization)
            for dtype, shape in zip(row.results, shapes, strict=True)
        ]
        operators.append(
            Operator(
                len(operators),
                row.opcode,
                row.version,
                tuple(read),
                tuple(written),
                dict(row.options),
                custom_code=row.name or None,
                custom_options=row.custom_options,
            )
        )
        pairs = zip(row.operands, read, strict=True)
        inputs += [index for one, index in pairs if one is not None and one.role == "fed"]
        outputs += written
    whole = Subgraph(0, "main", tuple(tensors), tuple(inputs), tuple(outputs), tuple(operators))
    return write_model(Model(_SCHEMA_VERSION, "operators", (whole,)))


def fed(*shape: int, low: float = -3.0, high: float = 3.0) -> Operand:
    """float32 numbers between `low` and `high`; equal shapes with equal bounds hold equal numbers."""
    return Operand(_random(shape, low, high).uniform(low, high, shape).astype(np.float32))


def held(*shape: int, low: float = -1.0, high: float = 1.0) -> Operand:
    """Return the same as constants of the file."""
    return replace(fed(*shape, low=low, high=high), role="held")


def levels(*shape: int, scale: float, dtype: Any = np.int8, role: Role = "fed") -> Operand:
    """Integers of a scale: all of the type, of a variable zeros."""
    bounds, quantization = np.iinfo(dtype), Quantization((scale,), (0,))
    if role == "state":
        return Operand(np.zeros(shape, dtype), role, quantization)
    # All but the lowest, which symmetric weights do not have.
    one = whole(*shape, low=int(bounds.min) + 1, high=int(bounds.max), dtype=dtype)
    return replace(one, role=role, quantization=quantization)


def state(*shape: int) -> Operand:
    """Return a variable."""
    return Operand(np.zeros(shape, np.float32), "state")


def whole(*shape: int, low: int = -9, high: int = 9, dtype: Any = np.int32) -> Operand:
    """Integers between `low` and `high`, bounds included."""
    return Operand(_random(shape, low, high).integers(low, high, shape, endpoint=True).astype(dtype))


def flags(*shape: int, turned: bool = False) -> Operand:
    """Booleans, both of them."""
    values = np.random.default_rng(len(shape)).integers(0, 2, shape).astype(np.bool_)
    return Operand(~np.flip(values) if turned else values)


def given(values: Any, dtype: Any = np.int32) -> Operand:
    """Return a constant with these values: axes, paddings, shapes."""
    return Operand(np.asarray(values, dtype), "held")


def _random(*drawn: object) -> np.random.Generator:
    # A CRC, since "hash" of a text differs from process to process.
    return np.random.default_rng(zlib.crc32(repr(drawn).encode()))
