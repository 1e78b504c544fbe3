"""Every way to compute a batch of matrix products, forced, against numpy in float64."""

from itertools import product

import numpy as np
import pytest

from runtime.delegates.gpu.alternatives import layout_rules
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.lowering import family_of
from runtime.delegates.gpu.lowering.matmul.batch_matmul.product import overlapping_panels
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile
from runtime.delegates.gpu.passes import optimise
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.conv_layers import EXACT, assert_close, run
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
from tests.sweeps import sweep

SHAPES = {
    "one_row": ((1, 33, 40), False),
    "few_rows": ((3, 20, 17), False),
    "one_column": ((19, 17, 1), False),
    "vectors": ((13, 16, 48), False),
    "constant": ((13, 5, 51), True),
}
"""Rows, depth and columns, and whether the right side is constant."""

TILES = [Tile(1, 16), Tile(3, 48), Tile(12, 32)]

MOST = 6
"""Nodes that compute each product, one for each candidate; functions that occur again cost nothing."""


def operands(shape, adj_x, adj_y):
    """Build a batch of two lefts by three rights, in the order that the adjoints ask for, and their
    product.
    """
    m, k, n = shape
    random = np.random.default_rng(3)
    x, z = random.standard_normal((2, 1, m, k)), random.standard_normal((3, k, n))
    return (x.swapaxes(-1, -2) if adj_x else x), (z.swapaxes(-1, -2) if adj_y else z), x @ z


def computed(backend, shape, constant):
    """Adjoints → (name of the candidate, its result, the product) for each candidate of that product."""
    build, inputs, outputs, names = ModelBuilder(), [], [], {}
    expected = []
    for adj_x, adj_y in product((False, True), repeat=2):
        x, z, y = operands(shape, adj_x, adj_y)
        left, inputs = build.input(*x.shape), [*inputs, x]
        if constant:
            right = build.constant(z.astype(np.float32))
        else:
            right, inputs = build.input(*z.shape), [*inputs, z]
        for _ in range(MOST):
            outputs.append(build.op(Op.BATCH_MATMUL, [left, right], y.shape, adj_x=adj_x, adj_y=adj_y))
            expected.append(((adj_x, adj_y), y))

    def choose(node, context):
        ways = family_of(node, context.graph).lower(node, context)
        assert len(ways) <= MOST
        way = ways[node.id % MOST % len(ways)]
        names[node.id] = way.name
        return way

    found = run(backend, build.build(*outputs), inputs, choose, {Op.BATCH_MATMUL})
    results = {adjoints: [] for adjoints, _ in expected}
    for number, (adjoints, y) in enumerate(expected):
        results[adjoints].append((names[number], found[number], y))
    return results


@pytest.mark.parametrize("name", sweep(SHAPES, "few_rows", "constant"))
def test_every_candidate_gives_the_product(monkeypatch, backend, name):
    shape, constant = SHAPES[name]
    fitting = [tile for tile in TILES if tile.rows <= shape[0] and tile.columns < shape[2] + 16]
    place = "runtime.delegates.gpu.lowering.matmul.batch_matmul.product.best_tiles"
    monkeypatch.setattr(place, lambda *_: fitting)
    for results in computed(backend, shape, constant).values():
        assert len({way for way, _, _ in results}) >= len(fitting)
        for _, found, expected in results:
            assert_close(found, expected, EXACT)


def test_a_computed_right_side_is_read_in_place_or_packed_and_few_rows_are_dots(backend):
    found = {}
    for shape in ((48, 16, 32), (3, 16, 32)):
        for adjoints, results in computed(backend, shape, False).items():
            found[shape[0], *adjoints] = {way.split("_")[0] for way, _, _ in results}
    for adj_x in (False, True):
        assert found[48, adj_x, False] == {"rows", "panels"}
        assert found[48, adj_x, True] == {"panels"}
        assert found[3, adj_x, False] == {"rows"}
    assert found[3, False, True] == {"dots", "panels"}
    assert found[3, True, True] == {"panels"}


def test_the_last_panel_overlaps_its_neighbour():
    matrices = np.arange(2 * 3 * 40, dtype=np.float32).reshape(2, 3, 40)
    panels = overlapping_panels(matrices, 32)
    assert panels.shape == (2, 2, 3, 32)
    np.testing.assert_array_equal(panels[:, 0], matrices[:, :, :32])
    np.testing.assert_array_equal(panels[:, 1, :, :24], matrices[:, :, 16:])
    assert not panels[:, 1, :, 24:].any()


