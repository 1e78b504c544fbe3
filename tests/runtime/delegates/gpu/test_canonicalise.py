"""Operators that are others in disguise, graph in and graph out."""

import numpy as np
import pytest

from runtime.delegates.gpu.passes.assign_layouts import assign_layouts
from runtime.delegates.gpu.passes.canonicalise import canonicalise
from runtime.delegates.gpu.passes.remove_identity import remove_identity
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.models import ModelBuilder
from tests.runtime.delegates.gpu.test_passes import EVERYTHING, graph_of, pool


def names(graph):
    return [node.op.name for node in graph.nodes]


def split(build, source, shapes, axis):
    inputs = [build.constant(np.int32(axis)), source]
    return build.ops(Op.SPLIT, inputs, shapes, num_splits=len(shapes))


def test_a_split_is_a_slice_for_each_output():
    build = ModelBuilder()
    parts = split(build, build.input(1, 4, 4, 6), [(1, 4, 4, 3)] * 2, -1)
    graph = canonicalise(graph_of(build, *parts))
    assert names(graph) == ["SLICE", "SLICE"]
    assert [node.outputs for node in graph.nodes] == [(part,) for part in parts]
    assert [node.attributes["starts"] for node in graph.nodes] == [(0, 0, 0, 0), (0, 0, 0, 3)]
    assert {node.sources for node in graph.nodes} == {(0,)}
    assert len({node.id for node in graph.nodes}) == 2


def test_a_part_that_nothing_reads_is_not_made():
    build = ModelBuilder()
    parts = split(build, build.input(1, 4, 4, 6), [(1, 4, 4, 3)] * 2, -1)
    assert [node.outputs for node in canonicalise(graph_of(build, parts[1])).nodes] == [(parts[1],)]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_pack_writes_its_parts_in_place(axis):
    build = ModelBuilder()
    parts = [pool(build, build.input(1, 4, 4, 16), (1, 2, 2, 16)) for _ in range(2)]
    shape = [1, 2, 2, 16]
    shape.insert(axis, 2)
    packed = build.op(Op.PACK, parts, shape, axis=axis, values_count=2)
    graph = canonicalise(graph_of(build, build.op(Op.RELU, [packed], shape)))
    assert names(graph)[2:] == ["RESHAPE", "RESHAPE", "CONCATENATION", "RELU"]
    copies = names(assign_layouts(graph, EVERYTHING)).count("RESHAPE")
    assert copies == (2 if axis == 2 else 0)


def test_a_new_last_axis_does_not_make_a_padded_row_of_each_element():
    build = ModelBuilder()
    x, y = build.input(4, 7), build.input(4, 7)
    graph = canonicalise(graph_of(build, build.op(Op.PACK, [x, y], (4, 7, 2), axis=2, values_count=2)))
    assert names(graph) == ["RESHAPE", "RESHAPE", "CONCATENATION", "TRANSPOSE"]
    assert {value.channels for value in graph.values.values()} == {7, 2}


@pytest.mark.parametrize(
    ("op", "shape", "operand"),
    [(Op.SQUEEZE, (2, 2, 16), None), (Op.EXPAND_DIMS, (1, 1, 2, 2, 16), 0)],
    ids=["squeeze", "expand_dims"],
)
def test_what_only_changes_the_shape_is_a_view(op, shape, operand):
    build = ModelBuilder()
    y = pool(build, build.input(1, 4, 4, 16), (1, 2, 2, 16))
    inputs = [y] if operand is None else [y, build.constant(np.int32(operand))]
    graph = canonicalise(graph_of(build, build.op(Op.RELU, [build.op(op, inputs, shape)], shape)))
    assert names(assign_layouts(graph, EVERYTHING)) == ["MAX_POOL_2D", "RELU"]


def test_a_transpose_of_axes_of_length_1_is_a_reshape():
    build = ModelBuilder()
    y = pool(build, build.input(1, 4, 2, 16), (1, 2, 1, 16))
    moved = build.op(Op.TRANSPOSE, [y, build.constant(np.int32([2, 1, 0, 3]))], (1, 2, 1, 16))
    assert names(canonicalise(graph_of(build, moved))) == ["MAX_POOL_2D", "RESHAPE"]
    swapped = build.op(Op.TRANSPOSE, [y, build.constant(np.int32([0, 3, 2, 1]))], (1, 16, 1, 2))
    assert names(canonicalise(graph_of(build, swapped)))[-1] == "TRANSPOSE"


def test_edges_of_batches_of_blocks_are_a_pad_and_a_slice():
    build = ModelBuilder()
    blocks, edges = build.constant(np.int32([2, 2])), build.constant(np.int32([[1, 0], [0, 1]]))
    x = build.input(1, 3, 5, 7)
    images = build.op(Op.SPACE_TO_BATCH_ND, [x, blocks, edges], (4, 2, 3, 7))
    back = build.op(Op.BATCH_TO_SPACE_ND, [images, blocks, edges], (1, 3, 5, 7))
    graph = canonicalise(graph_of(build, back))
    assert names(graph) == ["PAD", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "SLICE"]
    assert graph.nodes[0].attributes["paddings"] == ((0, 0), (1, 0), (0, 1), (0, 0))
    assert graph.nodes[3].attributes["starts"] == (0, 1, 0, 0)
    assert [node.sources for node in graph.nodes] == [(0,), (0,), (1,), (1,)]


def test_a_repetition_that_repeats_nothing_is_no_copy():
    build = ModelBuilder()
    y = pool(build, build.input(1, 4, 4, 16), (1, 2, 2, 16))
    once = build.op(Op.TILE, [y, build.constant(np.int32([1, 1, 1, 1]))], (1, 2, 2, 16))
    graph = canonicalise(graph_of(build, build.op(Op.RELU, [once], (1, 2, 2, 16))))
    assert names(remove_identity(graph)) == ["MAX_POOL_2D", "RELU"]


def test_a_slice_backwards_over_all_is_no_reshape():
    build = ModelBuilder()
    bounds = [build.constant(np.int32([v])) for v in (-1, -8, -1)]
    y = build.op(Op.STRIDED_SLICE, [build.input(7), *bounds], (7,))
    assert names(canonicalise(graph_of(build, y))) == ["STRIDED_SLICE"]
