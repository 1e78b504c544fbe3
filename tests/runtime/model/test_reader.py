"""The reader: what it returns, what it shares, and what it refuses."""

from __future__ import annotations

import dataclasses
import struct
import subprocess
import sys
from array import array

import numpy as np
import pytest

from runtime.errors import ModelFormatError
from runtime.model.graph import (
    BlockQuantization,
    Model,
    Operator,
    Quantization,
    Signature,
    SparseDimension,
    Sparsity,
    Subgraph,
    Tensor,
)
from runtime.model.reader import load_model, read_model
from runtime.model.schema import BuiltinOperator, Padding, TensorType
from runtime.model.writer import write_model
from tests.runtime.models import Builder, per_channel, per_tensor


def rich_model() -> Model:
    """One of everything that the file format has for tensors, options, signatures and metadata."""
    b = Builder()
    x = b.input(np.float32, (1, 8, 8, 3))
    w = b.constant(np.arange(4 * 9 * 3, dtype=np.float32).reshape(4, 3, 3, 3))
    bias = b.constant(np.zeros(4, np.float32))
    y = b.tensor(np.float32, (1, 8, 8, 4), shape_signature=(-1, 8, 8, 4))
    b.operator(
        BuiltinOperator.CONV_2D,
        [x, w, bias],
        [y],
        {"padding": Padding.VALID, "stride_w": 2, "stride_h": 3, "dilation_w_factor": 5},
    )
    z = b.tensor(np.float32, (1, 256))
    target = b.constant(np.array([1, 256], np.int32))
    b.operator(BuiltinOperator.RESHAPE, [y, target], [z], {"new_shape": (1, 256)})
    q = b.tensor(np.int8, (1, 256), per_tensor(0.5, -3))
    b.operator(BuiltinOperator.QUANTIZE, [z], [q], version=2)
    b.constant(np.zeros((4, 2), np.int8), per_channel([0.1, 0.2, 0.3, 0.4]))
    b.tensor(np.float32, (3,), is_variable=True)
    b.tensor(np.float32, (2, 2), Quantization((), (), blocks=BlockQuantization(1, -1, 32)))
    rows = SparseDimension(0, array("i", (0, 1, 2)), array("i", (1, 0)))
    sparsity = Sparsity((0, 1), (), (SparseDimension(2), rows))
    b.tensor(np.float32, (2, 2), data=memoryview(bytes(8)), sparsity=sparsity)
    s = b.tensor(np.float32, (7,))
    b.operator(BuiltinOperator.CUSTOM, [x, -1], [s], custom_code="Mine")
    b.operators[-1] = dataclasses.replace(b.operators[-1], custom_options=b"\x01\x02")
    b.tensor(np.int8, (2, 2), Quantization((0.5,), (0,), is_custom=True))
    model = b.model([q, s], [Signature("serve", 0, (("image", x),), (("levels", q), ("own", s)))])
    return dataclasses.replace(model, metadata={"min_runtime_version": b"1.5.0\0", "empty": b""})


def comparable(model: Model) -> Model:
    """Without what the writer is free to choose: buffer numbers, and how constants are stored."""
    subgraphs = []
    for subgraph in model.subgraphs:
        tensors = tuple(
            dataclasses.replace(t, buffer=0, data=None if t.data is None else bytes(t.data))  # type: ignore[arg-type]
            for t in subgraph.tensors
        )
        operators = tuple(
            dataclasses.replace(o, options={k: v for k, v in o.options.items() if v})
            for o in subgraph.operators
        )
        subgraphs.append(dataclasses.replace(subgraph, tensors=tensors, operators=operators))
    return dataclasses.replace(model, subgraphs=tuple(subgraphs))


def test_what_was_written_is_read():
    model = rich_model()
    read = read_model(write_model(model))
    conv = read.subgraphs[0].operators[0]
    assert conv.options["dilation_w_factor"] == 5
    assert conv.options["dilation_h_factor"] == 1
    expected = comparable(model)
    found = comparable(read)
    assert found.signatures == expected.signatures
    assert found.metadata == expected.metadata
    assert found.subgraphs[0].tensors == expected.subgraphs[0].tensors
    for ours, theirs in zip(found.subgraphs[0].operators, expected.subgraphs[0].operators, strict=True):
        assert {k: ours.options[k] for k in theirs.options} == theirs.options
        assert dataclasses.replace(ours, options={}) == dataclasses.replace(theirs, options={})


def test_constants_are_views_of_the_file():
    data = write_model(rich_model())
    model = read_model(data)
    constant = model.subgraphs[0].tensors[1]
    assert constant.data is not None
    assert constant.data.obj is data
    address = np.frombuffer(constant.data, np.uint8).ctypes.data - np.frombuffer(data, np.uint8).ctypes.data
    assert address % 16 == 0


