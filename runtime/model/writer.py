"""A `Model` written as the bytes of a `.tflite` file: parts of models, models of one operator for tests."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from runtime.model.external import ExternalBuffer, groups_of
from runtime.model.graph import Model, Operator, Quantization, Signature, Sparsity, Subgraph, Tensor
from runtime.model.options import OptionsTable, operator_options
from runtime.model.schema import FILE_IDENTIFIER, BuiltinOperator, DimensionType, QuantizationDetails

_BUFFER_ALIGNMENT = 16
"""Bytes by which the data of a buffer is aligned in the file (`force_align: 16` of schema.fbs), so that a
memory map serves constants without a copy."""

_PLACEHOLDER = 127
"""The code in the old, one-byte field of operators whose own is larger (PLACEHOLDER_FOR_GREATER_OP_CODES)."""


@dataclass(slots=True)
class _Table:
    """Fields by slot: a scalar (code, value), or anything that lies elsewhere."""

    fields: dict[int, tuple[str, Any]] = field(default_factory=dict)

    def scalar(self, slot: int, code: str, value: Any, default: Any = 0) -> None:
        if value != default:
            self.fields[slot] = (code, value)

    def child(self, slot: int, value: _Child | None) -> None:
        if value is not None:
            self.fields[slot] = ("child", value)


@dataclass(frozen=True, slots=True)
class _Vector:
    code: str
    values: Sequence[Any]


@dataclass(frozen=True, slots=True)
class _Bytes:
    data: bytes | memoryview
    alignment: int = 4
    terminated: bool = False


_Child: TypeAlias = "_Table | _Vector | _Bytes | list[_Table]"


def write_model(model: Model) -> bytes:
    """Serialise `model`. Constants that share a non-zero `Tensor.buffer` share one buffer in the file."""
    return _serialise(_ModelTables(model).root())


class _ModelTables:
    """Numbers the buffers and operator codes while the tables are made."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._buffers: list[bytes | memoryview] = [b""]
        self._by_tensor_buffer: dict[int, int] = {}
        self._codes: dict[tuple[BuiltinOperator, int, str | None], int] = {}

    def root(self) -> _Table:
        model, root = self._model, _Table()
        subgraphs = [self._subgraph(s) for s in model.subgraphs]
        metadata = [self._metadata(name, data) for name, data in model.metadata.items()]
        root.scalar(0, "I", model.version)
        root.child(1, [_operator_code(*key) for key in self._codes])
        root.child(2, subgraphs)
        root.child(3, _string(model.description))
        root.child(4, [_buffer(data) for data in self._buffers])
        if metadata:
            root.child(6, metadata)
        if model.signatures:
            root.child(7, [_signature(s) for s in model.signatures])
        if model.external:
            groups = groups_of(model.external)
            root.child(8, [_external_group(name) for name in groups])
            root.child(9, [_external_buffer(b, groups[b.group]) for b in model.external])
        return root

    def _metadata(self, name: str, data: bytes) -> _Table:
        table = _Table()
        self._buffers.append(data)
        table.child(0, _string(name))
        table.scalar(1, "I", len(self._buffers) - 1)
        return table

    def _subgraph(self, subgraph: Subgraph) -> _Table:
        table = _Table()
        table.child(0, [self._tensor(t) for t in subgraph.tensors])
        table.child(1, _Vector("i", subgraph.inputs))
        table.child(2, _Vector("i", subgraph.outputs))
        table.child(3, [self._operator(o) for o in subgraph.operators])
        table.child(4, _string(subgraph.name))
        return table

    def _buffer_of(self, tensor: Tensor) -> int:
        if tensor.data is None or tensor.external_buffer:
            return 0
        if tensor.buffer and tensor.buffer in self._by_tensor_buffer:
            return self._by_tensor_buffer[tensor.buffer]
        self._buffers.append(tensor.data)
        index = len(self._buffers) - 1
        if tensor.buffer:
            self._by_tensor_buffer[tensor.buffer] = index
        return index

    def _tensor(self, tensor: Tensor) -> _Table:
        table = _Table()
        table.child(0, _Vector("i", tensor.shape))
        table.scalar(1, "b", int(tensor.type))
        table.scalar(2, "I", self._buffer_of(tensor))
        table.child(3, _string(tensor.name))
        if tensor.quantization is not None:
            table.child(4, _quantization(tensor.quantization))
        table.scalar(5, "?", tensor.is_variable, default=False)
        if tensor.sparsity is not None:
            table.child(6, _sparsity(tensor.sparsity))
        if tensor.shape_signature is not None:
            table.child(7, _Vector("i", tensor.shape_signature))
        table.scalar(8, "?", tensor.has_rank, default=False)
        table.scalar(10, "I", tensor.external_buffer)
        return table

    def _operator(self, operator: Operator) -> _Table:
        key = (operator.opcode, operator.version, operator.custom_code)
        table = _Table()
        table.scalar(0, "I", self._codes.setdefault(key, len(self._codes)))
        table.child(1, _Vector("i", operator.inputs))
        table.child(2, _Vector("i", operator.outputs))
        expected = operator_options(operator.opcode)
        if expected is not None:
            kind, slot = (11, 12) if expected.second else (3, 4)
            table.scalar(kind, "B", expected.union_value)
            table.child(slot, _options(expected, operator.options))
        if operator.custom_options:
            table.child(5, _Bytes(operator.custom_options))
        if operator.intermediates:
            table.child(8, _Vector("i", operator.intermediates))
        return table


