"""Hybrid kernels: float activations with quantised filters, and float16 weights.

LiteRT quantises the activations when they arrive; the sums are integers, so only the order of the last float
operations may differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.graph.weights import stored
from runtime.delegates.gpu.settings.precision import Findings
from runtime.model.graph import BlockQuantization, Model, Quantization
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model
from runtime.ops.support.value import constant_array
from tests.oracle import run_litert
from tests.runtime.delegates.gpu.test_integer_path import opened, opened_for_bytes
from tests.runtime.models import Arg, Builder, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, constant, ours, random
from tests.runtime.ops.families import Family
from tests.runtime.ops.matmul.test_conv import NONE, RELU, SAME, VALID, options


def weights(*shape: int, axis: int = 0, channels: bool = True, narrow: bool = False) -> Arg:
    rng = np.random.default_rng(sum(shape))
    high = 7 if narrow else 127
    scales = rng.uniform(0.001, 0.01, shape[axis] if channels else 1).astype(np.float32)
    quantization = Quantization(tuple(map(float, scales)), (0,) * len(scales), axis)
    values = rng.integers(-high, high, shape, endpoint=True).astype(np.int8)
    return Arg(values, quantization, constant=True, type=TensorType.INT4 if narrow else None)


def dense(name: str, w: Arg, asymmetric: bool, version: int, **more: Any) -> Case:
    x, bias = random(4, w.value.shape[1], seed=3), constant(random(w.value.shape[0], seed=4))
    given = {"fused_activation_function": NONE, "asymmetric_quantize_inputs": asymmetric} | more
    return case(name, BuiltinOperator.FULLY_CONNECTED, [x, w, bias], options=given, version=version)


def conv(name: str, x: tuple[int, ...], w: Arg, version: int = 5, **more: Any) -> Case:
    bias = constant(random(w.value.shape[0], seed=4))
    return case(
        name, BuiltinOperator.CONV_2D, [random(*x), w, bias], options=options(**more), version=version
    )


def depthwise(name: str, x: tuple[int, ...], w: Arg, **more: Any) -> Case:
    bias = constant(random(w.value.shape[3], seed=4))
    given = options(**more) | {"depth_multiplier": w.value.shape[3] // x[3]}
    args = [random(*x), w, bias]
    return case(name, BuiltinOperator.DEPTHWISE_CONV_2D, args, options=given, version=6)


def matmul(name: str, z: Arg, asymmetric: bool, adj_y: bool) -> Case:
    given = {"adj_x": False, "adj_y": adj_y, "asymmetric_quantize_inputs": asymmetric}
    args = [random(2, 3, 20, seed=3), z]
    return case(name, BuiltinOperator.BATCH_MATMUL, args, options=given, version=4)


def cases() -> Iterator[Case]:
    for asymmetric in (False, True):
        kind = "asymmetric" if asymmetric else "symmetric"
        yield dense(f"dense_{kind}", weights(9, 33, channels=False), asymmetric, 9)
        yield dense(f"dense_{kind}_deep", weights(5, 2000, channels=False), asymmetric, 9)
        yield dense(f"dense_{kind}_channels", weights(9, 32), asymmetric, 12, fused_activation_function=RELU)
        yield dense(f"dense_{kind}_int4", weights(8, 32, channels=False, narrow=True), asymmetric, 9)
        flat = Arg(weights(2, 20, 6).value, per_tensor(0.01), constant=True)
        yield matmul(f"matmul_{kind}", flat, asymmetric, False)
        turned = Arg(weights(2, 6, 20).value, per_tensor(0.01), constant=True)
        yield matmul(f"matmul_{kind}_adjoint", turned, asymmetric, True)
    yield conv("conv_same", (2, 7, 8, 5), weights(6, 3, 3, 5))
    yield conv("conv_valid_stride2_relu", (1, 9, 9, 4), weights(3, 3, 3, 4), padding=VALID, stride=(2, 2),
               activation=RELU)  # fmt: skip
    yield conv("conv_one_scale", (2, 6, 5, 8), weights(4, 3, 3, 8, channels=False))
    yield conv("conv_pointwise", (1, 6, 5, 40), weights(9, 1, 1, 40))
    yield conv("conv_wide", (2, 7, 8, 21), weights(37, 3, 3, 21))
    yield conv("conv_wide_dilated", (1, 9, 9, 16), weights(40, 3, 3, 16, channels=False), dilation=(2, 2))
    yield conv("conv_wide_int4", (1, 6, 5, 28), weights(50, 3, 3, 28, narrow=True), stride=(2, 1))
    yield conv("conv_wide_pointwise", (1, 40, 30, 64), weights(50, 1, 1, 64), activation=RELU)
    yield depthwise("depthwise_same", (2, 7, 8, 5), weights(1, 3, 3, 5, axis=3))
    yield depthwise("depthwise_multiplier", (1, 7, 8, 3), weights(1, 3, 3, 6, axis=3), padding=SAME)


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_hybrid_kernels_match_litert(case):
    check(case, CPU)


@pytest.fixture(scope="module")
def on_gpu(gpu) -> Family:
    return Family(gpu.delegate, [(case.model, case.inputs) for case in cases()])


def with_real_weights(model: bytes) -> bytes:
    """Return the model with float32 weights of the same numbers."""
    read = read_model(model)
    (graph,) = read.subgraphs
    place = graph.operators[0].inputs[1]
    weights = graph.tensors[place]
    real = stored(weights, constant_array(weights)).widened()
    wide = replace(weights, type=TensorType.FLOAT32, quantization=None, data=memoryview(real.tobytes()))
    tensors = (*graph.tensors[:place], wide, *graph.tensors[place + 1 :])
    return write_model(Model(3, "real", (replace(graph, tensors=tensors),)))


@pytest.mark.parametrize("number", range(len(list(cases()))))
def test_the_gpu_widens_the_weights_and_leaves_the_activations(number, on_gpu):
    """Nothing is lost but the rounding of sums; LiteRT's kernels round the activations to levels besides."""
    case = list(cases())[number]
    (found,) = on_gpu.outputs(number)
    exact = ours(with_real_weights(case.model), *case.inputs)
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())
    (peer,) = run_litert(case.model, case.inputs)
    assert np.linalg.norm(found - peer) <= 2e-2 * np.linalg.norm(peer)


