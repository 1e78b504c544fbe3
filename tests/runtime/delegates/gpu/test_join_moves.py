"""Chains of TRANSPOSE and RESHAPE: what is left of them, and that the copies move the same elements."""

import numpy as np
import pytest

from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.passes.hoist_transpose import hoist_transpose
from runtime.delegates.gpu.passes.join_moves import join_moves
from runtime.delegates.gpu.passes.remove_identity import remove_identity
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.models import ModelBuilder, whole
from tests.runtime.delegates.gpu.test_delegate import run
from tests.runtime.guard_zones import guard_zones


class Chains(ModelBuilder):
    """Moves of tensors; a step is a tuple of axes to transpose by, or a list of extents to reshape to."""

    def moved(self, x, *steps):
        for step in steps:
            shape = self.tensors[x].shape
            if isinstance(step, tuple):
                perm = self.constant(np.array(step, np.int32))
                x = self.op(Op.TRANSPOSE, [x, perm], [shape[axis] for axis in step])
            else:
                x = self.op(Op.RESHAPE, [x], step, new_shape=step)
        return x

    def ends(self, x):
        """Add an operator that is no move behind `x`."""
        return self.op(Op.RELU, [x], self.tensors[x].shape)

    def joined(self, *outputs):
        return join_moves(build_graph(whole(self.build(*outputs))))


def names(graph):
    return [node.op.name for node in graph.nodes]


def numpy_moved(x, *steps):
    for step in steps:
        x = x.transpose(step) if isinstance(step, tuple) else x.reshape(step)
    return x


TOKENS = ((0, 2, 1), [1, 7, 5, 6], (0, 2, 3, 1))
"""Tokens [1, 30, 7] to an image [1, 5, 6, 7], as a network with channels first goes."""

SHUFFLE = ((0, 3, 1, 2), [1, 2, 3, 5, 4], (0, 2, 1, 3, 4), [1, 6, 5, 4], (0, 2, 3, 1))
"""The channels of [1, 5, 4, 6] as two groups that take turns."""


def test_a_chain_that_restores_the_order_is_a_reshape():
    build = Chains()
    graph = build.joined(build.ends(build.moved(build.ends(build.input(1, 30, 7)), *TOKENS)))
    assert names(graph) == ["RELU", "RESHAPE", "RELU"]
    # The plan shows where the operators went.
    assert graph.nodes[1].sources == (1, 2, 3)


def test_a_chain_to_the_same_shape_and_back_is_nothing():
    build = Chains()
    graph = build.joined(build.ends(build.moved(build.ends(build.input(2, 3, 5)), (2, 0, 1), (1, 2, 0))))
    assert names(remove_identity(graph)) == ["RELU", "RELU"]


def test_a_chain_of_other_transpositions_is_one_copy():
    build = Chains()
    graph = build.joined(build.ends(build.moved(build.ends(build.input(1, 5, 4, 6)), *SHUFFLE)))
    assert names(graph) == ["RELU", "TRANSPOSE", "RELU"]


def test_two_transpositions_of_a_tensor_are_one_by_their_permutation():
    build = Chains()
    moved = build.moved(build.ends(build.input(1, 5, 4, 6)), (0, 3, 1, 2), (0, 2, 1, 3))
    (_, turned, _) = build.joined(build.ends(moved)).nodes
    assert turned.attributes == {"perm": (0, 1, 3, 2)}


def test_what_others_read_between_stays():
    build = Chains()
    x = build.ends(build.input(2, 3, 5))
    between = build.moved(x, (2, 0, 1))
    graph = build.joined(build.ends(between), build.ends(build.moved(between, (1, 2, 0))), between)
    assert names(graph) == ["RELU", "TRANSPOSE", "RELU", "RESHAPE", "RELU"]
    assert graph.nodes[3].inputs == (x,)


def test_axes_that_end_inside_of_others_stay_as_they_are():
    build = Chains()
    # Six is not divided by four: no digits describe what the second transposition makes.
    steps = ((1, 0), [4, 6], (1, 0))
    graph = build.joined(build.ends(build.moved(build.ends(build.input(4, 6)), *steps)))
    assert names(graph) == ["RELU", "TRANSPOSE", "RESHAPE", "TRANSPOSE", "RELU"]


def in_front(build, *outputs):
    return join_moves(hoist_transpose(build_graph(whole(build.build(*outputs)))))


def test_a_sum_that_is_transposed_back_needs_no_copy_of_what_was_transposed():
    build = Chains()
    shape = (1, 4, 6, 5)
    turned = [build.moved(build.ends(build.input(*shape)), (0, 3, 1, 2)) for _ in range(2)]
    total = build.op(Op.ADD, turned, (1, 5, 4, 6))
    graph = in_front(build, build.ends(build.moved(total, (0, 2, 3, 1))))
    assert names(graph) == ["RELU", "RELU", "RESHAPE", "RESHAPE", "ADD", "RELU"]
    assert {graph.values[node.outputs[0]].shape for node in graph.nodes} == {shape}


@pytest.mark.parametrize("shape", [(5,), (1, 5, 4, 6)])
def test_a_sum_with_what_no_move_made_is_transposed_itself(shape):
    build = Chains()
    turned = build.moved(build.ends(build.input(1, 4, 5, 6)), (0, 2, 1, 3))
    other = build.ends(build.input(1, 5, 4, 6)) if len(shape) > 1 else build.constant(np.ones(6, np.float32))
    total = build.op(Op.ADD, [turned, other], (1, 5, 4, 6))
    graph = in_front(build, build.ends(build.moved(total, (0, 2, 1, 3))))
    assert names(graph)[-3:] == ["ADD", "TRANSPOSE", "RELU"]
    assert names(graph).count("TRANSPOSE") == 2


