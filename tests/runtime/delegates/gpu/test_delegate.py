"""Small graphs through the whole delegate, against numpy; every schedule gives the same numbers."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.delegates.base import PartitionDelegate
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.model.schema import ActivationFunctionType, Padding
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.writer import write_model
from tests.runtime.delegates.gpu.models import ModelBuilder, facts_of, whole


def run(model, *inputs, **options):
    partition = whole(model)
    compiled = GpuDelegate({"cache_dir": "", **options}).compile(partition)
    outputs = [np.full(partition.shapes[tensor], np.nan, np.float32) for tensor in partition.outputs]
    for _ in range(2):
        compiled.invoke(inputs, outputs)
    compiled.close()
    return outputs


def normal(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def reasons(model, **options):
    delegate = GpuDelegate(options)
    facts = facts_of(model)
    return [delegate.supports(facts, operator) for operator in facts.subgraph.operators]


def test_it_is_a_partition_delegate():
    delegate = GpuDelegate({})
    assert isinstance(delegate, PartitionDelegate)
    assert (delegate.name, delegate.max_delegated_partitions) == ("gpu", 1)


def mixed_model():
    """Unaligned channels, a concatenation of copies and views, a reshape that must copy, a broadcast."""
    build = ModelBuilder()
    x = build.input(1, 3, 6, 5)
    t = build.op(Op.TRANSPOSE, [x, build.constant(np.array([0, 2, 3, 1], np.int32))], (1, 6, 5, 3))
    p = build.op(
        Op.PAD, [t, build.constant(np.array([[0, 0], [1, 2], [0, 1], [1, 4]], np.int32))], (1, 9, 6, 8)
    )
    flat = build.op(Op.RESHAPE, [p], (1, 72, 6))
    options = {"filter_width": 3, "filter_height": 2, "stride_w": 1, "stride_h": 1}
    pooled = build.op(Op.AVERAGE_POOL_2D, [t], (1, 6, 5, 3), padding=Padding.SAME, **options)
    rows = build.op(Op.CONCATENATION, [t, pooled], (1, 12, 5, 3), axis=1)
    columns = build.op(Op.CONCATENATION, [t, pooled], (1, 6, 10, 3), axis=-2)
    channels = build.op(Op.CONCATENATION, [t, pooled, t], (1, 6, 5, 9), axis=3)
    scaled = build.op(Op.DIV, [channels, build.constant(np.float32([[[4]], [[2]]] * 3))], (1, 6, 5, 9))
    return build.build(flat, rows, columns, scaled)


def mixed_reference(x):
    t = x.transpose(0, 2, 3, 1)
    flat = np.pad(t, ((0, 0), (1, 2), (0, 1), (1, 4))).reshape(1, 72, 6)
    total, count = np.zeros_like(t), np.zeros_like(t)
    for dy in range(2):
        for dx in range(-1, 2):
            for y in range(6 - dy):
                for c in range(max(0, -dx), 5 - max(0, dx)):
                    total[0, y, c] += t[0, y + dy, c + dx]
                    count[0, y, c] += 1
    pooled = total / count
    scale = np.float32([4, 2] * 3).reshape(6, 1, 1)
    return (
        flat,
        np.concatenate([t, pooled], 1),
        np.concatenate([t, pooled], 2),
        np.concatenate([t, pooled, t], 3) / scale,
    )


@pytest.mark.parametrize("persistent", ["off", "on", "auto"])
def test_layouts_of_every_kind_match_numpy(persistent):
    x = normal(1, 3, 6, 5)
    found = run(mixed_model(), x, persistent=persistent)
    for actual, expected in zip(found, mixed_reference(x), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_kernels_for_gpus_match_numpy_too(monkeypatch):
    """A device that calls itself a GPU gets a kernel per function, and no host memory of its own."""
    monkeypatch.setattr("runtime.delegates.gpu.backends.opencl.device.is_gpu", lambda device: True)
    x = normal(1, 3, 6, 5)
    for actual, expected in zip(run(mixed_model(), x), mixed_reference(x), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_a_concatenation_that_nobody_reads_costs_nothing_else():
    build = ModelBuilder()
    x = build.input(4, 16)
    halves = [build.op(op, [x], (4, 16)) for op in (Op.NEG, Op.ABS)]
    build.op(Op.CONCATENATION, halves, (4, 32), axis=1)
    data = normal(4, 16)
    negative, magnitude = run(build.build(*(build.op(Op.SQUARE, [y], (4, 16)) for y in halves)), data)
    np.testing.assert_allclose(negative, data * data, rtol=1e-6)
    np.testing.assert_allclose(magnitude, data * data, rtol=1e-6)


def chain_model():
    build = ModelBuilder()
    y = build.input(1, 14, 14, 48)
    options = {"filter_width": 3, "filter_height": 3, "stride_w": 1, "stride_h": 1, "padding": Padding.SAME}
    for i in range(40):
        y = build.op(Op.MAX_POOL_2D if i % 2 else Op.AVERAGE_POOL_2D, [y], (1, 14, 14, 48), **options)
        y = build.op(Op.MUL, [y, build.constant(np.float32(1.01))], (1, 14, 14, 48))
    return build.build(y)


def test_a_long_chain_is_the_same_in_every_schedule():
    model, x = chain_model(), normal(1, 14, 14, 48)
    plain, persistent = (run(model, x, persistent=how)[0] for how in ("off", "on"))
    np.testing.assert_array_equal(plain, persistent)


def test_two_graphs_with_persistent_kernels_run_from_two_threads():
    model, x = chain_model(), normal(1, 14, 14, 48)
    (expected,) = run(model, x, persistent="off")
    graphs = [GpuDelegate({"cache_dir": "", "persistent": "on"}).compile(whole(model)) for _ in range(2)]

    def invoke_often(graph):
        target = np.empty_like(x)
        for _ in range(30):
            graph.invoke([x], [target])
        return target

    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(invoke_often, graphs):
            np.testing.assert_array_equal(found, expected)


def test_softmax_mean_and_resize_match_numpy():
    build = ModelBuilder()
    x = build.input(2, 4, 6, 21)
    soft = build.op(Op.SOFTMAX, [x], (2, 4, 6, 21), beta=0.5)
    axes = build.constant(np.array([1, 2], np.int32))
    mean = build.op(Op.MEAN, [x, axes], (2, 1, 1, 21), keep_dims=True)
    total = build.op(Op.SUM, [x, build.constant(np.array([-2], np.int32))], (2, 4, 21), keep_dims=False)
    highest = build.op(
        Op.REDUCE_MAX, [x, build.constant(np.array([0], np.int32))], (4, 6, 21), keep_dims=False
    )
    size = build.constant(np.array([8, 12], np.int32))
    near = build.op(Op.RESIZE_NEAREST_NEIGHBOR, [x, size], (2, 8, 12, 21), align_corners=False)
    data = normal(2, 4, 6, 21)
    found = run(build.build(soft, mean, total, highest, near), data)
    weights = np.exp(0.5 * (data - data.max(-1, keepdims=True)))
    expected = [
        weights / weights.sum(-1, keepdims=True),
        data.mean((1, 2), keepdims=True),
        data.sum(-2),
        data.max(0),
        data.repeat(2, 1).repeat(2, 2),
    ]
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=2e-6, atol=2e-6)


def test_outputs_that_are_not_contiguous_are_filled():
    build = ModelBuilder()
    x = build.input(1, 2, 2, 16)
    partition = whole(build.build(build.op(Op.NEG, [x], (1, 2, 2, 16))))
    target = np.zeros((1, 2, 2, 32), np.float32)[..., ::2]
    data = normal(1, 2, 2, 16)
    GpuDelegate({"cache_dir": ""}).compile(partition).invoke([data], [target])
    np.testing.assert_array_equal(target, -data)


def test_a_type_that_an_operator_does_not_take_is_refused_with_the_tensor():
    build = ModelBuilder()
    x = build.input(1, 4, dtype=np.int8)
    (reason,) = reasons(build.build(build.op(Op.RELU, [x], (1, 4))))
    assert reason.reason == "tensor 1 't1' is float32, where RELU takes int8 or uint8"


def test_refusals_name_what_is_wrong():
    build = ModelBuilder()
    x = build.input(1, 4, 4, 8)
    outputs = [
        build.op(Op.ADD, [x, x], (1, 4, 4, 8), fused_activation_function=ActivationFunctionType.SIGN_BIT),
        build.op(Op.REVERSE_SEQUENCE, [x], (1, 4, 4, 8)),
    ]
    texts = [reason.reason for reason in reasons(build.build(*outputs))]
    assert texts == [
        "the fused activation SIGN_BIT has no kernel",
        "no OpenCL kernel for this operator",
    ]


@pytest.mark.parametrize(("op", "newest"), [(Op.RELU, 3), (Op.SOFTMAX, 4)])
def test_a_version_that_is_newer_than_the_rules_is_refused_in_the_words_of_litert(op, newest):
    build = ModelBuilder()
    y = build.op(op, [build.input(1, 4)], (1, 4), beta=1.0)
    build.operators[0] = replace(build.operators[0], version=newest)
    assert reasons(build.build(y)) == [None]
    build.operators[0] = replace(build.operators[0], version=newest + 1)
    (reason,) = reasons(build.build(y))
    assert reason.reason == f"Max version supported: {newest}. Requested version {newest + 1}."


def test_a_window_that_reaches_further_than_32_bits_is_refused():
    """Its taps lay inside the image again, and the kernel read far outside its buffers."""
    build = ModelBuilder()
    x, steps = build.input(1, 5, 6, 3), {"stride_w": 1, "stride_h": 1, "padding": Padding.SAME}
    dilated = {**steps, "dilation_w_factor": 1 << 30, "dilation_h_factor": 1}
    weights = build.constant(np.ones((3, 3, 3, 3), np.float32))
    outputs = [
        build.op(Op.CONV_2D, [x, weights], (1, 5, 6, 3), **dilated),
        build.op(Op.MAX_POOL_2D, [x], (1, 5, 6, 3), filter_width=1, filter_height=(1 << 31) - 1, **steps),
    ]
    texts = [reason.reason for reason in reasons(build.build(*outputs))]
    assert texts == [
        "a window with a dilation of 1073741824 has no kernel",
        "so large a window has no kernel",
    ]


@pytest.mark.parametrize("op", [Op.TILE, Op.BROADCAST_TO])
def test_an_operator_that_lacks_an_input_is_refused(op):
    build = ModelBuilder()
    (reason,) = reasons(build.build(build.op(op, [build.input(1, 4)], (1, 4))))
    assert "must be constant" in reason.reason


def test_a_folded_constant_is_supported_and_costs_nothing():
    build = ModelBuilder()
    x = build.input(1, 2, 2, 16)
    half = build.op(Op.DEQUANTIZE, [build.constant(np.full(16, 1.5, np.float16))], (16,))
    model = build.build(build.op(Op.MUL, [x, half], (1, 2, 2, 16)))
    assert reasons(model) == [None, None]
    data = normal(1, 2, 2, 16)
    np.testing.assert_array_equal(run(model, data)[0], data * np.float32(1.5))


def test_the_profile_has_a_row_for_every_kernel_with_its_operators():
    build = ModelBuilder()
    x = build.input(1, 8, 8, 32)
    y = build.op(Op.RELU, [build.op(Op.SOFTMAX, [x], (1, 8, 8, 32), beta=1.0)], (1, 8, 8, 32))
    axes = build.constant(np.array([1, 2], np.int32))
    mean = build.op(Op.MEAN, [y, axes], (1, 32), keep_dims=False)
    compiled = GpuDelegate({"cache_dir": ""}).compile(whole(build.build(mean)))
    data, result = normal(1, 8, 8, 32), np.empty((1, 32), np.float32)
    rows = compiled.profile([data], [result])
    assert [row.operators for row in rows] == [(0, 1), (2,)]
    assert [row.function for row in rows] == ["f32_softmax", "f32_reduce_mean_float32__c16"]
    assert all(row.time_ns > 0 and row.bytes > 0 for row in rows)
    ran = np.empty_like(result)
    compiled.invoke([data], [ran])
    np.testing.assert_array_equal(result, ran)


@pytest.mark.parametrize(
    ("window", "taken"),
    [({}, [0, 1, 2, 3]), ({"first_delegate_node_index": 1, "last_delegate_node_index": 2}, [1, 2])],
)
def test_operators_outside_the_window_stay_on_the_cpu_with_the_reason(window, taken):
    build = ModelBuilder()
    y = build.input(1, 2, 2, 16)
    for _ in range(4):
        y = build.op(Op.SOFTMAX, [y], (1, 2, 2, 16), beta=1.0)
    model = write_model(build.build(y))
    delegate = GpuDelegate({"cache_dir": "", "tuning": "none", **window})
    interpreter = Interpreter(model_content=model, experimental_delegates=[delegate])
    left = {f.index: f.reason for f in interpreter.delegation.fallbacks}
    assert [i for i in range(4) if i not in left] == taken
    if left:
        assert left[3] == "operator 3 is not among those to delegate, 1 to 2"


@pytest.mark.slow
def test_an_interpreter_that_python_s_end_closes_says_nothing(tmp_path):
    """An interpreter in a cycle of references is closed when nothing can be imported any more."""
    model = tmp_path / "model.tflite"
    build = ModelBuilder()
    model.write_bytes(write_model(build.build(build.op(Op.TANH, [build.input(1, 4)], (1, 4)))))
    script = f"""
from runtime.api.interpreter import Interpreter, load_delegate
delegate = load_delegate("gpu", {{"cache_dir": {str(tmp_path)!r}, "cost_aware_partitioning": False}})
kept = Interpreter(model_path={str(model)!r}, experimental_delegates=[delegate])
kept.allocate_tensors()
kept.invoke()
assert kept.delegation.delegated_ops == 1
kept.itself = kept
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert "ignored" not in done.stderr, done.stderr