def test_a_file_is_mapped_and_not_copied(tmp_path):
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(rich_model()))
    constant = load_model(path).subgraphs[0].tensors[1]
    assert constant.data is not None
    assert type(constant.data.obj).__name__ == "mmap"


def test_data_behind_the_flatbuffer_is_found():
    """Large files keep constants at absolute offsets after the FlatBuffer."""
    b = Builder()
    x = b.input(np.float32, (3,))
    w = b.constant(np.array([1, 2, 3], np.float32))
    y = b.tensor(np.float32, (3,))
    b.operator(BuiltinOperator.MUL, [x, w], [y])
    data = bytearray(b.write([y]))
    values = struct.pack("<3f", 7, 8, 9)
    table = _buffer_table(data, 1)
    moved = bytearray(data) + bytes(-len(data) % 16)
    start = len(moved) + 32
    # A new Buffer table (vtable: data absent, offset, size) at the end, the vector's entry points to it.
    vtable = struct.pack("<5H", 10, 20, 0, 4, 12) + bytes(2)
    moved += vtable + struct.pack("<iQQ", 12, start, len(values))
    position = len(moved) - 20
    struct.pack_into("<I", moved, table, position - table)
    moved += bytes(start - len(moved)) + values
    tensor = read_model(moved).subgraphs[0].tensors[w]
    assert tensor.data is not None
    assert np.frombuffer(tensor.data, np.float32).tolist() == [7, 8, 9]
    struct.pack_into("<Q", moved, position + 4, 2**63)
    with pytest.raises(ModelFormatError, match=r"model\.buffers\[1\]: 12 bytes at offset"):
        read_model(moved)


def _buffer_table(data: bytearray, index: int) -> int:
    """Return the position at which the root's vector `buffers` (slot 4) holds entry `index`."""
    root = struct.unpack_from("<I", data, 0)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    field = root + struct.unpack_from("<H", data, vtable + 4 + 2 * 4)[0]
    vector = field + struct.unpack_from("<I", data, field)[0]
    return vector + 4 + 4 * index


def replaced(**changes) -> Model:
    """Return the rich model with tensors or operators of its subgraph replaced."""
    model = rich_model()
    subgraph = model.subgraphs[0]
    tensors, operators = list(subgraph.tensors), list(subgraph.operators)
    for index, fields in changes.pop("tensors", {}).items():
        tensors[index] = dataclasses.replace(tensors[index], **fields)
    for index, fields in changes.pop("operators", {}).items():
        operators[index] = dataclasses.replace(operators[index], **fields)
    fields = {"tensors": tuple(tensors), "operators": tuple(operators), **changes.pop("subgraph", {})}
    subgraph = dataclasses.replace(subgraph, **fields)
    return dataclasses.replace(model, **{"subgraphs": (subgraph,), **changes})