ROWS_STAY_FLOATS = re.compile("matmul|depthwise|conv_(same|valid_stride2_relu|one_scale)")
"""Names of cases whose activations stay floats on the delegate: of other operators, of few channels."""


def checked_rows(delegate: Any, blocks: tuple[int, ...], given: list[Case]) -> None:
    """Compare what the delegate quantises with the CPU path, which does as LiteRT's reference kernels do."""
    members = [(each.model, each.inputs) for each in given]
    for block in blocks:
        x = np.random.default_rng(block).uniform(-2, 3, (3, 192)).astype(np.float32)
        members.append((blockwise(50, 192, block)[0], (x,)))
    family = Family(delegate, members)
    for place, (model, inputs) in enumerate(members):
        found = family.outputs(place)
        assert found is not None, "not taken whole"
        expected = ours(model, *inputs)
        assert np.linalg.norm(found[0] - expected) <= 1e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_the_gpu_quantises_rows_where_it_multiplies_bytes(threads, tmp_path_factory):
    given = [each for each in cases() if not ROWS_STAY_FLOATS.match(each.name)]
    checked_rows(opened_for_bytes(tmp_path_factory, threads=threads), (8, 32, 64), given)


def test_rows_without_the_instruction_have_the_same_numbers(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(GpuDelegate, "_probe", lambda self: Findings())
    given = [each for each in cases() if each.name in ("conv_wide", "dense_asymmetric_int4")]
    checked_rows(opened(tmp_path_factory), (32,), given)


def test_rows_of_special_numbers(tmp_path_factory):
    """Rows of zeros, of denormal numbers and of infinities, of which the others of a product see nothing."""
    model = dense("special", weights(20, 64), True, 12).model
    x = np.random.default_rng(0).uniform(-1, 1, (4, 64)).astype(np.float32)
    x[0], x[1], x[2, 5] = 0, 1e-41, np.inf
    (found,) = Family(opened_for_bytes(tmp_path_factory), [(model, (x,))]).outputs(0) or ()
    expected = ours(model, x)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_allclose(found[[0, 1, 3]], expected[[0, 1, 3]], rtol=1e-5, atol=1e-5)


def test_sums_beyond_32_bits_are_of_floats(tmp_path_factory):
    """Levels of 255 by weights of -128: with so many of them a sum of integers would leave 32 bits."""
    depth = 66_000
    levels = np.full((16, depth), -128, np.int8)
    case = dense("long", Arg(levels, per_tensor(0.01), constant=True), True, 9)
    x = np.ones((4, depth), np.float32)
    (found,) = Family(opened(tmp_path_factory), [(case.model, (x,))]).outputs(0) or ()
    # So many float32 terms, added one by one, are off by so much; a wrapped sum would be by far more.
    np.testing.assert_allclose(found, ours(case.model, x), rtol=2e-3)


def test_weights_in_blocks_stay_compressed(tmp_path_factory):
    model, _, _ = blockwise(64, 1024, 32)
    delegate = opened_for_bytes(tmp_path_factory)
    interpreter = Interpreter(model_content=model, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert delegate.describe()["integer_path"] == "yes"
    # Half a byte each, and two bytes for each block of 32.
    assert delegate.describe()["narrow_weights"] == f"I4 {64 * 1024 // 2 + 64 * 1024 // 32 * 2}"


def blockwise(out_size: int, in_size: int, block: int) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Build a layer of int4 weights with float16 scales [out, in / block]; also the dequantised weights and
    the bias.
    """
    rng = np.random.default_rng(block)
    levels = rng.integers(-7, 7, (out_size, in_size), endpoint=True).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, (out_size, in_size // block)).astype(np.float16)
    bias = rng.uniform(-1, 1, out_size).astype(np.float32)
    builder = Builder()
    x = builder.input(np.float32, (3, in_size))
    kept = builder.constant(scales)
    quantization = Quantization((), (), blocks=BlockQuantization(kept, -1, block))
    w = builder.constant(levels, quantization, type=TensorType.INT4)
    b = builder.constant(bias)
    y = builder.tensor(np.float32, (3, out_size))
    given = {"fused_activation_function": NONE, "asymmetric_quantize_inputs": True}
    builder.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, b], [y], given, 13)
    real = levels.astype(np.float64) * np.repeat(scales.astype(np.float64), block, axis=1)
    return builder.write([y]), real, bias


@pytest.mark.parametrize("block", [32, 64])
def test_blockwise_layers_follow_their_formula(block):
    """LiteRT's reference kernel ends the process on such a model, so the formula is written out here."""
    model, real, bias = blockwise(6, 128, block)
    x = np.random.default_rng(0).uniform(-2, 3, (3, 128)).astype(np.float32)
    low, high = np.minimum(x.min(axis=1), 0), np.maximum(x.max(axis=1), 0)
    scale = ((high.astype(np.float64) - low) / 255)[:, None]
    from_low, from_high = -128 - low[:, None] / scale, 127 - high[:, None] / scale
    nearer = 128 + np.abs(low[:, None] / scale) < 127 + np.abs(high[:, None] / scale)
    zero = np.round(np.where(nearer, from_low, from_high))
    levels = np.clip(np.round(zero + x / scale), -128, 127) - zero
    expected = scale * (levels @ real.T) + bias
    np.testing.assert_allclose(ours(model, x), expected, rtol=1e-4, atol=1e-4)


def test_blockwise_layers_are_close_to_xnnpack():
    model, real, bias = blockwise(6, 128, 32)
    x = np.random.default_rng(0).uniform(-2, 3, (3, 128)).astype(np.float32)
    (peer,) = run_litert(model, [x], "BUILTIN")
    exact = x.astype(np.float64) @ real.T + bias
    assert np.abs(ours(model, x) - exact).max() <= 1.5 * np.abs(peer - exact).max()


def test_float16_weights_run_without_a_delegate():
    rng = np.random.default_rng(0)
    builder = Builder()
    x = builder.input(np.float32, (1, 8, 8, 3))
    halves = [
        builder.constant(rng.uniform(-1, 1, shape).astype(np.float16))
        for shape in ((4, 3, 3, 3), (4,), (5, 256), (5,))
    ]
    widened = [builder.tensor(np.float32, builder.tensors[i].shape) for i in halves]
    for half, wide in zip(halves, widened, strict=True):
        builder.operator(BuiltinOperator.DEQUANTIZE, [half], [wide], version=3)
    image, y = builder.tensor(np.float32), builder.tensor(np.float32)
    builder.operator(BuiltinOperator.CONV_2D, [x, *widened[:2]], [image], options(activation=RELU))
    given = {"fused_activation_function": NONE}
    builder.operator(BuiltinOperator.FULLY_CONNECTED, [image, *widened[2:]], [y], given)
    model = builder.write([y])
    value = rng.uniform(-1, 1, (1, 8, 8, 3)).astype(np.float32)
    np.testing.assert_allclose(ours(model, value), run_litert(model, [value])[0], rtol=1e-5, atol=1e-4)
