"""Graph in, graph out; and passes that are left out, which change kernels and not results."""

import re

import numpy as np
import pytest

from delegate_farm import Interpreter
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Graph, Node, Step
from runtime.delegates.gpu.graph.graph import Value as GraphValue
from runtime.delegates.gpu.passes import LayoutRules, passes
from runtime.delegates.gpu.passes.assign_layouts import assign_layouts
from runtime.delegates.gpu.passes.fuse_epilogue import fuse_epilogue
from runtime.delegates.gpu.passes.fuse_levels import fuse_levels
from runtime.delegates.gpu.passes.fuse_swish import fuse_swish
from runtime.delegates.gpu.passes.merge_padding import merge_padding
from runtime.delegates.gpu.passes.remove_identity import remove_identity
from runtime.delegates.gpu.planning.planner import GpuPlanner
from runtime.delegates.gpu.settings.options import PASSES, parse_options
from runtime.errors import DelegateError
from runtime.model.reader import read_model
from runtime.model.schema import ActivationFunctionType, Padding
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.writer import write_model
from runtime.tools.model_plan import model_plan
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
from tests.runtime.delegates.gpu.norms import Norm

NOTHING = LayoutRules(lambda node, graph: True, lambda node, graph: False, lambda node, graph: False)
EVERYTHING = LayoutRules(lambda node, graph: True, lambda node, graph: True, lambda node, graph: True)


def graph_of(build: ModelBuilder, *outputs: int) -> Graph:
    return build_graph(whole(build.build(*outputs)))


def pool(build, source, shape, size=2, stride=2, opcode=Op.MAX_POOL_2D):
    options = {"filter_width": size, "filter_height": size, "stride_w": stride, "stride_h": stride}
    return build.op(opcode, [source], shape, padding=Padding.VALID, **options)


def summary(graph):
    return [(node.op.name, [step.op for step in node.epilogue]) for node in graph.nodes]


def test_reshape_to_the_same_shape_disappears():
    build = ModelBuilder()
    x = build.input(1, 4, 4, 16)
    graph = remove_identity(
        graph_of(build, pool(build, build.op(Op.RESHAPE, [x], (1, 4, 4, 16)), (1, 2, 2, 16)))
    )
    assert summary(graph) == [("MAX_POOL_2D", ["SATURATE"])]
    assert graph.nodes[0].inputs == (x,)


def test_reshape_that_is_a_graph_output_stays():
    build = ModelBuilder()
    y = build.op(Op.RESHAPE, [build.input(1, 4, 4, 16)], (1, 4, 4, 16))
    assert summary(remove_identity(graph_of(build, y))) == [("RESHAPE", [])]


def padded_pool(fill, pool_op=Op.MAX_POOL_2D, paddings=((0, 0), (1, 0), (0, 1), (0, 0))):
    build = ModelBuilder()
    x = build.input(1, 5, 5, 16)
    inputs = [x, build.constant(np.array(paddings, np.int32)), build.constant(np.float32(fill))]
    padded = build.op(
        Op.PADV2,
        inputs,
        tuple(
            5 + a + b if i in (1, 2) else s + a + b
            for i, (s, (a, b)) in enumerate(zip((1, 5, 5, 16), paddings, strict=True))
        ),
    )
    return merge_padding(graph_of(build, pool(build, padded, (1, 3, 3, 16), opcode=pool_op)))


def test_minus_infinity_in_front_of_a_max_pool_becomes_its_padding():
    graph = padded_pool(-np.inf)
    assert summary(graph) == [("MAX_POOL_2D", ["SATURATE"])]
    attributes = graph.nodes[0].attributes
    assert [attributes[f"pad_{side}"] for side in ("top", "bottom", "left", "right")] == [1, 0, 0, 1]
    assert graph.nodes[0].sources == (0, 1)


def test_zeros_in_front_of_a_pool_are_not_its_padding():
    assert [name for name, _ in summary(padded_pool(0.0))] == ["PADV2", "MAX_POOL_2D"]
    assert [name for name, _ in summary(padded_pool(-np.inf, Op.AVERAGE_POOL_2D))] == [
        "PADV2",
        "AVERAGE_POOL_2D",
    ]


def test_padded_channels_are_not_the_padding_of_a_window():
    build = ModelBuilder()
    pad = build.constant(np.array([[0, 0], [0, 0], [0, 0], [0, 16]], np.int32))
    padded = build.op(
        Op.PADV2, [build.input(1, 4, 4, 16), pad, build.constant(np.float32(-np.inf))], (1, 4, 4, 32)
    )
    graph = merge_padding(graph_of(build, pool(build, padded, (1, 2, 2, 32))))
    assert [node.op.name for node in graph.nodes] == ["PADV2", "MAX_POOL_2D"]


