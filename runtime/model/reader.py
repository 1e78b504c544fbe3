"""Bytes of a `.tflite` file to a checked `Model`. Needs no numpy, copies no weights, executes nothing."""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, TypeVar

from runtime.errors import ModelFormatError
from runtime.model import graph, schema
from runtime.model.checks import check_model, tensor_bytes
from runtime.model.external import ExternalLoader, files_beside, read_external
from runtime.model.flatbuffer import FlatBuffer, Table, describe
from runtime.model.options import OptionField, operator_options
from runtime.model.source import ModelBytes, file_state

_INDEX_CODES: Mapping[schema.SparseIndexVector, Literal["i", "H", "B"]] = {
    schema.SparseIndexVector.INT32: "i",
    schema.SparseIndexVector.UINT16: "H",
    schema.SparseIndexVector.UINT8: "B",
}
_Enum = TypeVar("_Enum", bound=IntEnum)
_OperatorCode = tuple[schema.BuiltinOperator, int, str | None]


def load_model(path: str | Path, external: ExternalLoader | None = None) -> graph.Model:
    """Read a file through a memory map: constants are views of it. Raises OSError and `ModelFormatError`.

    Weights in files of their own come from `external`, by default from the model's folder. Reading the
    lengths of the weights can make pages of up to 2 MiB around each resident; they are released again.
    """
    with Path(path).open("rb") as file:
        if file.seek(0, 2) == 0:
            raise ModelFormatError(f"{path}: the file is empty")
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        source = ModelBytes(memoryview(mapped), file_state(file.fileno()))
    try:
        model = read_model(source.content, external or files_beside(Path(path)))
    except ModelFormatError as error:
        raise ModelFormatError(f"{path}: {error}") from None
    source.release()
    return replace(model, source=source)


def read_model(data: bytes | bytearray | memoryview, external: ExternalLoader | None = None) -> graph.Model:
    """Parse and check a whole model; `Tensor.data` are views into `data`. Raises `ModelFormatError`.

    `external` loads weights that lie in other files; without it such tensors have no data.
    """
    buffer = FlatBuffer(data)
    # Before anything else: of a file of another kind no offset means anything.
    if buffer.identifier() != schema.FILE_IDENTIFIER:
        raise ModelFormatError(
            f"file: identifier is {buffer.identifier()!r}, a .tflite file has {schema.FILE_IDENTIFIER!r}"
        )
    root = buffer.root()
    version = root.scalar(0, "version", "I")
    if version != schema.SCHEMA_VERSION:
        raise ModelFormatError(f"model.version: {version} is not supported, only {schema.SCHEMA_VERSION} is")
    reader = _Reader(buffer, root, external)
    model = graph.Model(
        version=version,
        description=root.string(3, "description") or "",
        subgraphs=tuple(reader.subgraph(i, t) for i, t in enumerate(root.tables(2, "subgraphs"))),
        signatures=tuple(signature_of(t) for t in root.tables(7, "signature_defs")),
        metadata=reader.metadata(root),
        external=tuple(reader.external.values()),
        source=ModelBytes(memoryview(data)),
    )
    check_model(model)
    return model


