"""Our `Interpreter` and LiteRT's run the same scripts and give the same answers."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from runtime.api import interpreter as ours
from runtime.api.interpreter import Interpreter
from runtime.errors import ModelError, ShapeError, UnsupportedOperatorError
from runtime.model.graph import Signature
from runtime.model.reader import read_model
from runtime.model.schema import ActivationFunctionType, BuiltinOperator, Padding
from tests.oracle import call_in_litert
from tests.runtime import scripts
from tests.runtime.models import Builder, per_channel, per_tensor

RELU = {"fused_activation_function": ActivationFunctionType.RELU}


def small_net(signatures: bool = True, batch_unknown: bool = True) -> bytes:
    """Two inputs, two outputs, a per-channel tensor, a signature whose order is not the graph's."""
    b = Builder()
    signature = {"shape_signature": (-1, 6, 6, 3)} if batch_unknown else {}
    x = b.tensor(np.float32, (1, 6, 6, 3), name="image", **signature)
    s = b.tensor(np.float32, (1, 1, 1, 4), name="scale")
    b.inputs += [x, s]
    rng = np.random.default_rng(0)
    w = b.constant(rng.standard_normal((4, 3, 3, 3)).astype(np.float32))
    bias = b.constant(rng.standard_normal(4).astype(np.float32))
    y = b.tensor(np.float32, (1, 6, 6, 4))
    stride = {"stride_w": 1, "stride_h": 1, "padding": Padding.SAME, **RELU}
    b.operator(BuiltinOperator.CONV_2D, [x, w, bias], [y], stride)
    scaled = b.tensor(np.float32, (1, 6, 6, 4), name="scaled")
    b.operator(BuiltinOperator.MUL, [y, s], [scaled])
    mean = b.tensor(np.float32, (1, 4), name="mean")
    axes = b.constant(np.array([1, 2], np.int32))
    b.operator(BuiltinOperator.MEAN, [scaled, axes], [mean])
    b.constant(np.zeros((3, 2), np.int8), per_channel([0.1, 0.2, 0.3]))
    pairs = (("zoom", s), ("image", x)), (("mean", mean), ("all", scaled))
    return b.write([scaled, mean], [Signature("serve", 0, *pairs)] if signatures else [])


def quantised_net() -> bytes:
    b = Builder()
    x = b.input(np.int8, (1, 4), per_tensor(0.1, -3))
    y = b.tensor(np.int8, (1, 4), per_tensor(0.2, 5))
    b.operator(BuiltinOperator.RELU, [x], [y], version=2)
    return b.write([y])


def same(found: Any, expected: Any) -> None:
    """Equal in structure, type and value; arrays in dtype and shape too."""
    if isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray)
        assert found.dtype == expected.dtype
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
    else:
        assert found == expected


def compare(script: str, *args: Any) -> None:
    expected = call_in_litert(f"tests.runtime.scripts:{script}", *args)
    same(getattr(scripts, script)(ours, *args), expected)


@pytest.mark.parametrize("shape", [None, (3, 6, 6, 3)], ids=str)
def test_details_have_the_same_keys_and_values(shape):
    compare("details", small_net(), shape)


def test_details_of_a_quantised_model_are_those_of_litert():
    compare("details", quantised_net(), None)


def test_signature_details_are_those_of_litert():
    compare("signature_details", small_net())


def test_signature_runner_resizes_to_its_arrays():
    rng = np.random.default_rng(1)
    values = {
        "image": rng.standard_normal((2, 6, 6, 3)).astype(np.float32),
        "zoom": rng.standard_normal((1, 1, 1, 4)).astype(np.float32),
    }
    compare("run_signature", small_net(), values)


def test_views_read_write_and_block():
    compare("run_by_views", one_input(), np.float32(0.5))


def one_input() -> bytes:
    b = Builder()
    x = b.input(np.float32, (1, 4, 3))
    y = b.tensor(np.float32, (1, 4, 3))
    b.operator(BuiltinOperator.ADD, [x, b.constant(np.ones(3, np.float32))], [y])
    return b.write([y])


def test_errors_are_of_the_same_kind_and_text():
    expected = call_in_litert("tests.runtime.scripts:errors", one_input())
    found = scripts.errors(ours, one_input())
    assert found == expected


