"""Every variant and tile of the convolution families, forced, against numpy in float64."""

from dataclasses import replace

import numpy as np
import pytest

from runtime.delegates.gpu.alternatives import layout_rules
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.lowering import family_of
from runtime.delegates.gpu.lowering.matmul import depthwise_conv
from runtime.delegates.gpu.lowering.matmul.conv import tiles, weights
from runtime.delegates.gpu.lowering.matmul.conv.shape import conv_shape
from runtime.delegates.gpu.lowering.matmul.conv.stem import stem_fits
from runtime.delegates.gpu.lowering.spec import Context
from runtime.delegates.gpu.passes import optimise
from runtime.model.schema import ActivationFunctionType as Act
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.conv_layers import (
    EXACT,
    WINDOWS,
    WINOGRAD4,
    Layer,
    assert_close,
    check_alone,
    forced_depthwise,
    forced_direct,
    forced_gemm,
    forced_row,
    forced_stem,
    forced_winograd,
    run,
)
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
from tests.sweeps import rarely, sweep


@pytest.mark.parametrize(
    ("rows", "columns", "inputs", "outputs"),
    [
        (13, 32, 17, 33),
        (3, 112, 40, 112),
        rarely(5, 16, 3, 1),
        rarely(8, 48, 33, 48),
        rarely(6, 64, 16, 100),
        rarely(4, 80, 1, 80),
    ],
)
def test_a_product_is_the_same_in_every_tile(backend, rows, columns, inputs, outputs):
    check_alone(backend, Layer(2, 5, 7, inputs, outputs, (1, 1)), forced_gemm(rows, columns))


@pytest.mark.parametrize(
    ("width", "inputs", "outputs"), [rarely(16, 3, 1), (32, 17, 33), rarely(64, 101, 130)]
)
def test_a_product_of_one_row_is_the_same_in_every_width(backend, width, inputs, outputs):
    check_alone(backend, Layer(1, 1, 1, inputs, outputs, (1, 1)), forced_row(width))


@pytest.mark.parametrize("inputs", [3, 32])
def test_a_window_that_covers_the_image_is_a_product(backend, inputs):
    check_alone(backend, Layer(2, 3, 2, inputs, 20, (3, 2), same=False), forced_gemm(2, 32))


@pytest.mark.parametrize(
    ("rows", "columns", "layer"),
    [
        (12, 32, Layer(1, 9, 11, 3, 33, (3, 3))),
        rarely(7, 48, Layer(2, 6, 5, 17, 48, (3, 3), stride=2)),
        (6, 64, Layer(1, 7, 9, 16, 64, (5, 3), dilation=2)),
        rarely(13, 16, Layer(1, 8, 8, 1, 1, (7, 7), stride=2)),
        rarely(5, 32, Layer(1, 7, 6, 5, 20, (2, 4), stride=3, same=False)),
        rarely(4, 80, Layer(1, 5, 5, 8, 80, (1, 1), stride=2)),
    ],
)
def test_any_window_is_convolved_in_every_tile(backend, rows, columns, layer):
    check_alone(backend, layer, forced_direct(rows, columns))


@pytest.mark.parametrize(
    ("inputs", "outputs", "groups"), [(6, 9, 3), rarely(32, 64, 2), rarely(20, 40, 20), rarely(48, 24, 4)]
)
def test_groups_read_their_own_channels_only(backend, inputs, outputs, groups):
    check_alone(backend, Layer(1, 5, 6, inputs, outputs, (3, 3), groups=groups), forced_direct(6, 32))


@pytest.mark.parametrize(
    ("rows", "columns", "layer"),
    [
        (5, 32, Layer(2, 9, 11, 3, 33, (3, 3), stride=2)),
        rarely(8, 16, Layer(1, 7, 19, 1, 17, (5, 5))),
        rarely(3, 48, Layer(1, 12, 13, 4, 48, (2, 3), stride=3, same=False)),
        rarely(4, 64, Layer(1, 8, 9, 2, 64, (3, 3), dilation=2)),
        (1, 32, Layer(1, 3, 2, 3, 20, (7, 7), stride=2)),
    ],
)
def test_images_of_few_channels_are_convolved_in_every_tile(backend, rows, columns, layer):
    check_alone(backend, layer, forced_stem(rows, columns))


