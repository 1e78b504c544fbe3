"""Weights that stay on the device as the file has them: the same bits as widened ones, in less memory."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from delegate_farm import Interpreter, load_delegate
from runtime.delegates.gpu.alternatives import layout_rules
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.capabilities import DeviceClass
from runtime.delegates.gpu.graph.weights import Stored, WeightType, stored
from runtime.delegates.gpu.layout.memory import Stage
from runtime.delegates.gpu.lowering import family_of
from runtime.delegates.gpu.lowering.matmul.conv import family as conv_family
from runtime.delegates.gpu.lowering.spec import Context, PackedConstant
from runtime.delegates.gpu.passes import optimise
from runtime.model.graph import Quantization, Tensor
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding, TensorType
from tests.runtime.delegates.gpu.models import ModelBuilder, run_stages, whole
from tests.runtime.models import Builder, per_channel
from tests.sweeps import rarely

RANDOM = np.random.default_rng(5)


def codes_of(kind, shape, axis):
    """Random weights of a type, special values of fp16 among them, with scales along `axis`."""
    if kind is WeightType.F16:
        codes = RANDOM.standard_normal(shape).astype(np.float16)
        codes.reshape(-1)[:4] = 6e-8, -6e-5, -0.0, 65504
        return Stored(kind, codes)
    if kind is WeightType.BF16:
        bits = RANDOM.standard_normal(shape).astype(np.float32).view(np.uint32)
        return Stored(kind, (bits >> 16).astype(np.uint16))
    low, high = {WeightType.I8: (-128, 127), WeightType.U8: (0, 255), WeightType.I4: (-8, 7)}[kind]
    codes = RANDOM.integers(low, high, shape, endpoint=True).astype(kind.dtype)
    count = shape[axis]
    zeros = RANDOM.integers(0, 255, count) if kind is WeightType.U8 else np.zeros(count)
    scales = RANDOM.uniform(1e-3, 1e-2, count).astype(np.float32)
    return Stored(kind, codes, scales, zeros.astype(np.float32), axis)


def conv(build, x, weights, **options):
    n, h, w, _ = build.tensors[x].shape
    given = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1, **options}
    outputs = build.tensors[weights].shape[0]
    return build.op(Op.CONV_2D, [x, weights, bias(build, outputs)], (n, h, w, outputs), **given)


def bias(build, count):
    return build.constant(np.linspace(-1, 1, count).astype(np.float32))


def depthwise(build, x, weights):
    n, h, w, c = build.tensors[x].shape
    given = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1, "depth_multiplier": 1}
    return build.op(Op.DEPTHWISE_CONV_2D, [x, weights, bias(build, c)], (n, h, w, c), **given)


def dense(build, x, weights):
    rows, outputs = build.tensors[x].shape[0], build.tensors[weights].shape[0]
    return build.op(Op.FULLY_CONNECTED, [x, weights, bias(build, outputs)], (rows, outputs))


def matmul(build, x, weights):
    rows, columns = build.tensors[x].shape[0], build.tensors[weights].shape[0]
    return build.op(Op.BATCH_MATMUL, [x, weights], (rows, columns), adj_x=False, adj_y=True)


def transposed(build, x, weights):
    n, h, w, _ = build.tensors[x].shape
    shape = (n, 2 * h, 2 * w, build.tensors[weights].shape[0])
    given = {"padding": Padding.SAME, "stride_h": 2, "stride_w": 2}
    return build.op(
        Op.TRANSPOSE_CONV, [build.constant(np.array(shape, np.int32)), weights, x], shape, **given
    )


def volumes(build, x, weights):
    n, d, h, w, _ = build.tensors[x].shape
    given = {"padding": Padding.SAME, "stride_d": 1, "stride_h": 1, "stride_w": 1}
    return build.op(Op.CONV_3D, [x, weights], (n, d, h, w, build.tensors[weights].shape[-1]), **given)


def lookup(build, x, weights):
    ids = build.constant(np.array([2, 0, 3, 3, 1], np.int32))
    found = build.op(Op.EMBEDDING_LOOKUP, [ids, weights], (5, build.tensors[weights].shape[1]))
    return build.op(Op.ADD, [found, x], (5, build.tensors[weights].shape[1]))


LAYERS = {
    "pointwise": (conv, (1, 5, 6, 17), (33, 1, 1, 17), 0),
    "window": (conv, (1, 5, 6, 17), (33, 3, 3, 17), 0),
    "winograd_small": (conv, (1, 9, 12, 17), (33, 3, 3, 17), 0),
    "winograd_large": (conv, (1, 28, 29, 16), (16, 3, 3, 16), 0),
    "groups": (conv, (1, 5, 6, 8), (12, 3, 3, 4), 0),
    "image": (conv, (1, 9, 9, 3), (20, 3, 3, 3), 0),
    "covering": (conv, (2, 1, 1, 5), (7, 1, 1, 5), 0),
    "depthwise": (depthwise, (1, 6, 7, 19), (1, 3, 3, 19), 3),
    "one_row": (dense, (1, 37), (23, 37), 0),
    "rows": (dense, (6, 7), (255, 7), 0),
    "matmul": (matmul, (5, 13), (31, 13), 0),
    "transposed": (transposed, (1, 4, 5, 9), (7, 3, 3, 9), 0),
    "lookup": (lookup, (1, 37), (4, 37), 0),
    "volumes": (volumes, (1, 3, 4, 4, 5), (2, 2, 2, 5, 18), 4),
    "winograd_groups": (conv, (1, 28, 28, 64), (96, 3, 3, 32), 0),
}
"""Name → the layer, the shapes of its input and its weights, and the dimension of the weights' outputs."""