def test_signature_runner_names_what_is_wrong():
    runner = Interpreter(model_content=small_net()).get_signature_runner("serve")
    with pytest.raises(ValueError, match="expected 2 vs provided 1"):
        runner(image=np.zeros((1, 6, 6, 3), np.float32))
    with pytest.raises(ValueError, match=r"Invalid Input name \(picture\)"):
        runner(picture=np.zeros(1, np.float32), zoom=np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="Got value of type FLOAT64 but expected type FLOAT32"):
        runner(image=np.zeros((1, 6, 6, 3)), zoom=np.zeros((1, 1, 1, 4)))


def loaded(model: bytes, **options: Any) -> Interpreter:
    interpreter = Interpreter(model_content=model, **options)
    interpreter.allocate_tensors()
    return interpreter


def test_inputs_survive_an_invocation():
    interpreter = loaded(one_input())
    value = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    interpreter.set_tensor(0, value)
    for _ in range(2):
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.get_tensor(1), value + 1)
    np.testing.assert_array_equal(interpreter.get_tensor(0), value)


def test_get_tensor_is_a_copy():
    interpreter = loaded(one_input())
    interpreter.get_tensor(1).fill(7)
    interpreter.invoke()
    assert interpreter.get_tensor(1).max() == 1


def test_intermediates_are_kept_on_request():
    interpreter = loaded(small_net(), experimental_preserve_all_tensors=True)
    rng = np.random.default_rng(3)
    image = rng.standard_normal((1, 6, 6, 3)).astype(np.float32)
    scale = rng.standard_normal((1, 1, 1, 4)).astype(np.float32)
    interpreter.set_tensor(0, image)
    interpreter.set_tensor(1, scale)
    interpreter.invoke()
    by_name = {d["name"]: d["index"] for d in interpreter.get_tensor_details()}
    conv = interpreter.get_tensor(by_name["t4"])
    np.testing.assert_allclose(interpreter.get_tensor(by_name["scaled"]), conv * scale, rtol=1e-6)


def test_intermediates_share_memory_otherwise():
    def total(preserve: bool) -> int:
        b = Builder()
        value = b.input(np.float32, (1, 1000))
        for _ in range(10):
            made = b.tensor(np.float32, (1, 1000))
            b.operator(BuiltinOperator.EXP, [value], [made])
            value = made
        interpreter = loaded(b.write([value]), experimental_preserve_all_tensors=preserve)
        execution = interpreter._primary.execution
        assert execution is not None
        arrays = execution.arrays.values()
        starts = [a.__array_interface__["data"][0] for a in arrays]
        return max(starts) - min(starts) + 4000

    assert total(preserve=False) < 5 * 4096 <= 11 * 4000 <= total(preserve=True)


def test_a_failed_resize_leaves_the_interpreter_usable():
    interpreter = loaded(small_net())
    interpreter.resize_tensor_input(0, (1, 6, 6, 5))
    with pytest.raises(ShapeError, match="operator 0 CONV_2D: 5 input channels"):
        interpreter.allocate_tensors()
    interpreter.resize_tensor_input(0, (1, 6, 6, 3))
    interpreter.allocate_tensors()
    interpreter.invoke()


def test_strict_resize_takes_unknown_dimensions_only():
    interpreter = Interpreter(model_content=small_net())
    interpreter.resize_tensor_input(0, (4, 6, 6, 3), strict=True)
    interpreter.allocate_tensors()
    assert interpreter.get_output_details()[1]["shape"].tolist() == [4, 4]
    with pytest.raises(RuntimeError, match="only allows mutating unknown dimensions"):
        interpreter.resize_tensor_input(0, (4, 7, 6, 3), strict=True)


