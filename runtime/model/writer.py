"""A `Model` written as the bytes of a `.tflite` file: parts of models, models of one operator for tests."""

import struct
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from runtime.model import graph
from runtime.model.external import ExternalBuffer, groups_of
from runtime.model.options import OptionField, OptionsTable, operator_options
from runtime.model.schema import FILE_IDENTIFIER, BuiltinOperator, DimensionType, QuantizationDetails

_BUFFER_ALIGNMENT = 16
"""Bytes by which the data of a buffer is aligned in the file (`force_align: 16` of schema.fbs), so that a
memory map serves constants without a copy."""

_PLACEHOLDER = 127
"""The code in the old, one-byte field of operators whose own is larger (PLACEHOLDER_FOR_GREATER_OP_CODES)."""


@dataclass(frozen=True, slots=True)
class _Scalar:
    code: str
    value: Any
    default: Any = 0


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
_Table: TypeAlias = dict[int, "_Scalar | _Child"]
"""Fields by slot: a scalar, or what lies elsewhere."""
_Field: TypeAlias = "_Scalar | _Child | None"


def _table(fields: Mapping[int, _Field]) -> _Table:
    """Return a table without what is None and without scalars that have their default."""
    return {
        slot: value
        for slot, value in fields.items()
        if value is not None and not (isinstance(value, _Scalar) and value.value == value.default)
    }


def write_model(model: graph.Model) -> bytes:
    """Serialise `model`. Constants that share a non-zero `Tensor.buffer` share one buffer in the file."""
    return _serialise(_ModelTables(model).root())


class _ModelTables:
    """Numbers the buffers and operator codes while the tables are made."""

    def __init__(self, model: graph.Model) -> None:
        self._model = model
        # Buffer 0 stays empty: it is that of all tensors without values.
        self._buffers: list[bytes | memoryview] = [b""]
        self._by_tensor_buffer: dict[int, int] = {}
        self._codes: dict[tuple[BuiltinOperator, int, str | None], int] = {}

    def root(self) -> _Table:
        model = self._model
        # The tables of subgraphs and metadata number what the tables in front of them list.
        subgraphs = [self._subgraph(s) for s in model.subgraphs]
        metadata = [self._metadata(name, data) for name, data in model.metadata.items()]
        groups = groups_of(model.external)
        return _table(
            {
                0: _Scalar("I", model.version),
                # In the order of their first use, which `_operator` has numbered them by.
                1: [_operator_code(*key) for key in self._codes],
                2: subgraphs,
                3: _string(model.description),
                4: [_table({0: _Bytes(d, _BUFFER_ALIGNMENT) if len(d) else None}) for d in self._buffers],
                6: metadata or None,
                7: [_signature(s) for s in model.signatures] or None,
                8: [_table({0: _string(name)}) for name in groups] or None,
                9: [_external_buffer(b, groups[b.group]) for b in model.external] or None,
            }
        )

    def _metadata(self, name: str, data: bytes) -> _Table:
        self._buffers.append(data)
        return _table({0: _string(name), 1: _Scalar("I", len(self._buffers) - 1)})

    def _subgraph(self, subgraph: graph.Subgraph) -> _Table:
        return _table(
            {
                0: [self._tensor(t) for t in subgraph.tensors],
                1: _Vector("i", subgraph.inputs),
                2: _Vector("i", subgraph.outputs),
                3: [self._operator(o) for o in subgraph.operators],
                4: _string(subgraph.name),
            }
        )

    def _buffer_of(self, tensor: graph.Tensor) -> int:
        if tensor.data is None or tensor.external_buffer:
            return 0
        if tensor.buffer and tensor.buffer in self._by_tensor_buffer:
            return self._by_tensor_buffer[tensor.buffer]
        self._buffers.append(tensor.data)
        index = len(self._buffers) - 1
        if tensor.buffer:
            self._by_tensor_buffer[tensor.buffer] = index
        return index

    def _tensor(self, tensor: graph.Tensor) -> _Table:
        signature = tensor.shape_signature
        return _table(
            {
                0: _Vector("i", tensor.shape),
                1: _Scalar("b", int(tensor.type)),
                2: _Scalar("I", self._buffer_of(tensor)),
                3: _string(tensor.name),
                4: None if tensor.quantization is None else _quantization(tensor.quantization),
                5: _Scalar("?", tensor.is_variable, default=False),
                6: None if tensor.sparsity is None else _sparsity(tensor.sparsity),
                7: None if signature is None else _Vector("i", signature),
                8: _Scalar("?", tensor.has_rank, default=False),
                10: _Scalar("I", tensor.external_buffer),
            }
        )

    def _operator(self, operator: graph.Operator) -> _Table:
        key = (operator.opcode, operator.version, operator.custom_code)
        fields: dict[int, _Field] = {
            0: _Scalar("I", self._codes.setdefault(key, len(self._codes))),
            1: _Vector("i", operator.inputs),
            2: _Vector("i", operator.outputs),
        }
        expected = operator_options(operator.opcode)
        if expected is not None:
            # Slots of `Operator`: which table a union holds, and the table.
            kind, slot = (11, 12) if expected.second else (3, 4)
            fields[kind] = _Scalar("B", expected.union_value)
            fields[slot] = _options(expected, operator.options)
        fields[5] = _Bytes(operator.custom_options) if operator.custom_options else None
        fields[8] = _Vector("i", operator.intermediates) if operator.intermediates else None
        return _table(fields)