@pytest.mark.parametrize(
    ("rows", "columns", "layer"),
    [
        (2, 7, Layer(1, 9, 14, 33, 33, (3, 3), depthwise=True)),
        rarely(4, 4, Layer(2, 7, 5, 16, 16, (5, 5), depthwise=True)),
        rarely(2, 4, Layer(1, 8, 11, 17, 17, (3, 3), stride=2, depthwise=True)),
        rarely(1, 3, Layer(1, 9, 9, 1, 1, (3, 3), dilation=2, depthwise=True)),
        (3, 2, Layer(1, 8, 7, 48, 48, (2, 4), stride=3, same=False, depthwise=True)),
        rarely(1, 1, Layer(1, 2, 2, 20, 20, (5, 5), stride=2, depthwise=True)),
    ],
)
def test_depthwise_windows_are_convolved_in_every_tile(backend, rows, columns, layer):
    check_alone(backend, layer, forced_depthwise(rows, columns))


def test_every_listed_depthwise_tile_fits_the_map(backend):
    build = ModelBuilder()
    layer = Layer(1, 3, 2, 16, 16, (3, 3), depthwise=True)
    model = build.build(layer.add_to(build, build.input(1, 3, 2, 16)))
    graph = optimise(build_graph(whole(model)), layout_rules())
    candidates = depthwise_conv.lower(graph.nodes[0], Context(graph, backend.capabilities))
    for candidate in candidates:
        (found,) = run(backend, model, [layer.x], lambda *_, chosen=candidate: chosen)
        assert_close(found, layer.result, EXACT)


@pytest.mark.parametrize(("inputs", "outputs"), [rarely(1, 8), rarely(4, 12), (17, 34)])
def test_several_outputs_per_channel_are_a_convolution_with_groups(backend, inputs, outputs):
    def default(node, context):
        return depthwise_conv.lower(node, context)[0]

    check_alone(backend, Layer(1, 6, 5, inputs, outputs, (3, 3), depthwise=True), default)


def residual(build, found, x):
    extra = build.input(*x.shape)
    return build.op(Op.ADD, [found, extra], x.shape), [x], lambda y: y + np.float32(x)


def scaled_by_channel(build, found, x):
    alpha = np.linspace(-1, 1, x.shape[-1])
    target = build.op(Op.PRELU, [found, build.constant(alpha.astype(np.float32))], x.shape)
    return target, [], lambda y: np.where(y < 0, alpha * y, y)


def scaled_by_pixel(build, found, x):
    factor = x[..., :1]
    target = build.op(Op.MUL, [found, build.constant(factor.astype(np.float32))], x.shape)
    return target, [], lambda y: y * factor


def hard_swish(build, found, x):
    return build.op(Op.HARD_SWISH, [found], x.shape), [], lambda y: y * np.clip(y + 3, 0, 6) / 6


VARIANTS = {
    "gemm": (Layer(1, 6, 7, 17, 33, (1, 1)), forced_gemm(7, 32), EXACT),
    "row": (Layer(1, 1, 1, 17, 33, (1, 1)), forced_row(32), EXACT),
    "direct": (Layer(1, 6, 7, 17, 33, (3, 3)), forced_direct(6, 32), EXACT),
    "stem": (Layer(1, 6, 7, 3, 33, (3, 3)), forced_stem(2, 32), EXACT),
    "winograd": (Layer(1, 6, 7, 17, 33, (3, 3)), forced_winograd(4), WINOGRAD4),
    "depthwise": (Layer(1, 6, 7, 33, 33, (3, 3), depthwise=True), forced_depthwise(2, 4), EXACT),
}