def test_x_times_logistic_of_x_is_swish():
    build = ModelBuilder()
    x = build.input(1, 4, 4, 16)
    gate = build.op(Op.LOGISTIC, [x], (1, 4, 4, 16))
    for factors in ([x, gate], [gate, x]):
        y = build.op(Op.MUL, factors, (1, 4, 4, 16), fused_activation_function=ActivationFunctionType.NONE)
        graph = fuse_swish(graph_of(build, y))
        assert summary(graph) == [("MUL", ["LOAD", "SWISH", "SATURATE"])]
        build.operators.pop()
        build.tensors.pop()


def test_logistic_with_other_readers_is_kept():
    build = ModelBuilder()
    x = build.input(1, 4, 4, 16)
    gate = build.op(Op.LOGISTIC, [x], (1, 4, 4, 16))
    graph = fuse_swish(graph_of(build, build.op(Op.MUL, [x, gate], (1, 4, 4, 16)), gate))
    assert len(graph.nodes) == 2


def test_elementwise_chain_moves_into_the_kernel_before_it():
    build = ModelBuilder()
    y = pool(build, build.input(1, 4, 4, 16), (1, 2, 2, 16))
    scaled = build.op(Op.MUL, [y, build.constant(np.float32(3))], (1, 2, 2, 16))
    shape = (1, 2, 2, 16)
    out = build.op(
        Op.ADD, [scaled, build.input(*shape)], shape, fused_activation_function=ActivationFunctionType.RELU
    )
    graph = fuse_epilogue(graph_of(build, out), lambda node, graph: True)
    steps = ["SATURATE", "MUL_SCALAR", "SATURATE", "ADD", "RELU_SATURATED"]
    assert summary(graph) == [("MAX_POOL_2D", steps)]
    assert graph.nodes[0].sources == (0, 1, 2)
    assert graph.nodes[0].outputs == (out,)


def test_the_later_of_two_producers_takes_the_addition():
    build = ModelBuilder()
    x = build.input(1, 4, 4, 16)
    first, second = (pool(build, x, (1, 2, 2, 16)) for _ in range(2))
    graph = fuse_epilogue(
        graph_of(build, build.op(Op.SUB, [first, second], (1, 2, 2, 16))), lambda node, graph: True
    )
    steps = ["SATURATE", "REVERSE_SUB", "SATURATE"]
    assert summary(graph) == [("MAX_POOL_2D", ["SATURATE"]), ("MAX_POOL_2D", steps)]
    assert graph.nodes[1].epilogue[1] == Step("REVERSE_SUB", (first,))


def test_a_value_with_two_readers_is_not_fused_away():
    build = ModelBuilder()
    y = pool(build, build.input(1, 4, 4, 16), (1, 2, 2, 16))
    relu = build.op(Op.RELU, [y], (1, 2, 2, 16))
    graph = fuse_epilogue(
        graph_of(build, relu, build.op(Op.NEG, [y], (1, 2, 2, 16))), lambda node, graph: True
    )
    assert [name for name, _ in summary(graph)] == ["MAX_POOL_2D", "RELU", "NEG"]


def test_a_value_that_leaves_the_graph_is_not_fused_away():
    build = ModelBuilder()
    y = pool(build, build.input(1, 4, 4, 16), (1, 2, 2, 16))
    graph = fuse_epilogue(graph_of(build, y, build.op(Op.RELU, [y], (1, 2, 2, 16))), lambda node, graph: True)
    assert len(graph.nodes) == 2


def test_square_of_one_value_is_not_its_own_operand():
    build = ModelBuilder()
    y = pool(build, build.input(1, 4, 4, 16), (1, 2, 2, 16))
    graph = fuse_epilogue(graph_of(build, build.op(Op.MUL, [y, y], (1, 2, 2, 16))), lambda node, graph: True)
    assert summary(graph) == [("MAX_POOL_2D", ["SATURATE"]), ("MUL", ["LOAD", "MUL", "SATURATE"])]