def _string(text: str) -> _Bytes:
    return _Bytes(text.encode(), terminated=True)


def _operator_code(opcode: BuiltinOperator, version: int, custom_code: str | None) -> _Table:
    table = _Table()
    table.scalar(0, "b", min(int(opcode), _PLACEHOLDER))
    if custom_code is not None:
        table.child(1, _string(custom_code))
    table.scalar(2, "i", version, 1)
    table.scalar(3, "i", int(opcode))
    return table


def _external_group(name: str) -> _Table:
    table = _Table()
    table.child(0, _string(name))
    return table


def _external_buffer(buffer: ExternalBuffer, group: int) -> _Table:
    table = _Table()
    for slot, (code, value) in enumerate(
        [("I", buffer.id), ("I", group), ("Q", buffer.offset), ("Q", buffer.length)]
    ):
        table.scalar(slot, code, value)
    if buffer.packing:
        table.child(4, _string(buffer.packing))
    return table


def _buffer(data: bytes | memoryview) -> _Table:
    table = _Table()
    if len(data):
        table.child(0, _Bytes(data, _BUFFER_ALIGNMENT))
    return table


def _options(expected: OptionsTable, options: Mapping[str, Any]) -> _Table:
    unknown = set(options) - {f.name for f in expected.fields}
    if unknown:
        raise ValueError(f"{expected.name} has no field {', '.join(sorted(unknown))}")
    table = _Table()
    for option in expected.fields:
        value = options.get(option.name, option.default)
        if option.code == "s":
            table.child(option.slot, _string(value))
        elif option.is_vector:
            table.child(option.slot, _Vector(option.code, tuple(value)))
        else:
            table.scalar(option.slot, option.code, value, option.default)
    return table


def _quantization(q: Quantization) -> _Table:
    table = _Table()
    table.child(2, _Vector("f", q.scales))
    table.child(3, _Vector("q", q.zero_points))
    if q.blocks is not None:
        several = bool(q.blocks.quantized_dimensions)
        kind = QuantizationDetails.MULTI_AXIS if several else QuantizationDetails.BLOCKWISE
        details = _Table()
        details.scalar(0, "i", q.blocks.scales)
        details.scalar(1, "i", q.blocks.zero_points)
        details.scalar(2, "i", q.blocks.block_size)
        if several:
            details.child(3, _Vector("i", q.blocks.quantized_dimensions))
        table.scalar(4, "B", int(kind))
        table.child(5, details)
    table.scalar(6, "i", q.quantized_dimension)
    return table