@pytest.mark.parametrize("tail", [residual, *map(rarely, (scaled_by_channel, scaled_by_pixel, hard_swish))])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_fused_tail_gives_what_separate_operators_give(backend, variant, tail):
    layer, choose, tolerance = VARIANTS[variant]
    build = ModelBuilder()
    found = layer.add_to(build, build.input(*layer.x.shape), Act.RELU6)
    shape = layer.result.shape
    target, extra, apply = tail(build, found, np.random.default_rng(3).standard_normal(shape))
    graph = optimise(build_graph(whole(build.build(target))), layout_rules())
    assert {node.op for node in graph.nodes} <= {*WINDOWS, Op.RESHAPE}, "the tail is fused"
    (got,) = run(backend, build.build(target), [layer.x, *extra], choose)
    assert_close(got, apply(np.clip(layer.result, 0, 6)), tolerance)


@pytest.mark.parametrize("variant", sweep(VARIANTS, "direct", "depthwise"))
def test_an_output_may_be_a_part_of_a_concatenation(backend, variant):
    base, choose, tolerance = VARIANTS[variant]
    layer = replace_outputs(base, 32)
    build = ModelBuilder()
    x = build.input(*layer.x.shape)
    n, h, w, c = layer.result.shape
    parts = [layer.add_to(build, x), layer.add_to(build, x)]
    model = build.build(build.op(Op.CONCATENATION, parts, (n, h, w, 2 * c), axis=3))
    graph = optimise(build_graph(whole(model)), layout_rules())
    assert [node.op for node in graph.nodes].count(Op.CONCATENATION) == 0
    assert {layout.pixel_stride for layout in graph.layouts.values()} >= {2 * c}
    (got,) = run(backend, model, [layer.x], choose)
    assert_close(got, np.concatenate([layer.result, layer.result], 3), tolerance)


def replace_outputs(layer, outputs):
    n, h, w, c = layer.x.shape
    inputs = outputs if layer.depthwise else c
    return Layer(n, h, w, inputs, outputs, layer.weights.shape[1:3], depthwise=layer.depthwise)


@pytest.mark.parametrize(
    ("size", "choose"),
    [
        (1, forced_gemm(7, 16)),
        rarely(3, forced_direct(6, 32)),
        (3, forced_stem(4, 32)),
        rarely(7, forced_stem(6, 16)),
    ],
)
def test_a_planar_image_is_read_in_place(backend, size, choose):
    layer = Layer(1, 9, 12, 3, 24, (size, size), stride=2 if size > 1 else 1)
    build = ModelBuilder()
    planar = build.input(1, 3, 9, 12)
    image = build.op(Op.TRANSPOSE, [planar, build.constant(np.array([0, 2, 3, 1], np.int32))], (1, 9, 12, 3))
    model = build.build(layer.add_to(build, image))
    graph = optimise(build_graph(whole(model)), layout_rules())
    assert Op.TRANSPOSE not in {node.op for node in graph.nodes}
    (got,) = run(backend, model, [layer.x.transpose(0, 3, 1, 2)], choose)
    assert_close(got, layer.result, EXACT)


def test_the_stem_kernel_reads_padded_pixels_of_a_layer_before(backend):
    first, second = Layer(1, 8, 9, 20, 3, (1, 1)), Layer(1, 8, 9, 3, 18, (3, 3), stride=2)
    build = ModelBuilder()
    middle = first.add_to(build, build.input(*first.x.shape))
    model = build.build(second.add_to(build, middle))
    second.x = first.result

    def choose(node, context):
        pointwise = conv_shape(node, context).is_pointwise
        return (forced_gemm(5, 16) if pointwise else forced_stem(4, 32))(node, context)

    (got,) = run(backend, model, [first.x], choose)
    assert_close(got, second.result, EXACT)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (Layer(1, 9, 12, 3, 24, (3, 3)), True),
        (Layer(1, 9, 12, 3, 24, (1, 1)), False),
        (Layer(1, 9, 12, 5, 24, (3, 3)), False),
        (Layer(1, 9, 12, 4, 24, (3, 9)), False),
        (Layer(1, 9, 3000, 4, 24, (3, 3)), False),
        (Layer(1, 9, 12, 4, 8, (3, 3), groups=2), False),
    ],
)
def test_the_stem_kernel_accepts_small_windows_of_few_channels(backend, layer, expected):
    build = ModelBuilder()
    model = build.build(layer.add_to(build, build.input(*layer.x.shape)))
    graph = optimise(build_graph(whole(model)), layout_rules())
    node = next(node for node in graph.nodes if node.op in WINDOWS)
    assert stem_fits(conv_shape(node, Context(graph, backend.capabilities))) is expected