def test_parts_of_a_channel_concatenation_are_written_in_place():
    build = ModelBuilder()
    x = build.input(1, 4, 4, 16)
    parts = [pool(build, x, (1, 2, 2, 16)), pool(build, x, (1, 2, 2, 16))]
    whole_ = build.op(Op.CONCATENATION, parts, (1, 2, 2, 32), axis=3)
    graph = assign_layouts(graph_of(build, build.op(Op.RELU, [whole_], (1, 2, 2, 32))), NOTHING)
    assert [node.op.name for node in graph.nodes] == ["MAX_POOL_2D", "MAX_POOL_2D", "RELU"]
    first, second = (graph.layouts[part] for part in parts)
    assert (first.root, first.offset, first.pixel_stride) == (whole_, 0, 32)
    assert (second.root, second.offset, second.pixel_stride) == (whole_, 16, 32)


def test_unaligned_parts_of_a_channel_concatenation_are_copied():
    build = ModelBuilder()
    x = build.input(1, 4, 4, 24)
    parts = [pool(build, x, (1, 2, 2, 24)), pool(build, x, (1, 2, 2, 24))]
    joined = build.op(Op.CONCATENATION, parts, (1, 2, 2, 48), axis=3)
    graph = assign_layouts(graph_of(build, build.op(Op.RELU, [joined], (1, 2, 2, 48))), EVERYTHING)
    assert [node.op.name for node in graph.nodes].count("RESHAPE") == 2


def test_reshape_of_whole_rows_is_a_view():
    build = ModelBuilder()
    y = pool(build, build.input(1, 4, 4, 32), (1, 2, 2, 32))
    flat = build.op(Op.RESHAPE, [y], (1, 128))
    graph = assign_layouts(graph_of(build, build.op(Op.SOFTMAX, [flat], (1, 128), beta=1.0)), NOTHING)
    assert [node.op.name for node in graph.nodes] == ["MAX_POOL_2D", "SOFTMAX"]
    assert graph.layouts[y].root == graph.layouts[flat].root == flat


def test_reshape_that_breaks_padded_rows_is_a_copy():
    build = ModelBuilder()
    y = pool(build, build.input(1, 4, 4, 5), (1, 2, 2, 5))
    flat = build.op(Op.RESHAPE, [y], (1, 20))
    graph = assign_layouts(graph_of(build, build.op(Op.SOFTMAX, [flat], (1, 20), beta=1.0)), EVERYTHING)
    assert [node.op.name for node in graph.nodes] == ["MAX_POOL_2D", "RESHAPE", "SOFTMAX"]


def test_dense_boundaries_are_packed_only_for_kernels_that_need_it():
    build = ModelBuilder()
    graph = graph_of(build, pool(build, build.input(1, 4, 4, 3), (1, 2, 2, 3)))
    assert [node.op.name for node in assign_layouts(graph, NOTHING).nodes] == [
        "RESHAPE",
        "MAX_POOL_2D",
        "RESHAPE",
    ]
    assert [node.op.name for node in assign_layouts(graph, EVERYTHING).nodes] == ["MAX_POOL_2D"]


def test_transposed_input_becomes_strides_of_its_reader():
    build = ModelBuilder()
    x = build.input(1, 3, 4, 6)
    nhwc = build.op(Op.TRANSPOSE, [x, build.constant(np.array([0, 2, 3, 1], np.int32))], (1, 4, 6, 3))
    graph = graph_of(build, pool(build, nhwc, (1, 2, 3, 3)))
    folded = assign_layouts(graph, EVERYTHING)
    assert [node.op.name for node in folded.nodes] == ["MAX_POOL_2D"]
    layout = folded.layouts[nhwc]
    assert (layout.root, layout.pixel_stride, layout.channel_stride, layout.padded) == (x, 1, 24, False)
    assert "TRANSPOSE" in [node.op.name for node in assign_layouts(graph, NOTHING).nodes]


