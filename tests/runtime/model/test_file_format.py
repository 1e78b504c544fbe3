"""The file format against LiteRT's wheel: its writer, and its interpreter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from runtime.api import interpreter as ours
from runtime.api.interpreter import Interpreter
from runtime.errors import ModelError, ModelFormatError
from runtime.model.external import ExternalBuffer
from runtime.model.graph import BlockQuantization, Quantization
from runtime.model.reader import load_model, read_model
from runtime.model.schema import ActivationFunctionType, BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.oracle import call_in_litert
from tests.runtime.api.test_interpreter_api import same
from tests.runtime.model import schema_scripts
from tests.runtime.models import Builder, per_channel, per_tensor

SCRIPTS = "tests.runtime.model.schema_scripts"
WEIGHTS = np.array([2, 3, 4], np.float32)


@pytest.mark.parametrize("fields", ["old", "new", "old new"])
def test_operator_codes_are_read_from_either_field_and_options_from_the_first_union(fields):
    data = call_in_litert(f"{SCRIPTS}:product", fields)
    (operator,) = read_model(data).subgraphs[0].operators
    assert operator.opcode is BuiltinOperator.MUL
    assert operator.options["fused_activation_function"] is ActivationFunctionType.RELU
    feed = [np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 2, np.float32)]
    same(schema_scripts.outcome(ours, data, feed), call_in_litert(f"{SCRIPTS}:outcome", data, feed))


def test_a_code_beyond_the_old_field_and_options_of_the_second_union_are_read():
    data = call_in_litert(f"{SCRIPTS}:padding")
    (operator,) = read_model(data).subgraphs[0].operators
    assert operator.opcode is BuiltinOperator.STABLEHLO_PAD
    assert operator.options["interior_padding"] == (0, 1)
    feed = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array(9, np.float32)]
    same(schema_scripts.outcome(ours, data, feed), call_in_litert(f"{SCRIPTS}:outcome", data, feed))


def test_weights_behind_the_flatbuffer_are_read_where_the_file_says():
    data = call_in_litert(f"{SCRIPTS}:behind", WEIGHTS.tobytes())
    feed = [np.array([1, 10, 100], np.float32)]
    found = schema_scripts.outcome(ours, data, feed)
    assert found[0].tolist() == [2, 30, 400]
    same(found, call_in_litert(f"{SCRIPTS}:outcome", data, feed))
    with pytest.raises(ModelFormatError, match=r"model\.buffers\[1\]: 12 bytes at offset 4096"):
        read_model(data[:-1])


def test_custom_options_behind_the_flatbuffer_are_read_where_the_file_says():
    data = call_in_litert(f"{SCRIPTS}:custom_behind", b"long and large")
    (operator,) = read_model(data).subgraphs[0].operators
    assert (operator.custom_code, operator.custom_options) == ("Mine", b"long and large")
    with pytest.raises(ModelFormatError, match=r"operators\[0\]: 14 bytes at offset 4096"):
        read_model(data[:-1])


def weights_outside(folder: Path, group: str = "weights.bin", offset: int = 4, length: int = 12) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(call_in_litert(f"{SCRIPTS}:external", group, offset, length))
    (folder / "weights.bin").write_bytes(b"\0" * 4 + WEIGHTS.tobytes())
    return path


def product_of(interpreter: Interpreter) -> list[float]:
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.array([1, 10, 100], np.float32))
    interpreter.invoke()
    found: list[float] = interpreter.get_tensor(2).tolist()
    return found


def test_weights_in_a_file_beside_the_model_are_used(tmp_path):
    assert product_of(Interpreter(model_path=weights_outside(tmp_path))) == [2, 30, 400]


def test_weights_come_from_a_hook_where_one_is_given(tmp_path):
    asked = []

    def hook(name: str) -> bytes:
        asked.append(name)
        return bytes(4) + (2 * WEIGHTS).tobytes()

    model = load_model(weights_outside(tmp_path), hook)
    assert asked == ["weights.bin"]
    assert np.frombuffer(model.subgraphs[0].tensors[1].data, np.float32).tolist() == [4, 6, 8]


def test_what_the_writer_says_of_other_files_is_read_again(tmp_path):
    model = load_model(weights_outside(tmp_path))
    external = (*model.external, ExternalBuffer(9, "other.bin", 1 << 40, 3, "nibbles"))
    again = read_model(write_model(replace(model, external=external)))
    assert again.external == external
    assert again.subgraphs[0].tensors[1].external_buffer == 7


@pytest.mark.parametrize(
    ("group", "offset", "length", "said"),
    [
        ("../weights.bin", 4, 12, "not a file beside the model"),
        ("/etc/passwd", 0, 12, "not a file beside the model"),
        ("absent.bin", 4, 12, "cannot be read"),
        ("", 4, 12, "not a file beside the model"),
        ("weights.bin", 8, 12, "which has 16"),
        ("weights.bin", 1 << 63, 12, "which has 16"),
        ("weights.bin", 4, 8, "takes 12 bytes"),
    ],
)
def test_weights_that_are_not_there_are_refused(tmp_path, group, offset, length, said):
    with pytest.raises(ModelFormatError, match=said):
        load_model(weights_outside(tmp_path, group, offset, length))


def test_a_model_without_its_weights_is_read_and_not_run(tmp_path):
    data = weights_outside(tmp_path).read_bytes()
    assert read_model(data).external[0].group == "weights.bin"
    with pytest.raises(ModelError, match=r"'b'.*'weights\.bin'"):
        Interpreter(model_content=data)


def quantised() -> bytes:
    """Tensors with each way to state quantisation, beside an operator that uses none of them."""
    b = Builder()
    x, y = b.input(np.float32, (2,)), b.tensor(np.float32, (2,))
    b.operator(BuiltinOperator.RELU, [x], [y])
    b.constant(np.zeros((4, 3), np.int8), per_channel([0.1, 0.2, 0.3, 0.4]))
    b.constant(np.zeros((2, 3), np.int8), per_channel([0.1, 0.2, 0.3], 1))
    b.tensor(np.uint8, (5,), per_tensor(0.25, 128))
    b.tensor(np.int16, (5,), per_tensor(1 / 32768))
    b.tensor(np.float32, (5,))
    scales = b.constant(np.full((4, 2), 0.5, np.float16))
    blocks = Quantization((), (), blocks=BlockQuantization(scales, -1, 32))
    b.constant(np.zeros((4, 64), np.int8), blocks, type=TensorType.INT4)
    axes = Quantization((), (), blocks=BlockQuantization(scales, -1, 32, (0, 1)))
    b.constant(np.zeros((4, 64), np.int8), axes, type=TensorType.INT4)
    return b.write([y])


def test_every_way_to_state_quantisation_has_litert_s_details():
    expected = call_in_litert(f"{SCRIPTS}:tensor_details", quantised())
    same(schema_scripts.tensor_details(ours, quantised()), expected)
