"""Small networks with the blocks of real ones: the delegate against numpy kernels, by the interpreter."""

import numpy as np
import pytest

from delegate_farm import Interpreter
from runtime.delegates.gpu.alternatives import candidates_of, layout_rules
from runtime.delegates.gpu.backends.base import recorded
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.layout.memory import Stage
from runtime.delegates.gpu.layout.source import assemble
from runtime.delegates.gpu.lowering.spec import Context
from runtime.delegates.gpu.passes import optimise
from runtime.model.schema import ActivationFunctionType as Act
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from runtime.model.writer import write_model
from runtime.tools.operator_check.matrix import matrix
from runtime.tools.operator_check.rows import model_of
from tests.models.collection import zoo_model
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
from tests.sweeps import rarely


class Network(ModelBuilder):
    """Layers with random weights; every method returns a tensor index."""

    def __init__(self):
        super().__init__()
        self.random = np.random.default_rng(11)

    def shape(self, tensor):
        return self.tensors[tensor].shape

    def weights(self, *shape):
        fan_in = np.prod(shape[1:])
        return self.constant((self.random.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32))

    def conv(self, x, outputs, size=1, stride=1, activation=Act.NONE):
        n, h, w, c = self.shape(x)
        options = {"padding": Padding.SAME, "stride_h": stride, "stride_w": stride}
        parameters = [x, self.weights(outputs, size, size, c), self.weights(outputs)]
        shape = (n, -(-h // stride), -(-w // stride), outputs)
        return self.op(Op.CONV_2D, parameters, shape, fused_activation_function=activation, **options)

    def depthwise(self, x, size=3, stride=1, activation=Act.NONE):
        n, h, w, c = self.shape(x)
        options = {"padding": Padding.SAME, "stride_h": stride, "stride_w": stride, "depth_multiplier": 1}
        shape = (n, -(-h // stride), -(-w // stride), c)
        parameters = [x, self.weights(1, size, size, c), self.weights(c)]
        return self.op(
            Op.DEPTHWISE_CONV_2D, parameters, shape, fused_activation_function=activation, **options
        )

    def binary(self, op, a, b):
        return self.op(op, [a, b], np.broadcast_shapes(self.shape(a), self.shape(b)))

    def unary(self, op, x):
        return self.op(op, [x], self.shape(x))

    def swish(self, x):
        return self.binary(Op.MUL, x, self.unary(Op.LOGISTIC, x))

    def mean(self, x, keep_dims):
        n, _, _, c = self.shape(x)
        axes = self.constant(np.array([1, 2], np.int32))
        return self.op(Op.MEAN, [x, axes], (n, 1, 1, c) if keep_dims else (n, c), keep_dims=keep_dims)

    def pad(self, x, paddings):
        shape = tuple(s + a + b for s, (a, b) in zip(self.shape(x), paddings, strict=True))
        return self.op(Op.PAD, [x, self.constant(np.array(paddings, np.int32))], shape)

    def pool(self, x, size, stride):
        n, h, w, c = self.shape(x)
        options = {"filter_width": size, "filter_height": size, "stride_w": stride, "stride_h": stride}
        return self.op(
            Op.MAX_POOL_2D, [x], (n, -(-h // stride), -(-w // stride), c), padding=Padding.SAME, **options
        )

    def reshape(self, x, shape):
        return self.op(Op.RESHAPE, [x], shape, new_shape=list(shape))

    def transpose(self, x, *perm):
        shape = [self.shape(x)[axis] for axis in perm]
        return self.op(Op.TRANSPOSE, [x, self.constant(np.array(perm, np.int32))], shape)

    def shuffle(self, x):
        """Channels of two groups take turns, written for channels first."""
        n, h, w, c = self.shape(x)
        groups = self.reshape(self.transpose(x, 0, 3, 1, 2), (n, 2, c // 2, h, w))
        turned = self.reshape(self.transpose(groups, 0, 2, 1, 3, 4), (n, c, h, w))
        return self.transpose(turned, 0, 2, 3, 1)

    def dense(self, x, outputs):
        return self.op(
            Op.FULLY_CONNECTED,
            [x, self.weights(outputs, self.shape(x)[-1]), self.weights(outputs)],
            (self.shape(x)[0], outputs),
            fused_activation_function=Act.NONE,
        )


def squeeze_and_excite(net):
    """Build a channel-first image, an inverted residual with a gate, a residual, and a classifier."""
    x = net.input(1, 3, 24, 24)
    nhwc = net.op(Op.TRANSPOSE, [x, net.constant(np.array([0, 2, 3, 1], np.int32))], (1, 24, 24, 3))
    stem = net.swish(net.conv(nhwc, 16, size=3, stride=2))
    wide = net.swish(net.depthwise(net.swish(net.conv(stem, 40)), size=5))
    gate = net.unary(Op.LOGISTIC, net.conv(net.conv(net.mean(wide, True), 8, activation=Act.RELU), 40))
    narrow = net.binary(Op.ADD, net.conv(net.binary(Op.MUL, gate, wide), 16), stem)
    return [net.dense(net.mean(net.conv(narrow, 48, activation=Act.RELU6), False), 10)]


def fire_modules(net):
    """Concatenations of branches, of aligned and of odd numbers of channels, pools, and shuffled channels."""
    y = net.conv(net.input(1, 20, 20, 3), 32, size=3, stride=2, activation=Act.RELU)
    for width in (32, 20):
        squeezed = net.conv(y, 16, activation=Act.RELU)
        branches = [
            net.conv(squeezed, width, activation=Act.RELU),
            net.conv(squeezed, width, 3, activation=Act.RELU),
        ]
        n, h, w, _ = net.shape(y)
        y = net.pool(net.op(Op.CONCATENATION, branches, (n, h, w, 2 * width), axis=3), 3, 2)
    return [net.conv(net.shuffle(y), 7)]


def blaze_face(net):
    """Residuals that pool and pad channels, and two heads that are reshaped and joined."""
    x = net.conv(net.input(1, 32, 32, 3), 24, size=5, stride=2, activation=Act.RELU)
    deep = net.conv(net.depthwise(x, stride=2), 28)
    shortcut = net.pad(net.pool(x, 2, 2), [(0, 0), (0, 0), (0, 0), (0, 4)])
    y = net.unary(Op.RELU, net.binary(Op.ADD, deep, shortcut))
    z = net.conv(net.depthwise(y, stride=2), 32)
    heads = []
    for width in (1, 16):
        first = net.reshape(net.conv(y, 2 * width), (1, 128, width))
        second = net.reshape(net.conv(z, 6 * width), (1, 96, width))
        heads.append(net.op(Op.CONCATENATION, [first, second], (1, 224, width), axis=1))
    return heads


def residuals(net):
    """Two branches of convolutions that meet, explicit padding, and 3x3 convolutions of several sizes."""
    x = net.conv(net.input(2, 30, 28, 8), 32, size=3, activation=Act.RELU)
    padded = net.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    options = {"padding": Padding.VALID, "stride_h": 2, "stride_w": 2, "fused_activation_function": Act.RELU}
    parameters = [padded, net.weights(64, 3, 3, 32), net.weights(64)]
    down = net.op(Op.CONV_2D, parameters, (2, 15, 14, 64), **options)
    deep = net.conv(down, 64, size=3)
    skip = net.conv(x, 64, stride=2)
    y = net.unary(Op.RELU, net.binary(Op.ADD, deep, skip))
    alpha = net.constant(net.random.uniform(0, 1, (1, 1, 64)).astype(np.float32))
    return [net.op(Op.PRELU, [net.conv(y, 64, size=3), alpha], (2, 15, 14, 64))]


def run(model, inputs, delegates):
    interpreter = Interpreter(model_content=model, experimental_delegates=delegates)
    interpreter.allocate_tensors()
    for details, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], array)
    interpreter.invoke()
    found = [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]
    return found, interpreter.delegation


@pytest.mark.parametrize(
    "architecture", [squeeze_and_excite, *map(rarely, (fire_modules, blaze_face, residuals))]
)
def test_network_matches_the_cpu_path_and_is_fully_delegated(architecture):
    net = Network()
    outputs = architecture(net)
    model = write_model(net.build(*outputs))
    inputs = [net.random.standard_normal(net.shape(tensor)).astype(np.float32) for tensor in net.inputs]
    expected, _ = run(model, inputs, None)
    bits = set()
    for persistent in ("off", "on"):
        delegate = GpuDelegate({"persistent": persistent, "cache_dir": "", "tuning": "none"})
        found, delegation = run(model, inputs, [delegate])
        assert delegation.status == "full"
        for actual, wanted in zip(found, expected, strict=True):
            assert np.linalg.norm(actual - wanted) <= 1e-5 * np.linalg.norm(wanted)
        bits.add(b"".join(output.tobytes() for output in found))
    assert len(bits) == 1


def both_schedules(model, inputs):
    """Return the bits of the outputs by each schedule, and whether all was delegated."""
    for how in ("off", "on"):
        options = {"persistent": how, "tuning": "none", "cost_aware_partitioning": False}
        found, delegation = run(model, inputs, [GpuDelegate({**options, "conformance": "ignored"})])
        yield [output.tobytes() for output in found], delegation.status == "full"


@pytest.mark.slow
def test_all_operators_give_the_same_bits_in_both_schedules():
    def is_taken(row):
        delegate = GpuDelegate({"cost_aware_partitioning": False, "conformance": "ignored"})
        loaded = Interpreter(model_content=model_of([row]), experimental_delegates=[delegate])
        return loaded.delegation is not None and not loaded.delegation.fallbacks

    rows = [row for row in matrix() if is_taken(row)]
    assert len(rows) > 100
    plain, persistent = both_schedules(model_of(rows), [value for row in rows for value in row.inputs])
    assert plain == persistent
    assert plain[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1", "resnet18"])
def test_models_of_the_zoo_give_the_same_bits_in_both_schedules(name):
    x = np.random.default_rng(5).standard_normal((1, 3, 224, 224)).astype(np.float32)
    plain, persistent = both_schedules(zoo_model(f"torchvision_{name}"), [x])
    assert plain == persistent
    assert plain[1]


@pytest.mark.slow
def test_network_runs_as_on_a_gpu(monkeypatch):
    """A device that calls itself a GPU: a kernel per function, no segments, memory of its own."""
    monkeypatch.setattr("runtime.delegates.gpu.backends.opencl.device.is_gpu", lambda device: True)
    net = Network()
    model = write_model(net.build(*squeeze_and_excite(net)))
    x = net.random.standard_normal((1, 3, 24, 24)).astype(np.float32)
    (expected,), _ = run(model, [x], None)
    (found,), delegation = run(model, [x], [GpuDelegate({"cache_dir": "", "tuning": "none"})])
    assert delegation.status == "full"
    assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


def test_every_candidate_of_every_layer_computes_the_same():
    """Exhaustive tuning tries them all; here each is run in turn."""
    net = Network()
    model = net.build(*residuals(net))
    x = net.random.standard_normal((2, 30, 28, 8)).astype(np.float32)
    (expected,), _ = run(write_model(model), [x], None)
    backend = OpenClBackend.open(0, None)
    graph = optimise(build_graph(whole(model)), layout_rules())
    ways = [list(candidates_of(node, Context(graph, backend.capabilities))) for node in graph.nodes]
    source = assemble([launch for node in ways for c in node for launch in c.launches], backend.capabilities)
    program = backend.compile(source)
    for turn in range(max(len(node) for node in ways)):
        stages = [Stage(i, node[min(turn, len(node) - 1)]) for i, node in enumerate(ways)]
        recording = recorded(backend, graph, stages, source, program)
        recording.write(graph.inputs[0], x)
        recording.run([recording.entry(layer) for layer in range(len(recording.launches))])
        found = np.empty_like(expected)
        recording.read(graph.outputs[0], found)
        recording.close()
        names = [stage.candidate.name for stage in stages]
        assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected), names