def test_the_scale_and_the_mask_of_attention_are_fused_into_its_product():
    build = ModelBuilder()
    query, key, mask = build.input(2, 3, 7, 5), build.input(2, 3, 7, 5), build.input(2, 1, 1, 7)
    scores = build.op(Op.BATCH_MATMUL, [query, key], (2, 3, 7, 7), adj_x=False, adj_y=True)
    scaled = build.op(Op.MUL, [scores, build.constant(np.float32([0.5]))], (2, 3, 7, 7))
    y = build.op(Op.ADD, [scaled, mask], (2, 3, 7, 7))
    graph = optimise(build_graph(whole(build.build(y))), layout_rules())
    assert sum(node.op != Op.RESHAPE for node in graph.nodes) == 1


HEADS = {
    "heads": ((2, 7, 3, 5), (0, 2, 1, 3)),
    "heads_of_vectors": ((2, 17, 3, 32), (0, 2, 1, 3)),
    "one_batch": ((1, 7, 3, 5), (0, 2, 1, 3)),
    "outer": ((3, 2, 7, 5), (1, 0, 2, 3)),
    "plain": ((2, 3, 7, 5), (0, 1, 2, 3)),
}
"""The shape of queries or keys before they are permuted to [batch, heads, positions, size], and how."""


FORMS = [
    ("heads", "heads", False),
    ("heads_of_vectors", "heads_of_vectors", True),
    ("one_batch", "one_batch", True),
    ("plain", "heads", True),
    ("outer", "plain", False),
]
"""Forms of queries and keys, and whether their batch dimensions are merged behind the permutation."""


def scores(build, query, key, merged):
    """Multiply queries by keys whose last two dimensions are exchanged, with one batch dimension if `merged`.

    Returns the inputs, the tensors of the product and of its right side, and the product in float64.
    """
    inputs, sides = [], []
    for number, (shape, given) in enumerate((HEADS[query], HEADS[key])):
        x = np.random.default_rng(number).standard_normal(shape)
        inputs.append(x)
        side = build.input(*shape)
        axes = given if number == 0 else (*given[:2], given[3], given[2])
        x = x.transpose(axes)
        if axes != (0, 1, 2, 3):
            side = build.op(Op.TRANSPOSE, [side, build.constant(np.int32(axes))], x.shape)
        if merged:
            x = x.reshape(-1, *x.shape[-2:])
            side = build.op(Op.RESHAPE, [side, build.constant(np.int32(x.shape))], x.shape)
        sides.append((side, x))
    (left, x), (right, z) = sides
    return (
        inputs,
        build.op(Op.BATCH_MATMUL, [left, right], (x @ z).shape, adj_x=False, adj_y=False),
        right,
        x @ z,
    )


def test_transpositions_in_front_of_a_product_become_strides(backend):
    build, inputs, outputs, expected = ModelBuilder(), [], [], []
    for form, _ in product(FORMS, ("first candidate", "last")):
        given, output, _, result = scores(build, *form)
        inputs, outputs, expected = [*inputs, *given], [*outputs, output], [*expected, result]
    model = build.build(*outputs)
    graph = optimise(build_graph(whole(model)), layout_rules())
    assert Op.TRANSPOSE not in {node.op for node in graph.nodes}
    products = [operator.index for operator in build.operators if operator.opcode == Op.BATCH_MATMUL]

    def choose(node, context):
        return family_of(node, context.graph).lower(node, context)[-(products.index(node.id) % 2)]

    found = run(backend, model, inputs, choose, {Op.BATCH_MATMUL})
    for got, result in zip(found, expected, strict=True):
        assert_close(got, result, EXACT)


def test_a_transposition_with_another_reader_stays():
    build = ModelBuilder()
    _, y, right, _ = scores(build, "heads", "heads", False)
    model = build.build(y, build.op(Op.NEG, [right], (2, 3, 5, 7)))
    graph = optimise(build_graph(whole(model)), layout_rules())
    assert [node.op for node in graph.nodes].count(Op.TRANSPOSE) == 1