def _string(text: str) -> _Bytes:
    return _Bytes(text.encode(), terminated=True)


def _operator_code(opcode: BuiltinOperator, version: int, custom_code: str | None) -> _Table:
    return _table(
        {
            0: _Scalar("b", min(int(opcode), _PLACEHOLDER)),
            1: None if custom_code is None else _string(custom_code),
            2: _Scalar("i", version, 1),
            3: _Scalar("i", int(opcode)),
        }
    )


def _external_buffer(buffer: ExternalBuffer, group: int) -> _Table:
    return _table(
        {
            0: _Scalar("I", buffer.id),
            1: _Scalar("I", group),
            2: _Scalar("Q", buffer.offset),
            3: _Scalar("Q", buffer.length),
            4: _string(buffer.packing) if buffer.packing else None,
        }
    )


def _options(expected: OptionsTable, options: Mapping[str, Any]) -> _Table:
    unknown = set(options) - {f.name for f in expected.fields}
    if unknown:
        raise ValueError(f"{expected.name} has no field {', '.join(sorted(unknown))}")

    def field(option: OptionField) -> _Field:
        value = options.get(option.name, option.default)
        if option.code == "s":
            return _string(value)
        if option.is_vector:
            return _Vector(option.code, tuple(value))
        return _Scalar(option.code, value, option.default)

    return _table({option.slot: field(option) for option in expected.fields})


def _quantization(q: graph.Quantization) -> _Table:
    fields: dict[int, _Field] = {2: _Vector("f", q.scales), 3: _Vector("q", q.zero_points)}
    if q.is_custom:
        fields |= {4: _Scalar("B", int(QuantizationDetails.CUSTOM)), 5: {}}
    elif q.blocks is not None:
        several = bool(q.blocks.quantized_dimensions)
        kind = QuantizationDetails.MULTI_AXIS if several else QuantizationDetails.BLOCKWISE
        details: dict[int, _Field] = {
            0: _Scalar("i", q.blocks.scales),
            1: _Scalar("i", q.blocks.zero_points),
            2: _Scalar("i", q.blocks.block_size),
            3: _Vector("i", q.blocks.quantized_dimensions) if several else None,
        }
        fields |= {4: _Scalar("B", int(kind)), 5: _table(details)}
    return _table({**fields, 6: _Scalar("i", q.quantized_dimension)})


def _sparsity(sparsity: graph.Sparsity) -> _Table:
    dimensions = [_dimension(dimension) for dimension in sparsity.dimensions]
    order, blocks = sparsity.traversal_order, sparsity.block_map
    return _table({0: _Vector("i", order), 1: _Vector("i", blocks), 2: dimensions})


def _dimension(dimension: graph.SparseDimension) -> _Table:
    if dimension.segments is None or dimension.indices is None:
        return _table({1: _Scalar("i", dimension.dense_size)})
    fields: dict[int, _Field] = {0: _Scalar("b", int(DimensionType.SPARSE_CSR))}
    for slot, values in ((2, dimension.segments), (4, dimension.indices)):
        fields |= {slot: _Scalar("B", 1), slot + 1: _table({0: _Vector("i", values)})}
    return _table(fields)


def _signature(signature: graph.Signature) -> _Table:
    return _table(
        {
            0: _tensor_maps(signature.inputs),
            1: _tensor_maps(signature.outputs),
            2: _string(signature.key),
            4: _Scalar("I", signature.subgraph_index),
        }
    )


def _tensor_maps(pairs: Iterable[tuple[str, int]]) -> list[_Table]:
    return [_table({0: _string(name), 1: _Scalar("I", index)}) for name, index in pairs]


class _Output:
    """Parents are written before their children, so every offset is positive and patched when known."""

    def __init__(self) -> None:
        # The root's offset and the identifier, both written later.
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
    if isinstance(child, dict):
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
    sizes = {s: struct.calcsize("<" + v.code) if isinstance(v, _Scalar) else 4 for s, v in table.items()}
    offsets, end = {}, 4
    for slot in sorted(sizes, key=lambda s: -sizes[s]):
        end += -(end - 4) % sizes[slot]
        offsets[slot] = end
        end += sizes[slot]
    slots = max(sizes, default=-1) + 1
    vtable_size = 4 + 2 * slots
    # The vtable goes in front: aligned is what lies 4 bytes into the table, the first and largest field.
    out.align(8, ahead=vtable_size + 4)
    vtable = len(out.data)
    out.data += struct.pack(f"<HH{slots}H", vtable_size, end, *(offsets.get(s, 0) for s in range(slots)))
    out.refer(position)
    start = len(out.data)
    out.data += struct.pack("<i", start - vtable) + bytes(end - 4)
    for slot, value in table.items():
        here = start + offsets[slot]
        if isinstance(value, _Scalar):
            struct.pack_into("<" + value.code, out.data, here, value.value)
        else:
            out.pending.append((here, value))
