"""Types that numpy lacks are held as packed integers, raw bits or strings, and read as LiteRT reads them."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api import interpreter as ours
from runtime.api.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support.value import unpacked
from tests.oracle import call_in_litert
from tests.runtime import scripts
from tests.runtime.models import Builder

CONSTANTS = {
    TensorType.INT4: (np.int8, [1, 2, -1, -8, 7]),
    TensorType.UINT4: (np.uint8, [1, 2, 15]),
    TensorType.INT2: (np.int8, [-1, -2, 1, 0, -1]),
    TensorType.FLOAT8_E4M3FN: (np.int8, [56, -64]),
    TensorType.FLOAT8_E5M2: (np.int8, [56, 64, 3]),
    TensorType.STRING: (object, [b"", b"a", "ü".encode()]),
    TensorType.INT64: (np.int64, [1 << 40, -1]),
    TensorType.COMPLEX64: (np.complex64, [1 + 2j]),
}


def beside(tensor_type: TensorType) -> bytes:
    """Build a constant and an input of the type beside an operator that uses neither."""
    dtype, values = CONSTANTS[tensor_type]
    b = Builder()
    x, y = b.input(np.float32, (2,)), b.tensor(np.float32, (2,))
    b.input(dtype, (len(values),), type=tensor_type)
    b.constant(np.array(values, dtype), type=tensor_type)
    b.operator(BuiltinOperator.RELU, [x], [y])
    return b.write([y])


@pytest.mark.parametrize("tensor_type", CONSTANTS, ids=lambda t: t.name)
def test_constants_are_read_as_litert_reads_them(tensor_type):
    found = scripts.read_tensor(ours, beside(tensor_type), 3)
    expected = call_in_litert("tests.runtime.scripts:read_tensor", beside(tensor_type), 3)
    assert found[0] == expected[0]
    assert found[1].dtype == expected[1].dtype
    np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize(
    "tensor_type", [TensorType.INT4, TensorType.UINT4, TensorType.STRING, TensorType.INT64]
)
def test_inputs_are_set_and_refused_as_litert_does(tensor_type):
    dtype, values = CONSTANTS[tensor_type]
    good, bad = np.array(values, dtype), np.zeros(len(values), np.uint16)
    found = scripts.set_and_read(ours, beside(tensor_type), 2, good, bad)
    expected = call_in_litert("tests.runtime.scripts:set_and_read", beside(tensor_type), 2, good, bad)
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1] == expected[1]


def test_strings_may_be_text_or_bytes():
    interpreter = Interpreter(model_content=beside(TensorType.STRING))
    interpreter.allocate_tensors()
    interpreter.set_tensor(2, np.array(["a", "ü", ""]))
    assert interpreter.get_tensor(2).tolist() == [b"a", "ü".encode(), b""]
    with pytest.raises(ValueError, match="int in an array of strings"):
        interpreter.set_tensor(2, np.array([1, b"", b""], object))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 8])
def test_packed_integers_come_lowest_bits_first(size):
    data = bytes([0x21, 0xF8, 0x4E, 0x90])
    signed = unpacked(data, TensorType.INT4, (size,))
    assert signed.tolist() == [1, 2, -8, -1, -2, 4, 0, -7][:size]
    assert unpacked(data, TensorType.UINT4, (size,)).tolist() == [1, 2, 8, 15, 14, 4, 0, 9][:size]
    assert unpacked(data, TensorType.INT2, (size,)).tolist() == [1, 0, -2, 0, 0, -2, -1, -1][:size]