def _sparsity(sparsity: Sparsity) -> _Table:
    dimensions = []
    for dimension in sparsity.dimensions:
        entry = _Table()
        if dimension.segments is None or dimension.indices is None:
            entry.scalar(1, "i", dimension.dense_size)
        else:
            entry.scalar(0, "b", int(DimensionType.SPARSE_CSR))
            for slot, values in ((2, dimension.segments), (4, dimension.indices)):
                vector = _Table()
                vector.child(0, _Vector("i", values))
                entry.scalar(slot, "B", 1)
                entry.child(slot + 1, vector)
        dimensions.append(entry)
    table = _Table()
    table.child(0, _Vector("i", sparsity.traversal_order))
    table.child(1, _Vector("i", sparsity.block_map))
    table.child(2, dimensions)
    return table


def _signature(signature: Signature) -> _Table:
    table = _Table()
    table.child(0, _tensor_maps(signature.inputs))
    table.child(1, _tensor_maps(signature.outputs))
    table.child(2, _string(signature.key))
    table.scalar(4, "I", signature.subgraph_index)
    return table


def _tensor_maps(pairs: Iterable[tuple[str, int]]) -> list[_Table]:
    tables = []
    for name, index in pairs:
        table = _Table()
        table.child(0, _string(name))
        table.scalar(1, "I", index)
        tables.append(table)
    return tables


class _Output:
    """Parents are written before their children, so every offset is positive and patched when known."""

    def __init__(self) -> None:
        self.data = bytearray(8)
        self.pending: deque[tuple[int, _Child]] = deque()

    def align(self, alignment: int, ahead: int = 0) -> None:
        self.data.extend(bytes(-(len(self.data) + ahead) % alignment))

    def refer(self, position: int) -> None:
        struct.pack_into("<I", self.data, position, len(self.data) - position)


def _serialise(root: _Table) -> bytes:
    out = _Output()
    out.data[4:8] = FILE_IDENTIFIER
    out.pending.append((0, root))
    while out.pending:
        position, child = out.pending.popleft()
        _write_child(out, position, child)
    return bytes(out.data)


def _write_child(out: _Output, position: int, child: _Child) -> None:
    if isinstance(child, _Table):
        _write_table(out, position, child)
    elif isinstance(child, _Bytes):
        out.align(child.alignment, ahead=4)
        out.refer(position)
        out.data += struct.pack("<I", len(child.data))
        out.data += child.data
        out.data.extend(bytes(child.terminated))
    elif isinstance(child, _Vector):
        out.align(max(4, struct.calcsize("<" + child.code)), ahead=4)
        out.refer(position)
        out.data += struct.pack("<I", len(child.values))
        out.data += struct.pack(f"<{len(child.values)}{child.code}", *child.values)
    else:
        out.align(4)
        out.refer(position)
        out.data += struct.pack("<I", len(child))
        for table in child:
            out.pending.append((len(out.data), table))
            out.data += bytes(4)


def _write_table(out: _Output, position: int, table: _Table) -> None:
    # Fields lie by size, the largest first, so that each is aligned with the least padding.
    sizes = {s: 4 if c == "child" else struct.calcsize("<" + c) for s, (c, _) in table.fields.items()}
    offsets, end = {}, 4
    for slot in sorted(sizes, key=lambda s: -sizes[s]):
        end += -(end - 4) % sizes[slot]
        offsets[slot] = end
        end += sizes[slot]
    slots = max(sizes, default=-1) + 1
    vtable_size = 4 + 2 * slots
    out.align(8, ahead=vtable_size + 4)
    vtable = len(out.data)
    out.data += struct.pack(f"<HH{slots}H", vtable_size, end, *(offsets.get(s, 0) for s in range(slots)))
    out.refer(position)
    start = len(out.data)
    out.data += struct.pack("<i", start - vtable) + bytes(end - 4)
    for slot, (code, value) in table.fields.items():
        here = start + offsets[slot]
        if code == "child":
            out.pending.append((here, value))
        else:
            struct.pack_into("<" + code, out.data, here, value)