class _Reader:
    """The parts of a file that its subgraphs refer to by index."""

    def __init__(self, buffer: FlatBuffer, root: Table, load: ExternalLoader | None) -> None:
        self._buffer = buffer
        self._load = load
        self.external = read_external(root)
        self._buffers = [self._buffer_data(t) for t in root.tables(4, "buffers")]
        self._codes = [_operator_code(t) for t in root.tables(1, "operator_codes")]

    def _buffer_data(self, table: Table) -> memoryview | None:
        # Offsets 0 and 1 mean "not used" (schema.fbs); above, the bytes lie behind the FlatBuffer, as files
        # beyond 2 GiB need.
        offset, size = table.scalar(1, "offset", "Q"), table.scalar(2, "size", "Q")
        if offset > 1 and size > 0:
            return self._buffer.range(offset, size, table.path)
        data = table.data(0, "data")
        return data or None

    def metadata(self, root: Table) -> dict[str, bytes]:
        entries: dict[str, bytes] = {}
        contents: dict[int, bytes] = {}
        for table in root.tables(6, "metadata"):
            index = table.scalar(1, "buffer", "I")
            if index >= len(self._buffers):
                raise ModelFormatError(f"{describe(table.path)}: buffer {index} of {len(self._buffers)}")
            # Entries may share a buffer: copied once each, a small file cannot make many large copies.
            if index not in contents:
                contents[index] = bytes(self._buffers[index] or b"")
            entries[table.string(0, "name") or ""] = contents[index]
        return entries

    def subgraph(self, index: int, table: Table) -> graph.Subgraph:
        inputs = table.numbers(1, "inputs", "i") or ()
        tensors = tuple(self._tensor(i, t) for i, t in enumerate(table.tables(0, "tensors")))
        operators = tuple(self._operator(i, t) for i, t in enumerate(table.tables(3, "operators")))
        return graph.Subgraph(
            index=index,
            name=table.string(4, "name") or "",
            tensors=_with_empty_constants(tensors, {*inputs, *(i for o in operators for i in o.outputs)}),
            inputs=inputs,
            outputs=table.numbers(2, "outputs", "i") or (),
            operators=operators,
        )

    def _tensor(self, index: int, table: Table) -> graph.Tensor:
        buffer = table.scalar(2, "buffer", "I")
        # A file without buffers leaves its tensors at the default, 0.
        if buffer >= len(self._buffers) and (buffer or self._buffers):
            raise ModelFormatError(f"{describe(table.path)}: buffer {buffer} of {len(self._buffers)}")
        quantization, sparsity = table.table(4, "quantization"), table.table(6, "sparsity")
        external = table.scalar(10, "external_buffer", "I")
        # Buffer 0 is empty by definition: it marks tensors that have no values in the file.
        stored = self._buffers[buffer] if buffer else None
        return graph.Tensor(
            index=index,
            name=table.string(3, "name") or "",
            type=enum_of(schema.TensorType, table.scalar(1, "type", "b"), table, "type"),
            shape=table.numbers(0, "shape", "i") or (),
            shape_signature=table.numbers(7, "shape_signature", "i"),
            buffer=buffer,
            data=self._external_data(external, table) if stored is None else stored,
            quantization=quantization_of(quantization) if quantization else None,
            is_variable=table.scalar(5, "is_variable", "?", default=False),
            sparsity=_sparsity(sparsity) if sparsity else None,
            has_rank=table.scalar(8, "has_rank", "?", default=False),
            external_buffer=external,
        )

    def _external_data(self, number: int, table: Table) -> memoryview | None:
        if number and number not in self.external:
            raise ModelFormatError(f"{describe(table.path)}: there is no external buffer {number}")
        return self.external[number].view(self._load) if number and self._load else None

    def _operator(self, index: int, table: Table) -> graph.Operator:
        code = table.scalar(0, "opcode_index", "I")
        if code >= len(self._codes):
            raise ModelFormatError(f"{describe(table.path)}: opcode_index {code} of {len(self._codes)}")
        opcode, version, custom_code = self._codes[code]
        return graph.Operator(
            index=index,
            opcode=opcode,
            version=version,
            inputs=table.numbers(1, "inputs", "i") or (),
            outputs=table.numbers(2, "outputs", "i") or (),
            options=_options(opcode, table),
            custom_code=custom_code,
            custom_options=self._custom_options(table),
            intermediates=table.numbers(8, "intermediates", "i") or (),
        )

    def _custom_options(self, table: Table) -> bytes:
        offset = table.scalar(9, "large_custom_options_offset", "Q")
        size = table.scalar(10, "large_custom_options_size", "Q")
        if offset > 1 and size > 0:
            view: memoryview | None = self._buffer.range(offset, size, table.path)
        else:
            view = table.data(5, "custom_options")
        if not view:
            return b""
        # These bytes are copied, for every operator that refers to them, so that they count to the budget.
        self._buffer.charge_elements(len(view), table.path)
        return bytes(view)


def _operator_code(table: Table) -> _OperatorCode:
    # Old files have only the byte, new ones hold 127 there for codes that do not fit: the larger counts.
    code = max(table.scalar(0, "deprecated_builtin_code", "b"), table.scalar(3, "builtin_code", "i"))
    opcode = enum_of(schema.BuiltinOperator, code, table, "builtin_code")
    custom_code = table.string(1, "custom_code") if opcode is schema.BuiltinOperator.CUSTOM else None
    if opcode is schema.BuiltinOperator.CUSTOM and not custom_code:
        raise ModelFormatError(f"{describe(table.path)}: a CUSTOM operator without a name")
    return opcode, table.scalar(2, "version", "i", 1), custom_code


def _options(opcode: schema.BuiltinOperator, operator: Table) -> dict[str, Any]:
    expected = operator_options(opcode)
    if expected is None:
        return {}
    kind, slot = (11, 12) if expected.second else (3, 4)
    table = None
    if operator.scalar(kind, "builtin_options_type", "B") == expected.union_value:
        table = operator.table(slot, "builtin_options")
    if table is None:
        return {field.name: field.default for field in expected.fields}
    return {field.name: _option(table, field) for field in expected.fields}


