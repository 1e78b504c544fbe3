"""Computes the steps during which each tensor needs memory, by the order of the steps alone."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TypeAlias

from runtime.common.arena import Arena, Lifetime, assign
from runtime.model.graph import Subgraph
from runtime.ops.support.value import Shape, dtype_of

ALIGNMENT = 64
"""Bytes to which every tensor of the arena is aligned: a cache line, and the width of an AVX-512 register.
Smaller, and vector loads of kernels cross cache lines; larger, and the many small tensors of a model waste
memory."""

Touched: TypeAlias = "tuple[Sequence[int], Sequence[int]]"
"""The tensors that a step reads, and those that it writes."""


def lifetimes(
    subgraph: Subgraph,
    steps: Sequence[Touched],
    shapes: Mapping[int, Shape],
    elsewhere: Container[int],
    kept: Iterable[int] = (),
) -> dict[int, Lifetime]:
    """Lifetimes of the tensors that the steps touch; those in `elsewhere` are not allocated here.

    Inputs, outputs and variables of the subgraph live throughout, and so do `kept` ones.
    """
    spans: dict[int, tuple[int, int]] = {}
    for position, (inputs, outputs) in enumerate(steps):
        for i in (*inputs, *outputs):
            first, last = spans.get(i, (position, position))
            spans[i] = (min(first, position), max(last, position))
    throughout = {i for i in kept if i in spans} | {i for i in spans if subgraph.tensors[i].is_variable}
    # From before the first step to behind the last: between runs, callers write inputs and read outputs.
    spans.update(dict.fromkeys((*subgraph.inputs, *subgraph.outputs, *throughout), (-1, len(steps))))
    found = {}
    for i, (first, last) in spans.items():
        dtype = dtype_of(subgraph.tensors[i].type)
        if i not in elsewhere and dtype is not None:
            found[i] = Lifetime(math.prod(shapes[i]) * dtype.itemsize, first, last)
    return found


def plan_arena(subgraph: Subgraph, lives: Mapping[int, Lifetime]) -> Arena[int]:
    """Place tensors in the arena, offsets in bytes; strings are Python objects outside the arena.

    The order of tensor indices decides among tensors of one size.
    """
    in_arena = {i: lives[i] for i in sorted(lives) if not _is_object(subgraph, i)}
    return assign(in_arena, ALIGNMENT)


def _is_object(subgraph: Subgraph, index: int) -> bool:
    dtype = dtype_of(subgraph.tensors[index].type)
    return dtype is not None and dtype.hasobject
