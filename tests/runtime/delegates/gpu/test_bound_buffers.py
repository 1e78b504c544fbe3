"""Buffers bound to an interpreter's tensors: used by a delegate itself, else copied; stale outputs say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.api.tensor_buffer import TensorBuffer
from runtime.model.graph import Quantization, Signature
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.caller_models import EXPECTED, SHAPE, X, dense, expected, filled, results
from tests.runtime.models import Builder


def quantised() -> bytes:
    """One movement of int8 with a scale: its border tensors are of their own type on a device, too."""
    b = Builder()
    scale = Quantization(scales=(0.5,), zero_points=(3,))
    x, y = b.input(np.int8, (4, 16), scale), b.tensor(np.int8, (4, 16), scale)
    b.operator(Op.REVERSE_V2, [x, b.constant(np.int32([0]))], [y])
    return b.write([y])


def delegate(folder: str, **options: str) -> Any:
    return load_delegate("gpu", {"tuning": "none", "persistent": "off", "cache_dir": folder, **options})


def interpreter(folder: str, model: bytes, **options: str) -> Interpreter:
    return Interpreter(model_content=model, experimental_delegates=[delegate(folder, **options)])


@pytest.mark.parametrize("bound", ["before", "after"])
def test_a_bound_output_is_read_where_it_is_or_once_it_is_copied(bound, folder):
    ours = interpreter(folder, dense())
    x, y = ours.get_input_details()[0]["index"], ours.get_output_details()[0]["index"]
    source, target = (TensorBuffer.create_managed(np.float32, SHAPE) for _ in range(2))
    filled(source)
    if bound == "after":
        ours.allocate_tensors()
    ours.set_buffer_handle(x, source)
    ours.set_buffer_handle(y, target)
    ours.allocate_tensors()
    ours.invoke()
    np.testing.assert_allclose(ours.get_tensor(y), EXPECTED, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(results(target), ours.get_tensor(y))
    ours.set_allow_buffer_handle_output(True)
    filled(source, X * 2)
    ours.invoke()
    with pytest.raises(RuntimeError, match=rf"alone; call ensure_tensor_data_is_readable\({y}\)"):
        ours.get_tensor(y)
    np.testing.assert_allclose(results(target), expected(2 * X), rtol=1e-5, atol=1e-6)
    ours.ensure_tensor_data_is_readable(y)
    np.testing.assert_array_equal(ours.get_tensor(y), results(target))
    ours.set_buffer_handle(x, None)
    ours.set_tensor(x, X)
    ours.invoke()
    np.testing.assert_allclose(results(target), EXPECTED, rtol=1e-5, atol=1e-6)


def test_a_buffer_of_opencl_is_bound(folder):
    gpu = delegate(folder)
    ours = Interpreter(model_content=dense(), experimental_delegates=[gpu])
    ours.allocate_tensors()
    given = cl.Buffer(gpu.opencl_context, cl.mem_flags.READ_WRITE, X.nbytes + 512)
    target = TensorBuffer.create_from_cl_buffer(given, np.float32, SHAPE)
    ours.set_tensor(ours.get_input_details()[0]["index"], X)
    ours.set_buffer_handle(ours.get_output_details()[0]["index"], target)
    ours.invoke()
    np.testing.assert_allclose(results(target), EXPECTED, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("quantization", ["true", "false"], ids=["on the device", "on the CPU"])
def test_a_quantised_tensor_is_bound_in_its_own_type(quantization, folder):
    ours = interpreter(folder, quantised(), enable_quantization=quantization)
    ours.allocate_tensors()
    values = np.arange(64, dtype=np.int8).reshape(4, 16)
    source, target = (TensorBuffer.create_managed(np.int8, (4, 16)) for _ in range(2))
    ours.set_buffer_handle(0, filled(source, values))
    (y,) = (details["index"] for details in ours.get_output_details())
    ours.set_buffer_handle(y, target)
    ours.invoke()
    assert ours.delegation is not None
    assert ours.delegation.delegated_ops == (quantization == "true")
    np.testing.assert_array_equal(target.read(64, np.int8).reshape(4, 16), values[::-1])
    np.testing.assert_array_equal(ours.get_tensor(y), values[::-1])


@pytest.mark.parametrize("quantization", ["true", "false"])
def test_a_quantised_tensor_takes_a_buffer_of_real_numbers(quantization, folder):
    """Real numbers are rounded to the levels, ties away from zero, and clamped; they come out as levels."""
    ours = interpreter(folder, quantised(), enable_quantization=quantization)
    ours.allocate_tensors()
    values = np.linspace(-80, 80, 64, dtype=np.float32).reshape(4, 16)
    values[0, :3] = (0.25, -0.25, 3.75)
    levels = np.clip(np.trunc(values / 0.5 + np.copysign(0.5, values)) + 3, -128, 127)
    source, target = (TensorBuffer.create_managed(np.float32, (4, 16)) for _ in range(2))
    ours.set_buffer_handle(0, filled(source, values))
    (y,) = (details["index"] for details in ours.get_output_details())
    ours.set_buffer_handle(y, target)
    for leaves in (False, True):
        ours.set_allow_buffer_handle_output(leaves)
        ours.invoke()
        found = target.read(64, np.float32).reshape(4, 16)
        np.testing.assert_array_equal(found, (levels[::-1] - 3) * np.float32(0.5))
    ours.ensure_tensor_data_is_readable(y)
    np.testing.assert_array_equal(ours.get_tensor(y), levels[::-1].astype(np.int8))
    ours.set_buffer_handle(0, None)
    ours.set_tensor(0, np.full((4, 16), 7, np.int8))
    ours.invoke()
    np.testing.assert_array_equal(target.read(64, np.float32), 2.0)


def test_a_refused_buffer_leaves_an_output_in_the_buffer_that_it_has(folder):
    ours = interpreter(folder, dense())
    ours.allocate_tensors()
    y, target = ours.get_output_details()[0]["index"], TensorBuffer.create_managed(np.float32, SHAPE)
    ours.set_tensor(0, X)
    ours.set_buffer_handle(y, target)
    ours.set_allow_buffer_handle_output(True)
    ours.invoke()
    with pytest.raises(RuntimeError, match="its buffer holds int32"):
        ours.set_buffer_handle(y, TensorBuffer.create_managed(np.int32, SHAPE))
    with pytest.raises(RuntimeError, match=rf"alone; call ensure_tensor_data_is_readable\({y}\)"):
        ours.get_tensor(y)
    ours.ensure_tensor_data_is_readable(y)
    np.testing.assert_array_equal(ours.get_tensor(y), results(target))


def left_in(target: TensorBuffer, folder: str) -> tuple[Interpreter, int]:
    """Return an interpreter that has left EXPECTED in the buffer and something else in its own memory."""
    ours = interpreter(folder, dense())
    ours.allocate_tensors()
    y = ours.get_output_details()[0]["index"]
    ours.set_tensor(0, 2 * X)
    ours.invoke()
    ours.set_tensor(0, X)
    ours.set_buffer_handle(y, target)
    ours.set_allow_buffer_handle_output(True)
    ours.invoke()
    return ours, y


@pytest.mark.parametrize("replaced", [False, True], ids=["taken away", "replaced"])
def test_an_output_stays_in_the_buffer_in_which_a_run_has_left_it(replaced, folder):
    target = TensorBuffer.create_managed(np.float32, SHAPE)
    ours, y = left_in(target, folder)
    ours.set_buffer_handle(y, TensorBuffer.create_managed(np.float32, SHAPE) if replaced else None)
    with pytest.raises(RuntimeError, match=rf"call ensure_tensor_data_is_readable\({y}\)"):
        ours.get_tensor(y)
    ours.ensure_tensor_data_is_readable(y)
    np.testing.assert_array_equal(ours.get_tensor(y), results(target))
    np.testing.assert_allclose(ours.get_tensor(y), EXPECTED, rtol=1e-5, atol=1e-6)


def test_an_output_whose_buffer_is_destroyed_is_gone_until_the_next_run(folder):
    target = TensorBuffer.create_managed(np.float32, SHAPE)
    ours, y = left_in(target, folder)
    ours.set_buffer_handle(y, None)
    target.destroy()
    for _ in range(2):
        with pytest.raises(
            RuntimeError, match="its buffer is destroyed; set another one, or None, and call inv"
        ):
            ours.ensure_tensor_data_is_readable(y)
        with pytest.raises(RuntimeError, match="alone"):
            ours.get_tensor(y)
    ours.invoke()
    np.testing.assert_allclose(ours.get_tensor(y), EXPECTED, rtol=1e-5, atol=1e-6)


def test_an_output_of_another_shape_is_not_read_from_the_buffer_of_an_earlier_run(folder):
    target = TensorBuffer.create_managed(np.float32, SHAPE)
    ours, y = left_in(target, folder)
    ours.resize_tensor_input(0, (4, 48))
    ours.allocate_tensors()
    with pytest.raises(RuntimeError, match=r"is \(4, 48\), and was left in a buffer as \(8, 48\)"):
        ours.ensure_tensor_data_is_readable(y)
    with pytest.raises(RuntimeError, match="alone"):
        ours.get_tensor(y)
    ours.set_tensor(0, X[:4])
    ours.invoke()
    ours.ensure_tensor_data_is_readable(y)
    np.testing.assert_allclose(ours.get_tensor(y), EXPECTED[:4], rtol=1e-5, atol=1e-6)


def test_a_signature_returns_its_own_outputs_though_invoke_has_left_one_in_a_buffer(folder):
    ours, y = left_in(TensorBuffer.create_managed(np.float32, SHAPE), folder)
    signature = Signature("serve", 0, (("x", 0),), (("y", y),))
    found = ours._run_signature(signature, {"x": 2 * X})["y"]
    np.testing.assert_allclose(found, expected(2 * X), rtol=1e-5, atol=1e-6)


def test_levels_are_read_from_a_buffer_of_real_numbers_also_when_planned_again(folder):
    ours = interpreter(folder, quantised())
    ours.allocate_tensors()
    (y,) = (details["index"] for details in ours.get_output_details())
    values = np.arange(64, dtype=np.int8).reshape(4, 16)
    ours.set_tensor(0, values)
    ours.set_buffer_handle(y, TensorBuffer.create_managed(np.float32, (4, 16)))
    ours.set_allow_buffer_handle_output(True)
    ours.invoke()
    for rows in (2, 4):
        ours.resize_tensor_input(0, (rows, 16))
        ours.allocate_tensors()
    ours.ensure_tensor_data_is_readable(y)
    np.testing.assert_array_equal(ours.get_tensor(y), values[::-1])


def test_what_cannot_be_bound_is_refused():
    ours = Interpreter(model_content=dense())
    y = ours.get_output_details()[0]["index"]
    for index, buffer, text in (
        (1, TensorBuffer.create_managed(np.float32, (48, 48)), "neither an input nor an output"),
        (y, TensorBuffer.create_managed(np.int32, SHAPE), "is float32, and its buffer holds int32"),
        (y, TensorBuffer.create_managed(np.float32, (8, 47)), "takes 1536 bytes, and its buffer has 1504"),
    ):
        with pytest.raises(RuntimeError, match=text):
            ours.set_buffer_handle(index, buffer)
    ours.allocate_tensors()
    ours.set_tensor(0, X)
    ours.invoke()
    np.testing.assert_allclose(ours.get_tensor(y), EXPECTED, rtol=1e-5, atol=1e-6)
