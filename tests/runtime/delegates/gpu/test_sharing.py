"""Compiled functions hold no shape: resized inputs and other models find them in the device's library."""

import numpy as np
import pytest

from delegate_farm import Interpreter
from runtime.delegates.gpu.alternatives import candidates_of, layout_rules
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.layout.source import function_of
from runtime.delegates.gpu.lowering.spec import Context
from runtime.delegates.gpu.passes import optimise
from runtime.model.schema import ActivationFunctionType as Act
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
from tests.runtime.models import Builder


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
    """Return the functions that a model's layers call if each takes its default."""
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


@pytest.mark.parametrize("taps", [1, 3])
def test_convolutions_with_a_residual_and_without_one_call_the_same_functions(backend, taps):
    def convolutions(adds: bool):
        build, shape = ModelBuilder(), (1, 24, 24, 48)
        filters = build.constant(np.full((48, taps, taps, 48), 0.01, np.float32))
        steps = {"stride_h": 1, "stride_w": 1, "padding": Padding.SAME}
        x = build.input(*shape)
        y = build.op(Op.CONV_2D, [x, filters, build.constant(np.zeros(48, np.float32))], shape, **steps)
        model = build.build(build.op(Op.ADD, [y, x], shape) if adds else y)
        graph = optimise(build_graph(whole(model)), layout_rules())
        assert len(graph.nodes) == 1
        return functions(backend, model)

    assert convolutions(adds=True) == convolutions(adds=False)


def test_a_resized_input_compiles_nothing(tmp_path, forget):
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


class Counting(GpuDelegate):
    """Notes how many partitions it has compiled."""

    compiled = 0

    def compile(self, partition):
        self.compiled += 1
        return super().compile(partition)


def softmax():
    """[-1, 24] → its SOFTMAX."""
    build = Builder()
    x, y = build.input(np.float32, (1, 24), shape_signature=(-1, 24)), build.tensor(np.float32)
    build.operator(Op.SOFTMAX, [x], [y], {"beta": 0.5})
    return build.write([y])


@pytest.mark.parametrize(("kept", "compiled"), [(0, 6), (1, 6), (2, 3), (9, 3)])
def test_plans_of_earlier_batches_are_kept_as_many_as_asked_for(kept, compiled, tmp_path_factory):
    folder = str(tmp_path_factory.getbasetemp() / "batches")
    options = {"tuning": "none", "persistent": "off", "cost_aware_partitioning": False, "kept_plans": kept}
    delegate = Counting({"cache_dir": folder, **options})
    interpreter = Interpreter(model_content=softmax(), experimental_delegates=[delegate])
    for seed, batch in enumerate((1, 4, 8, 1, 4, 8)):
        interpreter.resize_tensor_input(0, (batch, 24))
        interpreter.allocate_tensors()
        assert interpreter.delegation.status == "full"
        value = np.random.default_rng(seed).standard_normal((batch, 24)).astype(np.float32)
        interpreter.set_tensor(0, value)
        interpreter.invoke()
        powers = np.exp(0.5 * value)
        found = interpreter.get_tensor(1)
        np.testing.assert_allclose(found, powers / powers.sum(-1, keepdims=True), rtol=1e-5)
    assert delegate.compiled == compiled
    assert delegate.describe()["schedule"].count("enqueued") == min(kept, 2) + 1
    interpreter.close()
    assert delegate.describe()["schedule"] == "not compiled"


def test_a_plan_that_is_taken_up_again_begins_with_the_first_values_of_its_variables(tmp_path_factory):
    """A recurrent network leaves its state behind, in the plan that is put aside too."""
    random, build = np.random.default_rng(4), Builder()
    x = build.input(np.float32, (1, 3, 5), shape_signature=(1, -1, 5))
    weights = [random.standard_normal(shape).astype(np.float32) for shape in ((7, 5), (7, 7), (7,))]
    state, y = build.tensor(np.float32, (1, 7), is_variable=True), build.tensor(np.float32)
    options = {"fused_activation_function": Act.TANH, "time_major": False}
    operands = [x, *(build.constant(values) for values in weights), state]
    build.operator(Op.UNIDIRECTIONAL_SEQUENCE_RNN, operands, [y], options)
    folder = str(tmp_path_factory.getbasetemp() / "batches")
    kept = {"kept_plans": 1, "cost_aware_partitioning": False, "tuning": "none", "cache_dir": folder}
    plain, delegated = (
        Interpreter(model_content=build.write([y]), experimental_delegates=delegates)
        for delegates in (None, [GpuDelegate(kept)])
    )
    for steps in (3, 2, 3, 2):
        value = random.standard_normal((1, steps, 5)).astype(np.float32)
        outputs = []
        for one in (plain, delegated):
            one.resize_tensor_input(x, (1, steps, 5))
            one.allocate_tensors()
            one.set_tensor(x, value)
            one.invoke()
            one.invoke()
            outputs.append(one.get_tensor(y))
        assert delegated.delegation.status == "full"
        np.testing.assert_allclose(outputs[1], outputs[0], rtol=1e-4, atol=1e-6)