def _option(table: Table, field: OptionField) -> Any:
    if field.code == "s":
        return table.string(field.slot, field.name) or field.default
    if field.is_vector:
        values = table.numbers(field.slot, field.name, field.code) or field.default
        if field.code == "B":
            return bytes(values)
        return tuple(enum_of(field.enum, v, table, field.name) for v in values) if field.enum else values
    value = table.scalar(field.slot, field.name, field.code, field.default)
    return enum_of(field.enum, value, table, field.name) if field.enum else value


def enum_of(kind: type[_Enum], value: int, table: Table, name: str) -> _Enum:
    """Convert a number of the file to a member of `kind`. Raises `ModelFormatError` with table and field."""
    try:
        return kind(value)
    except ValueError:
        raise ModelFormatError(f"{describe((*table.path, name))}: {value} is not a {kind.__name__}") from None


def _with_empty_constants(tensors: tuple[graph.Tensor, ...], computed: set[int]) -> tuple[graph.Tensor, ...]:
    """Give tensors without elements that no operator computes empty data: they are constants.

    The file holds no bytes for such a constant, and so cannot say that it is one.
    """

    def is_empty_constant(t: graph.Tensor) -> bool:
        stored = t.data is not None or t.is_variable or t.external_buffer or t.sparsity
        return not stored and t.index not in computed and tensor_bytes(t.type, t.shape) == 0

    return tuple(replace(t, data=memoryview(b"")) if is_empty_constant(t) else t for t in tensors)


def quantization_of(table: Table) -> graph.Quantization | None:
    """Read a table `QuantizationParameters`; None if it holds none. Raises `ModelFormatError`."""
    scales = table.numbers(2, "scale", "f") or ()
    zero_points = table.numbers(3, "zero_point", "q") or ()
    kind = enum_of(schema.QuantizationDetails, table.scalar(4, "details_type", "B"), table, "details_type")
    details = table.table(5, "details") if kind else None
    dimension = table.scalar(6, "quantized_dimension", "i")
    if details is None:
        return graph.Quantization(scales, zero_points, dimension) if scales else None
    if kind is schema.QuantizationDetails.CUSTOM:
        return graph.Quantization(scales, zero_points, dimension, is_custom=True)
    dimensions = details.numbers(3, "quantized_dimensions", "i") or ()
    blocks = graph.BlockQuantization(
        scales=details.scalar(0, "scales", "i"),
        zero_points=details.scalar(1, "zero_points", "i"),
        block_size=details.scalar(2, "block_size", "i"),
        quantized_dimensions=dimensions if kind is schema.QuantizationDetails.MULTI_AXIS else (),
    )
    return graph.Quantization(scales, zero_points, dimension, blocks=blocks)


def _sparsity(table: Table) -> graph.Sparsity:
    return graph.Sparsity(
        traversal_order=table.numbers(0, "traversal_order", "i") or (),
        block_map=table.numbers(1, "block_map", "i") or (),
        dimensions=tuple(_sparse_dimension(t) for t in table.tables(2, "dim_metadata")),
    )


def _sparse_dimension(table: Table) -> graph.SparseDimension:
    kind = enum_of(schema.DimensionType, table.scalar(0, "format", "b"), table, "format")
    if kind is schema.DimensionType.DENSE:
        return graph.SparseDimension(table.scalar(1, "dense_size", "i"))
    return graph.SparseDimension(
        0, _index_vector(table, 2, "array_segments"), _index_vector(table, 4, "array_indices")
    )


def _index_vector(table: Table, slot: int, name: str) -> Sequence[int]:
    kind = enum_of(schema.SparseIndexVector, table.scalar(slot, f"{name}_type", "B"), table, f"{name}_type")
    vector = table.table(slot + 1, name)
    if vector is None or kind is schema.SparseIndexVector.NONE:
        raise ModelFormatError(f"{describe((*table.path, name))}: a sparse dimension without its vector")
    found = vector.index_view(0, "values", _INDEX_CODES[kind])
    return () if found is None else found


def signature_of(table: Table) -> graph.Signature:
    """Read a table `SignatureDef`. Raises `ModelFormatError`."""
    return graph.Signature(
        key=table.string(2, "signature_key") or "",
        subgraph_index=table.scalar(4, "subgraph_index", "I"),
        inputs=tuple(_tensor_map(t) for t in table.tables(0, "inputs")),
        outputs=tuple(_tensor_map(t) for t in table.tables(1, "outputs")),
    )


def _tensor_map(table: Table) -> tuple[str, int]:
    return table.string(0, "name") or "", table.scalar(1, "tensor_index", "I")
