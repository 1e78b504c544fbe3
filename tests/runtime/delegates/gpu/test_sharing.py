"""Compiled functions hold no shape: resized inputs and other models find them in the device's library."""

import numpy as np
import pytest

from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.compiled import candidates_of, layout_rules
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.lowering.spec import Context
from runtime.delegates.gpu.passes import optimise
from runtime.delegates.gpu.source import function_of
from runtime.model.schema import ActivationFunctionType as Act
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from tests.runtime.delegates.gpu.models import ModelBuilder, whole


def network(batch: int, size: int, channels: int, activation: Act = Act.RELU6):
    """[batch, size, size, channels] → [batch, 10] through most kinds of kernels; all weights are 0.01."""
    build = ModelBuilder()
    steps = {"stride_h": 1, "stride_w": 1, "padding": Padding.SAME, "fused_activation_function": activation}

    def weights(*shape: int) -> int:
        return build.constant(np.full(shape, 0.01, np.float32))

    def convolution(x: int, inputs: int, outputs: int, taps: int) -> int:
        operands = [x, weights(outputs, taps, taps, inputs), weights(outputs)]
        return build.op(Op.CONV_2D, operands, (batch, size, size, outputs), **steps)

    x = convolution(build.input(batch, size, size, channels), channels, 48, 1)
    y = build.op(
        Op.DEPTHWISE_CONV_2D, [x, weights(1, 3, 3, 48), weights(48)], (batch, size, size, 48), **steps
    )
    x = build.op(Op.ADD, [x, y], (batch, size, size, 48))
    x = convolution(x, 48, 48, 5)
    x = build.op(Op.TRANSPOSE, [x, build.constant(np.int32([0, 2, 1, 3]))], (batch, size, size, 48))
    half = (batch, size // 2, size // 2, 48)
    window = {**steps, "stride_h": 2, "stride_w": 2, "filter_height": 2, "filter_width": 2}
    x = build.op(Op.MAX_POOL_2D, [x], half, **window)
    x = build.op(
        Op.MUL, [x, build.op(Op.MEAN, [x, build.constant(np.int32([1, 2]))], (batch, 1, 1, 12))], half
    )
    x = build.op(Op.RESIZE_BILINEAR, [x, build.constant(np.int32([size, size]))], (batch, size, size, 48))
    x = build.op(Op.MEAN, [x, build.constant(np.int32([1, 2]))], (batch, 48))
    x = build.op(Op.FULLY_CONNECTED, [x, weights(10, 48), weights(10)], (batch, 10))
    return build.build(build.op(Op.SOFTMAX, [x], (batch, 10), beta=1.0))


def functions(backend, model):
    """The functions that a model's layers call where each takes its default."""
    graph = optimise(build_graph(whole(model)), layout_rules())
    context = Context(graph, backend.capabilities)
    candidates = [candidates_of(node, context)[0] for node in graph.nodes]
    return {function_of(launch) for candidate in candidates for launch in candidate.launches}


@pytest.mark.parametrize(
    ("size", "channels", "activation"),
    [(48, 16, Act.RELU6), (64, 16, Act.RELU6), (32, 40, Act.NONE), (40, 17, Act.RELU)],
)
def test_layers_of_other_sizes_channels_and_bounds_call_the_same_functions(
    backend, size, channels, activation
):
    known = functions(backend, network(4, 32, 16))
    assert len(known) >= 10
    assert functions(backend, network(4, size, channels, activation)) == known


def test_a_resized_input_compiles_nothing(tmp_path):
    """The library's files are the same behind the second shape, whose result is right."""
    held = []
    for shape in ((1, 8, 6, 20), (3, 12, 10, 5)):
        build = ModelBuilder()
        y = build.op(Op.SOFTMAX, [build.input(*shape)], shape, beta=0.5)
        model = build.build(build.op(Op.TANH, [y], shape))
        graph = GpuDelegate({"cache_dir": str(tmp_path), "tuning": "none"}).compile(whole(model))
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        found = np.empty(shape, np.float32)
        graph.invoke([x], [found])
        graph.close()
        powers = np.exp(x * 0.5)
        np.testing.assert_allclose(found, np.tanh(powers / powers.sum(-1, keepdims=True)), rtol=1e-5)
        held.append({path.name for path in (tmp_path / "kernels").iterdir()})
    assert held[0] == held[1]
    assert held[0]