TYPES = [WeightType.F16, WeightType.BF16, WeightType.I8, WeightType.U8, WeightType.I4]
EACH = [(name, TYPES[i % len(TYPES)]) for i, name in enumerate(LAYERS)]


def staged(device, chosen):
    """For each layer two, with stored and with widened weights: their graph, stages, and inputs."""
    build, kept, inputs, outputs = ModelBuilder(), {}, [], []
    for name, kind in chosen:
        layer, shape, weights, axis = LAYERS[name]
        one = codes_of(kind, weights, axis)
        x = build.input(*shape)
        inputs.append(RANDOM.standard_normal(shape).astype(np.float32))
        for is_stored in (True, False):
            filter_id = build.constant(one.widened())
            # What the option `weights` makes of a narrow constant where it is `float32`.
            kept[filter_id] = one if is_stored else Stored(WeightType.F32, one.widened())
            outputs.append(layer(build, x, filter_id))
    graph = build_graph(whole(build.build(*outputs)))
    values = {key: replace(value, stored=kept.get(key)) for key, value in graph.values.items()}
    graph = optimise(replace(graph, values=values), layout_rules())
    context = Context(graph, device)
    stages = [Stage(i, family_of(node, graph).lower(node, context)[0]) for i, node in enumerate(graph.nodes)]
    return graph, stages, inputs


def assert_equal(backend, chosen):
    found = run_stages(backend, *staged(backend.capabilities, chosen))
    for name, ours, widened in zip(chosen, found[::2], found[1::2], strict=True):
        assert np.abs(widened).max() > 0, name
        np.testing.assert_array_equal(ours.view(np.int32), widened.view(np.int32), err_msg=str(name))


FEW = [each for each in EACH if each[0] in ("window", "depthwise", "one_row", "lookup")]


@pytest.mark.parametrize("chosen", [FEW, rarely(EACH)], ids=["few", "all"])
def test_stored_weights_give_the_bits_of_widened_ones(backend, chosen):
    assert_equal(backend, chosen)


def constant_bytes(stage):
    arguments = [argument for launch in stage.candidate.launches for argument in launch.args]
    return sum({one.name: one.bytes for one in arguments if isinstance(one, PackedConstant)}.values())


@pytest.mark.parametrize("device_class", DeviceClass)
def test_every_layer_keeps_narrow_weights_narrow(backend, device_class):
    device = replace(backend.capabilities, device_class=device_class, shares_one_kernel=False)
    chosen = list(product(LAYERS, TYPES))
    _, stages, _ = staged(device, chosen)
    sizes = [size for stage in stages if (size := constant_bytes(stage))]
    for name, kept, wide in zip(chosen, sizes[::2], sizes[1::2], strict=True):
        assert kept < 0.8 * wide, name


@pytest.fixture(scope="module")
def grouped():
    """Open the device with the kernels of work-groups that a GPU gets."""
    return OpenClBackend.open(0, None, device_class="gpu")


@pytest.mark.slow
def test_kernels_of_work_groups_give_the_bits_of_widened_weights(grouped):
    assert_equal(grouped, [("rows", WeightType.I4), ("one_row", WeightType.F16)])


@pytest.mark.exhaustive
@pytest.mark.parametrize("device", ["backend", "grouped"])
def test_every_layer_gives_the_bits_of_widened_weights_of_every_type(request, device):
    for name in LAYERS:
        assert_equal(request.getfixturevalue(device), list(product([name], TYPES)))


def quantised(kind, low, high, shape, zero):
    tensor = Tensor(0, "w", kind, shape, quantization=Quantization((0.5, 0.25), (zero, 0), 0))
    codes = np.random.default_rng(1).integers(low, high, shape).astype(np.int8 if low < 0 else np.uint8)
    return tensor, codes