@pytest.mark.parametrize(
    ("shape", "depth", "outputs"), [((3, 33), 33, 17), ((2, 3, 5), 15, 100), ((1, 7), 7, 1)]
)
def test_fully_connected_layers_of_one_or_many_rows_match_numpy(backend, shape, depth, outputs):
    random = np.random.default_rng(5)
    x, weights = random.standard_normal(shape), random.standard_normal((outputs, depth))
    build = ModelBuilder()
    rows = int(np.prod(shape)) // depth
    target = build.op(
        Op.FULLY_CONNECTED,
        [build.input(*shape), build.constant(weights.astype(np.float32)), -1],
        (rows, outputs),
    )
    (got,) = run(backend, build.build(target), [x], None)
    assert_close(got, x.reshape(rows, depth) @ weights.T, EXACT)


@pytest.mark.parametrize(("vector_floats", "most_sums"), [(16, 24), (8, 6), (1, 6)])
def test_tiles_are_ranked_by_cost_and_fit(vector_floats, most_sums):
    for pixels, channels in [(1, 16), (49, 160), (196, 96), (3136, 24), (12544, 1)]:
        ranked = tiles.rank_tiles(pixels, channels, 64, 2, vector_floats)
        assert all(
            tile.rows <= pixels and tile.columns <= max(16, -(-channels // 16) * 16) for tile in ranked
        )
        assert all(tile.rows * tile.columns <= 16 * (most_sums + 2) for tile in ranked)
        assert len({(tile.rows, tile.columns) for tile in ranked}) == len(ranked)


@pytest.mark.parametrize("rows", [42, 49])
def test_the_panel_of_a_deep_product_stays_in_the_cache_while_it_serves_more_than_one_tile(rows):
    deep = tiles.rank_tiles(rows, 2000, 8000, 2, 16)[0]
    assert deep.rows < rows
    assert 4 * 8000 * deep.columns <= 1 << 20
    shallow = tiles.rank_tiles(rows, 2000, 500, 2, 16)[0]
    assert shallow.columns > deep.columns


def test_narrow_registers_leave_few_rows_over():
    # Four vectors of 16 floats are eight registers of 8, which hide latencies: ten tiles of five waste least.
    assert tiles.rank_tiles(49, 160, 960, 1, 8)[0].rows == 5
    assert tiles.rank_tiles(48, 160, 960, 1, 8)[0].rows == 6


def test_a_close_second_tile_has_another_width(backend):
    best = tiles.best_tiles(196, 384, 64, backend.capabilities)
    assert len({tile.columns for tile in best}) == len(best)
    costs = [tiles.rank_tiles(196, 384, 64, 2, 16).index(tile) for tile in best]
    assert costs == sorted(costs)


@pytest.mark.parametrize("variant", sweep(VARIANTS, "gemm", "depthwise"))
def test_a_narrow_device_gets_small_tiles(backend, variant):
    layer, _, tolerance = VARIANTS[variant]
    narrow = replace(backend.capabilities, vector_floats=8)

    def default(node, context):
        return family_of(node, context.graph).lower(node, replace(context, device=narrow))[0]

    check_alone(backend, layer, default, tolerance)


@pytest.mark.parametrize(("outputs", "group_in", "channels"), [(40, 2, 20), (24, 12, 48), (9, 2, 6)])
def test_a_panel_reads_every_channel_of_its_groups(outputs, group_in, channels):
    group_out = outputs * group_in // channels
    for width in (16, 32, 48):
        depth = weights.grouped_depth(width, outputs, group_in, group_out, channels)
        for output in range(outputs):
            first = weights.first_channel(output // width, width, group_in, group_out, channels, depth)
            start = output // group_out * group_in
            assert first <= start
            assert start + group_in <= first + depth