def every_pass_s_work():
    """Build a model in which each pass has something to do, and numbers for its input."""
    random, build = np.random.default_rng(5), ModelBuilder()

    def weights(*shape):
        return build.constant((0.3 * random.standard_normal(shape)).astype(np.float32))

    x = build.input(1, 6, 6, 5)
    same = build.op(Op.RESHAPE, [x], (1, 6, 6, 5), new_shape=[1, 6, 6, 5])
    margins = build.constant(np.array([(0, 0), (1, 1), (1, 1), (0, 0)], np.int32))
    padded = build.op(Op.PAD, [same, margins], (1, 8, 8, 5))
    options = {"padding": Padding.VALID, "stride_h": 1, "stride_w": 1}
    image = build.op(Op.CONV_2D, [padded, weights(7, 3, 3, 5), weights(7)], (1, 6, 6, 7), **options)
    swish = build.op(Op.MUL, [image, build.op(Op.LOGISTIC, [image], (1, 6, 6, 7))], (1, 6, 6, 7))
    plane = build.constant(np.array([1, 2], np.int32))
    gate = build.op(Op.MEAN, [swish, plane], (1, 1, 1, 7), keep_dims=True)
    gated = build.op(Op.MUL, [swish, gate], (1, 6, 6, 7))
    rows = build.op(Op.CONV_2D, [gated, weights(9, 1, 1, 7), weights(9)], (1, 6, 6, 9), **options)
    flat = build.op(Op.RESHAPE, [rows], (1, 36, 9), new_shape=[1, 36, 9])
    turned = build.op(Op.TRANSPOSE, [flat, build.constant(np.array([0, 2, 1], np.int32))], (1, 9, 36))
    product = build.op(Op.BATCH_MATMUL, [flat, turned], (1, 36, 36), adj_x=False, adj_y=False)
    for op in (Op.TRANSPOSE, Op.TANH, Op.TRANSPOSE, Op.TRANSPOSE, Op.TRANSPOSE):
        perm = [build.constant(np.array([0, 2, 1], np.int32))] if op == Op.TRANSPOSE else []
        product = build.op(op, [product, *perm], (1, 36, 36))
    y = Norm(build, (1, 36, 36), x=build.op(Op.TANH, [product], (1, 36, 36))).y
    return write_model(build.build(y)), random.standard_normal((1, 6, 6, 5)).astype(np.float32)


def test_functions_of_levels_become_one_table():
    every = np.arange(256, dtype=np.uint8)
    inner, pair = every[::-1] // 2, (every[:, None] * 3 + every).astype(np.uint8)
    values = {i: GraphValue(i, (1, 4), type=ElementType.I8) for i in range(5)}
    nodes = (
        Node(0, Op.LOGISTIC, (0,), (1,), {"table": inner.tobytes()}, sources=(0,)),
        Node(1, Op.MUL, (0, 1), (2,), {"table": pair.tobytes()}, sources=(1,)),
        Node(2, Op.TANH, (2,), (3,), {"table": inner.tobytes()}, sources=(2,)),
        Node(3, Op.MUL, (3, 2), (4,), {"table": pair.tobytes()}, sources=(3,)),
    )
    (one,) = fuse_levels(Graph(values, nodes, (0,), (4,))).nodes[-1:]
    assert (one.inputs, one.outputs, one.sources) == ((2,), (4,), (2, 3))
    first = fuse_levels(Graph(values, nodes, (0,), (4,))).nodes[0]
    assert (first.inputs, first.outputs, first.sources) == ((0,), (2,), (0, 1))
    wanted = [pair[x, inner[x]] for x in every]
    np.testing.assert_array_equal(np.frombuffer(first.attributes["table"], np.uint8), wanted)
    wanted = [pair[inner[x], x] for x in every]
    np.testing.assert_array_equal(np.frombuffer(one.attributes["table"], np.uint8), wanted)


def test_each_pass_can_be_left_out_which_changes_the_plan():
    optional = [one.name for one in passes(NOTHING) if one.name not in ("canonicalise", "assign_layouts")]
    assert tuple(optional) == PASSES
    model, _ = every_pass_s_work()
    model = read_model(model)
    plans = {}
    for off in ("", *PASSES):
        planner = GpuPlanner({"passes_off": off, "cost_aware_partitioning": False}, "cpu")
        (found,) = model_plan(model, planner).partitions
        plans[off] = [step for node in found.nodes for step in (node.kind, *node.steps)]
    # A pass that is left out leaves kernels, or steps of their epilogues, that it takes away.
    of_floats = [off for off in PASSES if off != "fuse_levels"]
    assert all(len(plans[off]) > len(plans[""]) for off in of_floats), plans
    with pytest.raises(DelegateError, match=re.escape("'canonicalise' is no pass that can be left out")):
        parse_options({"passes_off": "fuse_swish, canonicalise"})


@pytest.mark.slow
def test_without_a_pass_and_without_any_the_outputs_are_the_same(tmp_path):
    model, value = every_pass_s_work()
    outputs = []
    for off in ("", *PASSES, ", ".join(PASSES)):
        options = {"passes_off": off, "tuning": "none", "cache_dir": str(tmp_path)}
        delegate = GpuDelegate({**options, "cost_aware_partitioning": False})
        interpreter = Interpreter(model_content=model, experimental_delegates=[delegate])
        interpreter.allocate_tensors()
        assert not interpreter.delegation.fallbacks, str(interpreter.delegation)
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], value)
        interpreter.invoke()
        outputs.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    for found in outputs[1:]:
        np.testing.assert_allclose(found, outputs[0], rtol=1e-4, atol=1e-5)