def test_a_result_that_is_read_before_it_is_transposed_stays_where_it_is():
    build = Chains()
    half = build.op(Op.TANH, [build.moved(build.ends(build.input(3, 5)), (1, 0))], (5, 3))
    graph = in_front(build, build.ends(build.moved(half, (1, 0))), build.ends(half))
    assert names(graph) == ["RELU", "TRANSPOSE", "TANH", "TRANSPOSE", "RELU", "RELU"]


def test_of_two_transpositions_behind_steps_the_first_is_hoisted():
    build = Chains()
    x = build.moved(build.ends(build.input(3, 5)), (1, 0))
    half = build.moved(build.op(Op.TANH, [x], (5, 3)), (1, 0))
    graph = in_front(build, build.ends(build.moved(build.op(Op.TANH, [half], (3, 5)), (1, 0))))
    assert names(graph) == ["RELU", "RESHAPE", "TANH", "TANH", "TRANSPOSE", "RELU"]


def of_digits(node, x, shape):
    """Apply the places of a joined node by numpy: the elements along the digits of every axis."""
    if node.op == Op.RESHAPE:
        return x.reshape(shape)
    if "perm" in node.attributes:
        return x.transpose(node.attributes["perm"])
    offset = np.zeros((), np.int64)
    strides = np.array(x.strides) // x.itemsize
    for place in (place for axis in node.attributes["places"] for place in axis):
        offset = offset[..., None] + np.arange(place.extent) * place.step * strides[place.axis]
    return x.reshape(-1)[offset].reshape(shape)


def by_numpy(graph, x):
    """Return the graph's output where all of it but RELU in front and behind are moves, which numpy does."""
    for node in graph.nodes[1:-1]:
        x = of_digits(node, x, graph.values[node.outputs[0]].shape)
    return x


REGROUPED = ((0, 5, 1, 3, 2, 4), [1, 7, 3, 2, 3, 2], (0, 2, 4, 3, 5, 1), [1, 9, 4, 7], (0, 2, 1, 3))
"""Windows [1, 2, 2, 3, 3, 7] of 3 x 3 pixels to windows of 2 x 2, with channels first in between."""


def test_between_windows_of_unlike_sizes_rows_of_channels_are_moved_twice():
    build, x = Chains(), np.arange(252, dtype=np.float32).reshape(1, 2, 2, 3, 3, 7)
    graph = build.joined(build.ends(build.moved(build.ends(build.input(*x.shape)), *REGROUPED)))
    assert names(graph) == ["RELU", "TRANSPOSE", "TRANSPOSE", "RELU"]
    for node in graph.nodes[1:-1]:
        (row,) = node.attributes["places"][-1]
        assert (row.extent, row.step) == (7, 1)
    np.testing.assert_array_equal(by_numpy(graph, x), numpy_moved(x, *REGROUPED))
    assert [node.sources for node in graph.nodes] == [(0,), (1, 2), (3, 4, 5), (6,)]


def test_random_chains_move_the_same_elements():
    random, joined = np.random.default_rng(3), 0
    for _ in range(200):
        shape = [int(extent) for extent in random.choice([1, 2, 3, 4, 6], random.integers(2, 5))]
        x, steps = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), []
        for _ in range(random.integers(2, 6)):
            before = numpy_moved(x, *steps).shape
            if random.random() < 0.5:
                steps.append(tuple(int(axis) for axis in random.permutation(len(before))))
            else:
                steps.append(regrouped(before, random))
        build = Chains()
        end = build.moved(build.ends(build.input(*shape)), *steps)
        graph = build.joined(build.ends(end))
        np.testing.assert_array_equal(by_numpy(graph, x), numpy_moved(x, *steps), err_msg=f"{shape} {steps}")
        joined += len(graph.nodes) - 2 < len(steps)
    assert joined > 50, "chains that are not touched prove nothing"


def regrouped(shape, random):
    """Return the extents with two neighbours joined, or an even one halved, or a new one of 1."""
    shape = list(shape)
    axis = int(random.integers(len(shape)))
    if random.random() < 0.5 and axis + 1 < len(shape):
        return [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]]
    head = 2 if shape[axis] % 2 == 0 else 1
    return [*shape[:axis], head, shape[axis] // head, *shape[axis + 1 :]]


CASES = [
    ((1, 5, 4, 6), SHUFFLE),
    ((1, 30, 7), (*TOKENS, (3, 0, 2, 1))),
    ((2, 3, 34), ((0, 2, 1), [2, 2, 17, 3], (2, 0, 3, 1))),
    ((3, 2, 255), ((2, 1, 0), [5, 51, 6], (1, 2, 0))),
    ((1, 2, 2, 3, 3, 7), REGROUPED),
]


@pytest.mark.slow
def test_joined_copies_have_the_elements_of_the_chain():
    build = Chains()
    inputs = [build.input(*shape) for shape, _ in CASES]
    model = build.build(*(build.moved(x, *steps) for x, (_, steps) in zip(inputs, CASES, strict=True)))
    values = [np.arange(np.prod(shape), dtype=np.int32).view(np.float32).reshape(shape) for shape, _ in CASES]
    with guard_zones() as runs:
        found = run(model, *values, tuning="none")
    assert runs
    for actual, value, (_, steps) in zip(found, values, CASES, strict=True):
        np.testing.assert_array_equal(actual.view(np.int32), numpy_moved(value, *steps).view(np.int32))