BROKEN = {
    "version": (replaced(version=4), "model.version: 4"),
    "no_subgraph": (replaced(subgraphs=()), "no subgraph"),
    "negative_dimension": (replaced(tensors={0: {"shape": (1, -8, 8, 3)}}), "tensor 0 't0'.*negative"),
    "too_many_elements": (replaced(tensors={0: {"shape": (65536, 65536)}}), "more than 2"),
    "zero_hides_overflow": (replaced(tensors={0: {"shape": (0, 65536, 65536)}}), "more than 2"),
    "buffer_size": (replaced(tensors={1: {"shape": (4, 3, 3, 4)}}), r"takes 576 bytes, its buffer has 432"),
    "variable_constant": (replaced(tensors={1: {"is_variable": True}}), "variable cannot have constant"),
    "zero_points": (replaced(tensors={6: {"quantization": Quantization((0.5,), ())}}), "1 scales with 0"),
    "scale_count": (
        replaced(tensors={7: {"quantization": per_channel([1, 2])}}),
        "2 scales along dimension 0",
    ),
    "scale_nan": (replaced(tensors={6: {"quantization": per_tensor(float("nan"))}}), "not finite"),
    "quantized_dimension": (replaced(tensors={7: {"quantization": per_channel([1] * 4, 2)}}), "of rank 2"),
    "block_scales": (
        replaced(tensors={9: {"quantization": Quantization((), (), blocks=BlockQuantization(99, -1, 32))}}),
        "refers outside",
    ),
    "sparse_order": (
        replaced(tensors={10: {"sparsity": Sparsity((0, 0), (), (SparseDimension(2),) * 2)}}),
        "not a permutation",
    ),
    "sparse_segments": (
        replaced(
            tensors={
                10: {
                    "sparsity": Sparsity(
                        (0, 1), (), (SparseDimension(2), SparseDimension(0, (0, 5, 2), (1, 0)))
                    )
                }
            }
        ),
        "ascending offsets",
    ),
    "operator_input": (replaced(operators={1: {"inputs": (3, 99)}}), "operator 1 RESHAPE: refers outside"),
    "not_made_yet": (
        replaced(operators={0: {"inputs": (4, 1, 2)}}),
        "operator 0 CONV_2D: input 4 't4' has no",
    ),
    "made_twice": (replaced(operators={1: {"outputs": (3,)}}), "output 3 't3' is already made"),
    "overwrites_constant": (replaced(operators={1: {"outputs": (1,)}}), "already a constant"),
    "output_not_made": (replaced(subgraph={"outputs": (11,), "operators": ()}), "made by no operator"),
    "outputs_outside": (replaced(subgraph={"outputs": (77,)}), "outside its 13 tensors"),
    "signature_tensor": (
        replaced(signatures=(Signature("s", 0, (("a", 50),), ()),)),
        "'a' is tensor 50 of 13",
    ),
    "signature_subgraph": (replaced(signatures=(Signature("s", 3, (), ()),)), "subgraph 3 of 1"),
    "signature_twice": (replaced(signatures=(Signature("s", 0, (), ()),) * 2), "defined twice"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model_is_refused_and_the_place_named(name):
    model, text = BROKEN[name]
    with pytest.raises(ModelFormatError, match=text):
        read_model(write_model(model))


def test_strings_are_checked():
    def model(data: bytes) -> bytes:
        tensor = Tensor(0, "words", TensorType.STRING, (1,), data=memoryview(data))
        return write_model(Model(3, "", (Subgraph(0, "", (tensor,), (), (0,), ()),)))

    read_model(model(struct.pack("<iii", 1, 12, 15) + b"abc"))
    for broken in (struct.pack("<iii", 1, 12, 99) + b"abc", struct.pack("<i", 1000), b"\0"):
        with pytest.raises(ModelFormatError, match="string"):
            read_model(model(broken))


def test_both_operator_code_fields_count():
    """The effective code is the larger of the old 8-bit and the new 32-bit field."""
    for opcode in (BuiltinOperator.ADD, BuiltinOperator.CUMSUM, BuiltinOperator.STABLEHLO_CASE):
        tensor = Tensor(0, "x", TensorType.FLOAT32, (1,))
        made = Tensor(1, "y", TensorType.FLOAT32, (1,))
        operator = Operator(0, opcode, 7, (0,), (1,))
        data = write_model(Model(3, "", (Subgraph(0, "", (tensor, made), (0,), (1,), (operator,)),)))
        read = read_model(data).subgraphs[0].operators[0]
        assert (read.opcode, read.version) == (opcode, 7)


@pytest.mark.parametrize("data", [b"", b"1234567", b"\0" * 100, b"\x08\0\0\0NOPE" + bytes(64)], ids=len)
def test_what_is_no_model_is_refused(data):
    with pytest.raises(ModelFormatError):
        read_model(data)


def test_a_missing_identifier_is_named():
    data = bytearray(write_model(rich_model()))
    data[4:8] = b"TFL2"
    with pytest.raises(ModelFormatError, match="identifier is b'TFL2'"):
        read_model(data)


def test_a_text_file_is_no_model_whatever_its_first_bytes_mean_as_an_offset():
    with pytest.raises(ModelFormatError, match="identifier is b'ion:'"):
        read_model(b"version: 1\ncampaign: demo\n")


def test_an_empty_file_and_its_path_are_named(tmp_path):
    path = tmp_path / "nothing.tflite"
    path.touch()
    with pytest.raises(ModelFormatError, match=r"nothing\.tflite: the file is empty"):
        load_model(path)
    path.write_bytes(bytes(50))
    with pytest.raises(ModelFormatError, match=r"nothing\.tflite: "):
        load_model(path)


def test_reading_needs_no_numpy():
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from runtime.model import reader, writer, skeleton, options\n"
        "data = sys.stdin.buffer.read(); print(len(reader.read_model(data).subgraphs[0].operators))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], input=write_model(rich_model()), capture_output=True, check=True
    )
    assert ran.stdout.strip() == b"4"


def test_litert_accepts_what_the_writer_makes():
    from tests.oracle import run_litert

    b = Builder()
    x = b.input(np.float32, (2, 3))
    y = b.tensor(np.float32, (2, 3))
    b.operator(BuiltinOperator.RELU, [x], [y])
    value = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
    (found,) = run_litert(b.write([y]), [value])
    np.testing.assert_array_equal(found, np.maximum(value, 0))
