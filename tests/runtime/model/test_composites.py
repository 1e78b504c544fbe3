"""Composites whose decompositions take their places, and those that stay what they are."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model import composites
from runtime.model.composites import with_decompositions
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.graphs import several
from tests.runtime.models import Builder, per_tensor


def call(b: Builder, given, made, index: int) -> None:
    options = {"name": "odml.test", "decomposition_subgraph_index": index, "version": 1}
    b.operator(Op.STABLEHLO_COMPOSITE, given, made, options)


def outer(index: int = 1, dtype=np.float32, **more) -> tuple[Builder, list[int]]:
    """x → composite → y → NEG."""
    b = Builder()
    x, y, z = b.input(dtype, (2,), **more), b.tensor(dtype, (2,)), b.tensor(dtype, (2,))
    call(b, [x], [y], index)
    b.operator(Op.NEG, [y], [z])
    return b, [z]


def doubled(count: int = 1, dtype=np.float32) -> tuple[Builder, list[int]]:
    """`count` additions of a constant."""
    b = Builder()
    y = b.input(dtype, (2,))
    one = b.constant(np.ones(2, dtype))
    for _ in range(count):
        x, y = y, b.tensor(dtype, (2,))
        b.operator(Op.ADD, [x, one], [y])
    return b, [y]


def nested(index: int) -> tuple[Builder, list[int]]:
    """Two composites of the subgraph `index`."""
    b = Builder()
    x, between, y = b.input(np.float32, (2,)), b.tensor(np.float32, (2,)), b.tensor(np.float32, (2,))
    call(b, [x], [between], index)
    call(b, [between], [y], index)
    return b, [y]


def expanded(*parts):
    return with_decompositions(read_model(several(*parts))).subgraphs[0]


def names(graph) -> list[str]:
    return [o.name for o in graph.operators]


def test_operators_and_tensors_of_a_decomposition_take_the_composite_s_place():
    graph = expanded(outer(), doubled(2))
    assert names(graph) == ["ADD", "ADD", "NEG"]
    assert [o.index for o in graph.operators] == [0, 1, 2]
    assert [t.index for t in graph.tensors] == list(range(len(graph.tensors)))
    first, second, last = graph.operators
    assert (first.inputs[0], second.outputs[0], last.inputs[0]) == (0, 1, 1)
    assert first.outputs[0] == second.inputs[0] >= 3
    assert graph.tensors[first.inputs[1]].is_constant


def test_composites_within_composites_are_expanded_too():
    graph = expanded(outer(), nested(2), doubled(3))
    assert names(graph) == ["ADD"] * 6 + ["NEG"]


def passing() -> tuple[Builder, list[int]]:
    b = Builder()
    return b, [b.input(np.float32, (2,))]


def with_a_variable() -> tuple[Builder, list[int]]:
    b, outputs = doubled()
    b.tensor(np.float32, (2,), is_variable=True)
    return b, outputs


@pytest.mark.parametrize(
    "parts",
    [
        (outer(), passing()),
        (outer(), with_a_variable()),
        (outer(), doubled(dtype=np.int32)),
        (outer(quantization=per_tensor(0.5)), doubled()),
    ],
    ids=["a result that is an operand", "a variable inside", "another type", "another quantisation"],
)
def test_a_composite_whose_decomposition_cannot_stand_there_stays(parts):
    assert names(expanded(*parts)) == ["STABLEHLO_COMPOSITE", "NEG"]


def test_composites_that_would_become_too_many_operators_stay(monkeypatch):
    monkeypatch.setattr(composites, "MOST_OPERATORS", 6)
    assert names(expanded(outer(), nested(2), doubled(3))) == ["STABLEHLO_COMPOSITE", "NEG"]
    assert len(names(expanded(outer(), nested(2), doubled(2)))) == 5
