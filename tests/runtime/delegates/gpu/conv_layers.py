"""Convolutions of one layer, run by a kernel that a test forces, and their results by numpy in float64."""

import numpy as np

from runtime.delegates.gpu.alternatives import layout_rules
from runtime.delegates.gpu.backends.base import recorded
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.layout.memory import Stage
from runtime.delegates.gpu.layout.source import assemble
from runtime.delegates.gpu.lowering import family_of
from runtime.delegates.gpu.lowering.matmul import depthwise_conv
from runtime.delegates.gpu.lowering.matmul.conv.direct import direct
from runtime.delegates.gpu.lowering.matmul.conv.family import product_of
from runtime.delegates.gpu.lowering.matmul.conv.gemm import gemm, row
from runtime.delegates.gpu.lowering.matmul.conv.shape import conv_shape
from runtime.delegates.gpu.lowering.matmul.conv.stem import stem
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile
from runtime.delegates.gpu.lowering.matmul.conv.winograd import winograd
from runtime.delegates.gpu.lowering.spec import Context
from runtime.delegates.gpu.passes import optimise
from runtime.model.schema import ActivationFunctionType as Act
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from tests.runtime.delegates.gpu.models import ModelBuilder, whole

EXACT, WINOGRAD4 = 1e-5, 5e-5
WINDOWS = frozenset({Op.CONV_2D, Op.DEPTHWISE_CONV_2D})


class Layer:
    """One convolution on [n, h, w, c] with random weights, and its result in float64."""

    def __init__(
        self, n, h, w, c, outputs, size, *, stride=1, dilation=1, same=True, groups=1, depthwise=False
    ):
        random = np.random.default_rng(7)
        self.x = random.standard_normal((n, h, w, c))
        self.bias = random.standard_normal(outputs)
        self.groups = c if depthwise else groups
        self.weights = random.standard_normal((outputs, *size, c // self.groups))
        self.stride, self.dilation, self.depthwise = stride, dilation, depthwise
        self.padding = Padding.SAME if same else Padding.VALID
        reach = [(k - 1) * dilation + 1 for k in size]
        if same:
            self.out = [-(-extent // stride) for extent in (h, w)]
            totals = [(o - 1) * stride + r - e for o, r, e in zip(self.out, reach, (h, w), strict=True)]
            self.pads = [(max(t, 0) // 2, max(t, 0)) for t in totals]
        else:
            self.out = [(e - r) // stride + 1 for e, r in zip((h, w), reach, strict=True)]
            self.pads = [(0, 0), (0, 0)]

    @property
    def result(self):
        (top, _), (left, _) = self.pads
        outputs, height, width, group_in = self.weights.shape
        spare = max(height, width) * self.dilation + self.stride
        x = np.pad(self.x, ((0, 0), (top, spare), (left, spare), (0, 0)))
        found = np.zeros((len(x), *self.out, outputs)) + self.bias
        group_out = outputs // self.groups
        for y in range(height):
            for z in range(width):
                rows = slice(
                    y * self.dilation, y * self.dilation + (self.out[0] - 1) * self.stride + 1, self.stride
                )
                columns = slice(
                    z * self.dilation, z * self.dilation + (self.out[1] - 1) * self.stride + 1, self.stride
                )
                for g in range(self.groups):
                    part = x[:, rows, columns, g * group_in : (g + 1) * group_in]
                    o = slice(g * group_out, (g + 1) * group_out)
                    found[..., o] += part @ self.weights[o, y, z].T
        return found

    def add_to(self, build, x, activation=Act.NONE):
        weights = self.weights.transpose(3, 1, 2, 0) if self.depthwise else self.weights
        options = {"padding": self.padding, "stride_h": self.stride, "stride_w": self.stride}
        options |= {"dilation_h_factor": self.dilation, "dilation_w_factor": self.dilation}
        parameters = [
            x,
            build.constant(weights.astype(np.float32)),
            build.constant(self.bias.astype(np.float32)),
        ]
        shape = (len(self.x), *self.out, len(self.bias))
        op = Op.DEPTHWISE_CONV_2D if self.depthwise else Op.CONV_2D
        return build.op(op, parameters, shape, fused_activation_function=activation, **options)


def run(backend, model, inputs, choose, chosen=WINDOWS):
    """Return the model's outputs with the candidate that `choose(node, context)` gives for each node of
    `chosen`.
    """
    graph = optimise(build_graph(whole(model)), layout_rules())
    context = Context(graph, backend.capabilities)
    stages = [
        Stage(
            position,
            choose(node, context) if node.op in chosen else family_of(node, graph).lower(node, context)[0],
        )
        for position, node in enumerate(graph.nodes)
    ]
    launches = [launch for stage in stages for launch in stage.candidate.launches]
    source = assemble(launches, backend.capabilities)
    program = backend.compile(source)
    recording = recorded(backend, graph, stages, source, program)
    contents = [np.ascontiguousarray(array, np.float32) for array in inputs]
    for value, content in zip(graph.inputs, contents, strict=True):
        recording.write(value, content)
    for layer in range(len(launches)):
        recording.enqueue(recording.entry(layer))
    recording.finish()
    outputs = [np.full(graph.values[value].shape, np.nan, np.float32) for value in graph.outputs]
    for value, target in zip(graph.outputs, outputs, strict=True):
        recording.read(value, target)
    recording.close()
    return outputs


def check_alone(backend, layer, choose, tolerance=EXACT):
    build = ModelBuilder()
    model = build.build(layer.add_to(build, build.input(*layer.x.shape)))
    (found,) = run(backend, model, [layer.x], choose)
    assert_close(found, layer.result, tolerance)


def assert_close(found, expected, tolerance):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def forced_direct(rows, columns):
    return lambda node, context: direct(node, context, conv_shape(node, context), Tile(rows, columns))


def forced_gemm(rows, columns):
    return lambda node, context: gemm(
        node, context, product_of(conv_shape(node, context)), Tile(rows, columns)
    )


def forced_row(width):
    return lambda node, context: row(node, context, product_of(conv_shape(node, context)), width)


def forced_stem(rows, columns):
    return lambda node, context: stem(node, context, conv_shape(node, context), Tile(rows, columns))


def forced_winograd(size):
    return lambda node, context: winograd(node, context, conv_shape(node, context), size)


def forced_depthwise(rows, columns):
    return lambda node, context: depthwise_conv.depthwise(
        node, context, conv_shape(node, context, depthwise=True), (rows, columns)
    )
