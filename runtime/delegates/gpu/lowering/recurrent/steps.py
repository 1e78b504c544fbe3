"""Recurrent cells step by step: rows of a sequence, packed weights, and the launch of one step.

A step waits for the state that the step before has left, so each is a launch of its own. In work-groups the
products of the inputs of several steps are one product ahead of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph import work_groups
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Layout, Node, ceil_div, round_up, shorten
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.gemm import Product
from runtime.delegates.gpu.lowering.matmul.conv.groups import product_in_groups
from runtime.delegates.gpu.lowering.matmul.conv.weights import Weights

ACTIVATIONS = {
    "NONE": "(x)",
    "RELU": "relu{lanes}(x)",
    "RELU6": "clamp{lanes}(x, 0.0f, 6.0f)",
    "RELU_N1_TO_1": "clamp{lanes}(x, -1.0f, 1.0f)",
    "TANH": "tanh{lanes}(x)",
}
"""Activations of a cell, as expressions over a vector `x` of so many floats."""


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
        # Row b of step t is the pixel t * batch + b, or b * time + t.
        first, step = (t * self.batch, 1) if self.time_major else (t, self.time)
        return Rows(context.pointer(value), first, step, stride)


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

    return spec.PackedConstant(name, len(gates) * round_up(cells) * depth, make)


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

    return spec.PackedConstant(name, len(vectors) * round_up(cells), make)


def for_lanes(form: Mapping[str, int | str], device: Capabilities) -> dict[str, int | str]:
    """Return the defines with expressions on vectors as wide as those of the device's kernels."""
    lanes = work_groups.QUAD if work_groups.suits_groups(device) else LANES
    # Only macros with arguments, such as ACTIVATE(x), hold expressions with a place for the lanes.
    return {name: str(text).format(lanes=lanes) if "(" in name else text for name, text in form.items()}


def step_function(
    device: Capabilities, name: str, form: Mapping[str, int | str], **values: int | float
) -> spec.Instance:
    """Return the function of a step, in work-groups where the device has them, which alone know GIVEN."""
    defined = for_lanes(form, device)
    if not work_groups.suits_groups(device):
        return spec.function("recurrent/steps.cl", f"f32_{name}", defined, **values)
    array = work_groups.LocalArray("partial", "float4", int(form["GATES"]) * work_groups.GROUP_ITEMS)
    group = work_groups.WorkGroup((work_groups.QUAD, work_groups.GROUP_ITEMS // work_groups.QUAD), (array,))
    return spec.function("recurrent/steps_groups.cl", f"f32_groups_{name}", defined, group, **values)


def step_launch(
    node: Node,
    context: spec.Context,
    instance: spec.Instance,
    arguments: tuple[spec.Argument, ...],
    units: int,
    *,
    work: int,
) -> spec.Launch:
    """Return the launch of a step, which makes so many products of two numbers with its weights."""
    return context.launch(
        node,
        instance,
        arguments,
        units if instance.work_group is None else (units, 1),
        spec.Work(str(dict(instance.parameters)["CELLS"]), 2 * work, 4 * work),
    )


@dataclass(frozen=True, slots=True)
class Sums:
    """The part of a step's sums that is the same for all steps: constants and what is computed ahead of them.

    `inputs` are the elements of the input that a step multiplies: none where `given` has their products.
    """

    weights: spec.PackedConstant
    inputs: int
    biases: tuple[spec.PackedConstant, ...] = ()
    ahead: tuple[spec.Launch, ...] = ()
    given: Rows | None = None

    def source(self, x: Rows) -> Rows:
        """Return the rows that a step reads in place of its input's."""
        return x if self.given is None else replace(self.given, first=x.first, step=x.step)


def sums_of(
    node: Node,
    context: spec.Context,
    extent: Extent,
    inputs: Sequence[spec.Array],
    recurrent: Sequence[spec.Array],
    biases: Sequence[spec.Array],
) -> Sums:
    """Return the sums of gates, each with matrices [cells, inputs] and [cells, outputs], and a bias.

    In work-groups the inputs of several steps are multiplied at once.
    """
    name, depth = f"cell{node.id}", inputs[0].shape[1]
    # Of a single step, products of inputs ahead of it would only be one launch more.
    if extent.time == 1 or not work_groups.suits_groups(context.device):
        both = [np.concatenate(parts, axis=1) for parts in zip(inputs, recurrent, strict=True)]
        packed = matrices_packed(f"{name}_weights", both)
        return Sums(packed, depth, (biases_packed(f"{name}_biases", biases),))
    ahead, given = _products_of_inputs(node, context, inputs, biases)
    return Sums(matrices_packed(f"{name}_weights", recurrent), 0, (), ahead, given)


def _products_of_inputs(
    node: Node, context: spec.Context, gates: Sequence[spec.Array], biases: Sequence[spec.Array]
) -> tuple[tuple[spec.Launch, ...], Rows]:
    """Return the launches that multiply the inputs of all steps, and the rows that they leave.

    A row is that of a pixel of the input, [gate][padded cells], with the biases.
    """
    x, y = context.value(node.first), node.outputs[0]
    cells, depth = gates[0].shape
    width = len(gates) * round_up(cells)

    def apart(parts: Sequence[spec.Array]) -> spec.Array:
        padded = np.zeros((len(gates), round_up(cells), *parts[0].shape[1:]), np.float32)
        padded[:, :cells] = parts
        return padded.reshape(width, *parts[0].shape[1:])

    weights = Weights(WeightType.F32, lambda: apart(gates).T, lambda: apart(biases))
    product = Product(x.pixels, depth, width, context.layout(x.id).pixel_stride, 1, weights)
    # The product is lowered as if it were the node's output, whose rows it takes for its own.
    graph = replace(context.graph, layouts={**context.graph.layouts, y: Layout(y, 0, width)})
    (found,) = product_in_groups(node, replace(context, graph=graph), product)
    sums = spec.Scratch("given", x.pixels * width)
    names = {x.id: context.pointer(x.id), y: sums}
    return tuple(launch.reading(names) for launch in found.launches), Rows(sums, 0, 1, width)
