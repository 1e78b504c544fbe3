"""Convolutions by Winograd's method against numpy in float64, and which are transformed."""

import numpy as np
import pytest

from runtime.delegates.gpu.alternatives import candidates_of, layout_rules
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.lowering.spec import Context
from runtime.delegates.gpu.passes import optimise
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from tests.runtime.delegates.gpu.conv_layers import (
    EXACT,
    WINDOWS,
    WINOGRAD4,
    Layer,
    assert_close,
    check_alone,
    forced_winograd,
    run,
)
from tests.runtime.delegates.gpu.models import ModelBuilder, whole


def test_the_least_memory_leaves_no_winograd(backend):
    builder = ModelBuilder()
    x = builder.input(1, 56, 56, 64)
    weights = builder.constant(np.zeros((64, 3, 3, 64), np.float32))
    window = {"stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
    y = builder.op(Op.CONV_2D, [x, weights], [1, 56, 56, 64], padding=Padding.SAME, **window)
    graph = optimise(build_graph(whole(builder.build(y))), layout_rules())
    (node,) = graph.nodes

    def names(spares_memory: bool) -> list[str]:
        found = candidates_of(node, Context(graph, backend.capabilities, spares_memory))
        return [launch.instance.name for candidate in found for launch in candidate.launches]

    assert any("winograd" in name for name in names(spares_memory=False))
    assert names(spares_memory=True)
    assert not any("winograd" in name for name in names(spares_memory=True))


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("shape", "outputs", "same"),
    [((2, 9, 7, 17), 33, True), ((1, 6, 11, 16), 16, False), ((1, 4, 4, 33), 1, True)],
)
def test_winograd_gives_the_sums_of_a_plain_convolution(backend, size, shape, outputs, same):
    check_alone(
        backend,
        Layer(*shape, outputs, (3, 3), same=same),
        forced_winograd(size),
        EXACT if size == 2 else WINOGRAD4,
    )


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("shape", "dilation", "same"),
    [
        ((2, 9, 14, 17), 2, True),
        ((1, 13, 11, 16), 3, False),
        ((1, 7, 7, 16), 5, True),
        ((1, 6, 8, 16), 9, True),
    ],
)
def test_winograd_gives_the_sums_of_a_dilated_convolution(backend, size, shape, dilation, same):
    """Each of the maps that a dilation makes has several tiles, one, or a part of one."""
    layer = Layer(*shape, 33, (3, 3), dilation=dilation, same=same)
    check_alone(backend, layer, forced_winograd(size), EXACT if size == 2 else WINOGRAD4)


@pytest.mark.parametrize(("size", "channels", "outputs"), [(2, 48, 96), (4, 96, 48)])
def test_winograd_gives_the_sums_of_a_grouped_convolution(backend, size, channels, outputs):
    layer = Layer(2, 9, 7, channels, outputs, (3, 3), groups=3)
    check_alone(backend, layer, forced_winograd(size), EXACT if size == 2 else WINOGRAD4)


@pytest.mark.parametrize(
    ("channels", "outputs", "groups", "is_transformed"),
    [(128, 256, 2, True), (112, 112, 1, True), (32, 32, 2, False), (216, 216, 3, False)],
)
def test_wide_groups_of_whole_vectors_are_transformed(backend, channels, outputs, groups, is_transformed):
    layer = Layer(1, 28, 28, channels, outputs, (3, 3), groups=groups)
    found = names_of_candidates(backend, layer)
    assert any("winograd" in name for name in found) == is_transformed


@pytest.mark.parametrize(
    ("dilation", "expected"),
    [
        (2, ["winograd4x4"]),
        (4, ["winograd4x4", "winograd2x2"]),
        (24, ["winograd2x2", "direct"]),
        (65, ["direct"]),
    ],
)
def test_the_maps_of_a_dilation_choose_the_method(backend, dilation, expected):
    found = names_of_candidates(backend, Layer(1, 65, 65, 32, 32, (3, 3), dilation=dilation))
    assert list(dict.fromkeys(name.partition("_")[0] for name in found)) == expected


def names_of_candidates(backend, layer):
    """Of the layer's convolution, the best by the cost model first."""
    build = ModelBuilder()
    graph = optimise(
        build_graph(whole(build.build(layer.add_to(build, build.input(*layer.x.shape))))), layout_rules()
    )
    (node,) = [node for node in graph.nodes if node.op in WINDOWS]
    return [candidate.name for candidate in candidates_of(node, Context(graph, backend.capabilities))]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_winograd_spreads_what_is_not_finite_over_its_tiles_alone(backend, size, special):
    layer, y, x = Layer(1, 14, 13, 16, 16, (3, 3)), 6, 8
    layer.x[0, y, x, 3] = 0.0
    expected = layer.result
    layer.x[0, y, x, 3] = special
    build = ModelBuilder()
    model = build.build(layer.add_to(build, build.input(*layer.x.shape)))
    (found,) = run(backend, model, [layer.x], forced_winograd(size))
    # The patch of a tile begins one pixel before it and ends one behind it.
    tiles = [
        np.isin(np.arange(extent) // size, [(place - 1) // size, (place + 1) // size])
        for extent, place in zip(layer.out, (y, x), strict=True)
    ]
    untouched = ~np.outer(*tiles)
    assert_close(found[0][untouched], expected[0][untouched], WINOGRAD4)
    # The fused activation makes the largest number of an infinity, as LiteRT's does.
    window = found[0, y - 1 : y + 2, x - 1 : x + 2]
    assert not (np.abs(window) < np.float32(3e38)).any()