def test_constants_are_folded_while_planning():
    """SHAPE of a static tensor and what follows from it need no kernel at run time."""
    b = Builder()
    x = b.input(np.float32, (2, 3, 4))
    shape, picked = b.tensor(np.int32, (3,)), b.tensor(np.int32, (2,))
    y = b.tensor(np.float32, (3, 8))
    b.operator(BuiltinOperator.SHAPE, [x], [shape], {"out_type": 2})
    one = [b.constant(np.array([v], np.int32)) for v in (1, 3, 1)]
    b.operator(BuiltinOperator.STRIDED_SLICE, [shape, *one], [picked])
    b.operator(BuiltinOperator.PAD, [x, b.constant(np.zeros((3, 2), np.int32))], [b.tensor(np.float32)])
    scaled = b.tensor(np.int32, (2,))
    factors = b.constant(np.array([1, 2], np.int32))
    b.operator(BuiltinOperator.MUL, [picked, factors], [scaled])
    b.operator(BuiltinOperator.RESHAPE, [x, scaled], [y])
    interpreter = loaded(b.write([y, scaled]))
    interpreter.invoke()
    assert interpreter.get_output_details()[0]["shape"].tolist() == [3, 8]
    assert interpreter.get_tensor(scaled).tolist() == [3, 8]


def test_an_interpreter_frees_its_memory_without_the_garbage_collector():
    """So that one that is dropped between two measurements costs the second nothing."""
    gc.disable()
    try:
        interpreter = loaded(small_net())
        interpreter.invoke()
        memory = weakref.ref(interpreter._primary.array(0))
        del interpreter
        assert memory() is None
    finally:
        gc.enable()


def unknown_operator() -> bytes:
    b = Builder()
    x = b.input(np.float32, (1, 4))
    y, z = b.tensor(np.float32, (1, 4)), b.tensor(np.float32, (1, 4))
    b.operator(BuiltinOperator.RELU, [x], [y])
    b.operator(BuiltinOperator.CUSTOM, [y], [z], version=3, custom_code="MyOwnOperator")
    return b.write([z])


def test_an_unknown_operator_is_named():
    with pytest.raises(UnsupportedOperatorError, match="operator 1 MyOwnOperator version 3") as caught:
        Interpreter(model_content=unknown_operator())
    error = caught.value
    assert (error.operator_name, error.version, error.index) == ("MyOwnOperator", 3, 1)
    assert error.delegation is None
    assert isinstance(error, ValueError)
    assert len(read_model(unknown_operator()).subgraphs[0].operators) == 2


def test_a_newer_version_is_named():
    b = Builder()
    x = b.input(np.float32, (1, 4))
    y = b.tensor(np.float32, (1, 4))
    b.operator(BuiltinOperator.RELU, [x], [y], version=99)
    with pytest.raises(UnsupportedOperatorError, match=r"operator 0 RELU version 99: .* up to 3"):
        Interpreter(model_content=b.write([y]))


def test_a_path_is_opened(tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(one_input())
    interpreter = Interpreter(model_path=path)
    interpreter.allocate_tensors()
    interpreter.invoke()
    with pytest.raises(ModelError, match=r"Could not open .*absent\.tflite"):
        Interpreter(model_path=tmp_path / "absent.tflite")


def test_a_variable_is_reset_to_zero():
    b = Builder()
    x = b.input(np.float32, (3,))
    state = b.tensor(np.float32, (3,), is_variable=True)
    y = b.tensor(np.float32, (3,))
    b.operator(BuiltinOperator.ADD, [x, state], [y])
    interpreter = loaded(b.write([y]))
    interpreter.set_tensor(state, np.array([1, 2, 3], np.float32))
    interpreter.invoke()
    assert interpreter.get_tensor(y).tolist() == [1, 2, 3]
    interpreter.reset_all_variables()
    interpreter.invoke()
    assert interpreter.get_tensor(y).tolist() == [0, 0, 0]


def test_extreme_values_are_values_and_not_warnings():
    b = Builder()
    x = b.input(np.float32, (4,))
    y = b.tensor(np.float32, (4,))
    b.operator(BuiltinOperator.EXP, [x], [y])
    interpreter = loaded(b.write([y]))
    interpreter.set_tensor(0, np.array([1000, -1000, np.nan, np.inf], np.float32))
    interpreter.invoke()
    np.testing.assert_array_equal(interpreter.get_tensor(y), [np.inf, 0, np.nan, np.inf])


def test_a_delegate_by_name_is_refused_with_the_way_to_make_one():
    with pytest.raises(TypeError, match=r"'gpu' is not a delegate; make one with load_delegate\('gpu'\)"):
        Interpreter(model_content=small_net(), experimental_delegates=["gpu"])