def test_a_transposition_of_a_broadcast_operand_or_of_its_runs_stays():
    build = ModelBuilder()
    left, right = build.input(2, 3, 7, 5), build.input(1, 4, 5)
    turned = build.op(Op.TRANSPOSE, [right, build.constant(np.int32([0, 2, 1]))], (1, 5, 4))
    y = build.op(Op.BATCH_MATMUL, [left, turned], (2, 3, 7, 4), adj_x=False, adj_y=False)
    spread = build.op(Op.TRANSPOSE, [build.input(4, 7, 6), build.constant(np.int32([2, 0, 1]))], (6, 4, 7))
    z = build.op(Op.BATCH_MATMUL, [spread, build.input(6, 7, 2)], (6, 4, 2), adj_x=False, adj_y=False)
    graph = optimise(build_graph(whole(build.build(y, z))), layout_rules())
    assert [node.op for node in graph.nodes].count(Op.TRANSPOSE) == 2


BATCH, LENGTH, NUMBERS = 2, 17, 3
"""Sequences, their positions, and what attention reads of each: queries, keys and values."""


def cut(build, x, shape, axis, number):
    """Slice one of three equal parts of `axis`."""
    size = shape[axis] // NUMBERS
    begins = [number * size if i == axis else 0 for i in range(len(shape))]
    made = [size if i == axis else extent for i, extent in enumerate(shape)]
    return build.op(Op.SLICE, [x, build.constant(np.int32(begins)), build.constant(np.int32(made))], made)


def turned(build, x, axes, shape):
    return build.op(Op.TRANSPOSE, [x, build.constant(np.int32(axes))], [shape[axis] for axis in axes])


def shaped(build, x, *shape):
    return build.op(Op.RESHAPE, [x, build.constant(np.int32(shape))], shape)


def cut_channels(build, x, heads, size, number):
    """Cut [BATCH, LENGTH, 3 * heads * size], then exchange heads and positions."""
    part = cut(build, x, (BATCH, LENGTH, NUMBERS * heads * size), 2, number)
    split = shaped(build, part, BATCH, LENGTH, heads, size)
    if number == 1:
        split = build.op(Op.MUL, [split, build.constant(np.float32(0.3))], (BATCH, LENGTH, heads, size))
    return turned(build, split, (0, 2, 1, 3), (BATCH, LENGTH, heads, size))


def cut_first(build, x, heads, size, number):
    """Bring what is cut to the front, as windowed attention does."""
    split = shaped(build, x, BATCH, LENGTH, NUMBERS, heads, size)
    front = turned(build, split, (2, 0, 3, 1, 4), (BATCH, LENGTH, NUMBERS, heads, size))
    part = cut(build, front, (NUMBERS, BATCH, heads, LENGTH, size), 0, number)
    part = shaped(build, part, BATCH, heads, LENGTH, size)
    scale = build.constant(np.float32(0.3))
    return build.op(Op.MUL, [part, scale], (BATCH, heads, LENGTH, size)) if number == 1 else part


@pytest.mark.parametrize(("size", "cuts"), [(32, 0), (20, 3)], ids=["whole_vectors", "parts_of_vectors"])
def test_attention_reads_what_it_cuts_out_of_one_result(backend, size, cuts):
    build, heads, inputs, outputs, expected = ModelBuilder(), 2, [], [], []
    for way in (cut_channels, cut_first):
        x = np.random.default_rng(len(inputs)).standard_normal((BATCH, LENGTH, NUMBERS * heads * size))
        given = build.input(*x.shape)
        query, key, value = (way(build, given, heads, size, number) for number in range(NUMBERS))
        square = (BATCH, heads, LENGTH, LENGTH)
        scored = build.op(Op.BATCH_MATMUL, [query, key], square, adj_x=False, adj_y=True)
        y = build.op(Op.BATCH_MATMUL, [scored, value], (*square[:3], size), adj_x=False, adj_y=False)
        outputs.append(y)
        q, k, v = x.reshape(BATCH, LENGTH, NUMBERS, heads, size).transpose(2, 0, 3, 1, 4)
        inputs, expected = [*inputs, x], [*expected, 0.3 * q @ k.swapaxes(-1, -2) @ v]
    model = build.build(*outputs)
    graph = optimise(build_graph(whole(model)), layout_rules())
    ops = [node.op for node in graph.nodes]
    assert (ops.count(Op.SLICE), ops.count(Op.MUL), ops.count(Op.TRANSPOSE)) == (cuts, 0, 0)

    def choose(node, context):
        return family_of(node, context.graph).lower(node, context)[0]

    found = run(backend, model, inputs, choose, {Op.BATCH_MATMUL})
    for got, result in zip(found, expected, strict=True):
        assert_close(got, result, EXACT)
