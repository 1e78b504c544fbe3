"""Recurrent cells step by step: rows of a sequence, packed weights, and the launch of one step.

A step waits for the state that the step before has left, so each is a launch of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up, shorten
from runtime.delegates.gpu.lowering import spec

ACTIVATIONS = {
    "NONE": "(x)",
    "RELU": "relu16(x)",
    "RELU6": "clamp16(x, 0.0f, 6.0f)",
    "RELU_N1_TO_1": "clamp16(x, -1.0f, 1.0f)",
    "TANH": "tanh16(x)",
}
"""Activations of a cell, as expressions of `kernels/common.cl` over a float16 `x`."""


def mixed_types(facts: spec.OperatorFacts, wanted: Sequence[ElementType]) -> Unsupported | None:
    """Return which input has not its type of `wanted`, of which the first decided, or None."""
    for i, element in enumerate(wanted):
        if facts.has_input(i) and facts.types.get(facts.operator.inputs[i]) is not element:
            tensor = facts.graph.subgraph.tensors[facts.operator.inputs[i]]
            return Unsupported(
                f"tensor {tensor.index} {shorten(tensor.name)!r} is {tensor.type.name.lower()}, where "
                f"{facts.operator.name} of {wanted[0].value} takes {element.value}"
            )
    return None


def unsupported_cell(
    facts: spec.OperatorFacts, states: Sequence[int], weights: Sequence[int]
) -> Unsupported | None:
    """Return why a cell with these inputs as states and weights has no kernel, or None."""
    if spec.activation_of(facts) not in ACTIVATIONS:
        return Unsupported(f"the activation {spec.activation_of(facts)} has no kernel")
    for i in states:
        if not facts.graph.subgraph.tensors[facts.operator.inputs[i]].is_variable:
            return Unsupported(f"the state in input {i} is no variable")
    for i in weights:
        if facts.has_input(i) and facts.constant(i) is None:
            return Unsupported(f"the weights in input {i} must be constant")
    return None


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one step in a value: the pixel of batch row 0, the distance to the next, the stride."""

    argument: spec.Argument
    first: int
    step: int
    stride: int

    def parameters(self, name: str) -> dict[str, int]:
        """Return the parameters as a kernel takes them, with `name` in front."""
        return {f"{name}_FIRST": self.first, f"{name}_STEP": self.step, f"{name}_STRIDE": self.stride}


@dataclass(frozen=True, slots=True)
class Extent:
    """The number of steps and batch rows of a sequence, and which of the two comes first in memory."""

    time: int
    batch: int
    time_major: bool

    def rows(self, context: spec.Context, value: int, t: int) -> Rows:
        """Return the rows of step `t` in a value."""
        stride = context.layout(value).pixel_stride
        if self.time_major:
            return Rows(value, t * self.batch, 1, stride)
        return Rows(value, t, self.time, stride)


def extent_of(node: Node, shape: Sequence[int]) -> Extent:
    """Return the extent of an input [batch, n], or of a sequence in the layout that attributes state."""
    if len(shape) == 2:
        return Extent(1, shape[0], time_major=True)
    time_major = bool(node.attributes["time_major"])
    first, second = shape[:2]
    return Extent(first, second, True) if time_major else Extent(second, first, False)


def whole(context: spec.Context, value: int) -> Rows:
    """Return the rows of a state [batch, n]."""
    return Rows(context.pointer(value), 0, 1, context.layout(value).pixel_stride)


def blocks_of(cells: int) -> int:
    """Vectors of 16 that hold the cells."""
    return ceil_div(cells, LANES)


def matrices_packed(name: str, gates: Sequence[spec.Array]) -> spec.PackedConstant:
    """Matrices [cells, n], one for each gate, as [block of 16 cells][n][gate][16]; cells beyond are zeros."""
    cells, depth = gates[0].shape

    def make() -> spec.Array:
        padded = np.zeros((len(gates), round_up(cells), depth), np.float32)
        padded[:, :cells] = gates
        blocks = padded.reshape(len(gates), blocks_of(cells), LANES, depth)
        return np.ascontiguousarray(blocks.transpose(1, 3, 0, 2))

    return spec.packed(name, len(gates) * round_up(cells) * depth, make)


def biases_packed(name: str, gates: Sequence[spec.Array]) -> spec.PackedConstant:
    """Vectors [cells], one for each gate, as [block of 16 cells][gate][16]."""
    return matrices_packed(name, [gate[:, None] for gate in gates])


def vectors_packed(name: str, vectors: Sequence[spec.Array]) -> spec.PackedConstant:
    """Vectors [cells] one after another, each padded with zeros to 16."""
    cells = vectors[0].size

    def make() -> spec.Array:
        padded = np.zeros((len(vectors), round_up(cells)), np.float32)
        padded[:, :cells] = vectors
        return padded

    return spec.packed(name, len(vectors) * round_up(cells), make)
