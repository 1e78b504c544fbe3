"""From when to when each tensor needs memory, by the order of the steps alone."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TypeAlias

from runtime.model.graph import Subgraph
from runtime.ops.support.value import Shape, dtype_of
from runtime.plan.arena import Arena, Lifetime, assign

Touched: TypeAlias = "tuple[Sequence[int], Sequence[int]]"
"""What a step reads and writes."""


def lifetimes(
    subgraph: Subgraph,
    steps: Sequence[Touched],
    shapes: Mapping[int, Shape],
    elsewhere: Container[int],
    kept: Iterable[int] = (),
) -> dict[int, Lifetime]:
    """Lifetimes of the tensors that the steps touch; those in `elsewhere` have their memory from others.

    Inputs, outputs and variables of the subgraph live throughout, and so do `kept` ones.
    """
    spans: dict[int, tuple[int, int]] = {}
    for position, (inputs, outputs) in enumerate(steps):
        for i in (*inputs, *outputs):
            first, last = spans.get(i, (position, position))
            spans[i] = (min(first, position), max(last, position))
    throughout = {i for i in kept if i in spans} | {i for i in spans if subgraph.tensors[i].is_variable}
    spans.update(dict.fromkeys((*subgraph.inputs, *subgraph.outputs, *throughout), (-1, len(steps))))
    found = {}
    for i, (first, last) in spans.items():
        dtype = dtype_of(subgraph.tensors[i].type)
        if i not in elsewhere and dtype is not None:
            found[i] = Lifetime(math.prod(shapes[i]) * dtype.itemsize, first, last)
    return found


def plan_arena(subgraph: Subgraph, lives: Mapping[int, Lifetime]) -> Arena:
    """Where tensors lie in the arena; strings lie elsewhere, as Python's objects."""
    return assign({i: life for i, life in lives.items() if not _is_object(subgraph, i)})


def _is_object(subgraph: Subgraph, index: int) -> bool:
    dtype = dtype_of(subgraph.tensors[index].type)
    return dtype is not None and dtype.hasobject
