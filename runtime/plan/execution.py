"""Steps bound to memory: kernels prepared, partitions compiled, intermediates in one arena."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.delegates.base import CompiledPartition, Partition, PartitionDelegate
from runtime.model.graph import Operator
from runtime.ops.spec import Array, Kernel, Scratch, dtype_of, prepare_kernel
from runtime.plan.arena import ALIGNMENT, Lifetime, assign
from runtime.plan.inference import GraphValues


@dataclass(frozen=True, slots=True)
class Step:
    """One operator on the CPU, or one partition on its delegate."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operator: Operator | None = None
    partition: Partition | None = None
    delegate: PartitionDelegate | None = None


def cpu_step(operator: Operator) -> Step:
    """An operator that stays on the CPU."""
    return Step(tuple(i for i in operator.inputs if i >= 0), operator.outputs, operator=operator)


class Execution:
    """A planned subgraph. `arrays` holds the memory of every tensor that a step reads or writes."""

    def __init__(self, values: GraphValues, steps: Sequence[Step], *, preserve_all: bool) -> None:
        self.arrays = _allocate(values, steps, preserve_all=preserve_all)
        self._compiled: list[CompiledPartition] = []
        scratch = Scratch()
        try:
            self._runs = [self._bind(values, step, scratch) for step in steps]
        except BaseException:
            self.close()
            raise

    def _bind(self, values: GraphValues, step: Step, scratch: Scratch) -> Kernel:
        if step.operator is not None:
            scratch.begin()
            return prepare_kernel(values.context(step.operator, self.arrays, scratch))
        assert step.partition is not None
        assert step.delegate is not None
        compiled = step.delegate.compile(step.partition)
        self._compiled.append(compiled)
        inputs = [self.arrays[i] for i in step.inputs]
        outputs = [self.arrays[i] for i in step.outputs]
        return _invocation(compiled.invoke, inputs, outputs)

    def run(self) -> None:
        """Every step once. Floating-point specials are values here, not warnings."""
        with np.errstate(all="ignore"):
            for run in self._runs:
                run()

    def close(self) -> None:
        """Release the delegates' memory."""
        while self._compiled:
            self._compiled.pop().close()


def _invocation(
    invoke: Callable[[Sequence[Array], Sequence[Array]], None], inputs: list[Array], outputs: list[Array]
) -> Kernel:
    return lambda: invoke(inputs, outputs)


def _allocate(values: GraphValues, steps: Sequence[Step], *, preserve_all: bool) -> dict[int, Array]:
    lifetimes = _lifetimes(values, steps, preserve_all=preserve_all)
    arena = assign(lifetimes)
    memory = np.zeros(arena.size + ALIGNMENT, np.uint8)
    base = -memory.ctypes.data % ALIGNMENT
    arrays: dict[int, Array] = {}
    for index, offset in arena.offsets.items():
        dtype = dtype_of(values.subgraph.tensors[index].type)
        assert dtype is not None
        start = base + offset
        view = memory[start : start + lifetimes[index].size]
        arrays[index] = view.view(dtype).reshape(values.shapes[index])
    return arrays


def _lifetimes(values: GraphValues, steps: Sequence[Step], *, preserve_all: bool) -> dict[int, Lifetime]:
    """Inputs and outputs of the subgraph live throughout, so that they survive an invocation."""
    spans: dict[int, tuple[int, int]] = {}
    end = len(steps)
    for i in (*values.subgraph.inputs, *values.subgraph.outputs):
        spans[i] = (-1, end)
    for position, step in enumerate(steps):
        for i in (*step.inputs, *step.outputs):
            first, last = spans.get(i, (position, position))
            spans[i] = (min(first, position), max(last, position))
    lifetimes = {}
    for i, (first, last) in spans.items():
        dtype = dtype_of(values.subgraph.tensors[i].type)
        if i in values.constants or dtype is None:
            continue
        size = math.prod(values.shapes[i]) * dtype.itemsize
        lifetimes[i] = Lifetime(size, -1, end) if preserve_all else Lifetime(size, first, last)
    return lifetimes