@pytest.mark.parametrize(
    ("kind", "low", "high", "zero", "expected"),
    [
        (TensorType.INT8, -128, 128, 0, WeightType.I8),
        (TensorType.INT8, -128, 128, -3, WeightType.U8),
        (TensorType.UINT8, 0, 256, 7, WeightType.U8),
        (TensorType.INT4, -8, 8, 0, WeightType.I4),
        (TensorType.INT4, -8, 8, 2, WeightType.U8),
        (TensorType.UINT4, 0, 16, 8, WeightType.U8),
        (TensorType.INT2, -2, 2, 0, WeightType.I4),
    ],
)
def test_levels_are_stored_in_the_narrowest_type_that_keeps_them(kind, low, high, zero, expected):
    tensor, codes = quantised(kind, low, high, (2, 300), zero)
    found = stored(tensor, codes)
    assert found.type is expected
    real = (codes - np.array([[zero], [0]])) * np.array([[0.5], [0.25]])
    np.testing.assert_array_equal(found.widened(), real.astype(np.float32))


def file_of(kind):
    """Build a convolution and a dense layer whose weights a DEQUANTIZE widens."""
    build = Builder()
    x = build.input(np.float32, (1, 2, 3, 128))
    y = weighted(build, kind, Op.CONV_2D, x, (64, 1, 1, 128), (1, 2, 3, 64), padding=Padding.SAME)
    return build.write([weighted(build, kind, Op.FULLY_CONNECTED, y, (64, 384), (1, 64))])


def weighted(build, kind, op, x, shape, result, **options):
    random = np.random.default_rng(shape[-1])
    real = random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    if kind is TensorType.FLOAT16:
        weights = build.constant(real.astype(np.float16))
    else:
        most = 7 if kind is TensorType.INT4 else 127
        scales = np.abs(real).reshape(len(real), -1).max(axis=1) / most
        codes = np.round(real / scales.reshape(-1, *[1] * (len(shape) - 1))).astype(np.int8)
        weights = build.constant(codes, per_channel(scales), type=kind)
    wide, y = build.tensor(np.float32, shape), build.tensor(np.float32, result)
    build.operator(Op.DEQUANTIZE, [weights], [wide], version=6)
    strides = {"stride_h": 1, "stride_w": 1} if op is Op.CONV_2D else {}
    build.operator(op, [x, wide, build.constant(np.zeros(shape[0], np.float32))], [y], options | strides)
    return y


NAMES = {TensorType.FLOAT16: "F16", TensorType.INT8: "I8", TensorType.INT4: "I4"}


def outcome(content, **options):
    """Return the network's output, and the delegate's reported constants: their bytes, and the narrow
    ones.
    """
    delegate = load_delegate("gpu", {"cache_dir": "", "tuning": "none", "persistent": "off", **options})
    interpreter = Interpreter(model_content=content, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert interpreter.delegation.status == "full"
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 128)).astype(np.float32)
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    described = delegate.describe()
    interpreter.close()
    return found, int(described["constant_bytes"]), described["narrow_weights"]


def test_kernels_are_chosen_by_what_the_file_holds(backend):
    """On small maps Winograd's method is for float32 files: it transforms narrow weights in every run."""
    build = ModelBuilder()
    weights = build.constant(RANDOM.standard_normal((32, 3, 3, 32)).astype(np.float16))
    wide = build.op(Op.DEQUANTIZE, [weights], (32, 3, 3, 32))
    model = whole(build.build(conv(build, build.input(1, 7, 7, 32), wide)))
    names = {}
    for is_narrow in (True, False):
        graph = optimise(build_graph(model, is_narrow=is_narrow), layout_rules())
        (node,) = (node for node in graph.nodes if node.op is Op.CONV_2D)
        names[is_narrow] = [way.name for way in conv_family.lower(node, Context(graph, backend.capabilities))]
    assert names[True] == names[False]


@pytest.mark.parametrize("device_class", ["cpu", rarely("gpu")])
@pytest.mark.parametrize(
    ("kind", "share"), [(TensorType.FLOAT16, 0.55), rarely(TensorType.INT8, 0.3), (TensorType.INT4, 0.2)]
)
def test_files_of_narrow_weights_keep_them_narrow(kind, share, device_class):
    content = file_of(kind)
    found, size, narrow = outcome(content, device_class=device_class)
    expected, wide, none = outcome(content, device_class=device_class, weights="float32")
    np.testing.assert_array_equal(found, expected)
    assert wide > 4 * (64 * 128 + 64 * 384)
    assert size <= share * wide
    name, _, weights = narrow.partition(" ")
    assert (name, none) == (NAMES[kind], "none")
    assert 0.9 * size <= int(weights) <= size
