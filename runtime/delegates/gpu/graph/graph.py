"""The SSA graph that the delegate compiles: values, nodes, fused steps, layouts.

A `Graph` is immutable; a pass returns a new one (`runtime.delegates.gpu.passes`). Values and nodes are
named by integers: a value's id is the tensor index of the model where it came from one, else a fresh number.

Throughout this package `float16` is OpenCL's vector of 16 floats. The half-precision type, which numpy calls
float16, is written fp16; the delegate computes in float32 and on integers as they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import prod
from typing import Any, TypeAlias

from numpy.typing import NDArray

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.weights import Stored
from runtime.model.schema import BuiltinOperator

LINE = 64
"""Bytes of a cache line, to a multiple of which everything in memory is aligned, and the unit of offsets in
the table of layers (`LINE` of `kernels/common.cl`): 2^31 of them are 128 GiB. Larger wastes memory behind
small values; smaller splits vectors of 16 floats over two lines."""

LANES = 16
"""Elements in the vector of the kernels, to a multiple of which channels are padded. 16 floats fill a
register of AVX-512 and a cache line; a compiler splits them where registers are narrower. Larger, and layers
with few channels compute more padding; smaller, and such registers stay half empty."""


HALF_BYTES = 2
"""Bytes of a number of fp16, by definition."""


def round_up(count: int, multiple: int = LANES) -> int:
    """Smallest multiple of `multiple` that is at least `count`."""
    return -(-count // multiple) * multiple


def ceil_div(count: int, divisor: int) -> int:
    """Return the quotient, rounded up."""
    return -(-count // divisor)


def shorten(name: str, longest: int = 40) -> str:
    """Shorten a tensor's name for a message: converters write very long paths, whose end says most."""
    return name if len(name) <= longest else f"…{name[-longest:]}"


class Custom(Enum):
    """A custom operator that has kernels; its value is the name by which models call it."""

    CONVOLUTION_2D_TRANSPOSE_BIAS = "Convolution2DTransposeBias"
    LANDMARKS_TO_TRANSFORM_MATRIX = "Landmarks2TransformMatrix"
    MAX_POOLING_WITH_ARGMAX_2D = "MaxPoolingWithArgmax2D"
    MAX_UNPOOLING_2D = "MaxUnpooling2D"
    RESAMPLER = "Resampler"
    TRANSFORM_LANDMARKS = "TransformLandmarks"
    TRANSFORM_TENSOR_BILINEAR = "TransformTensorBilinear"


Kind: TypeAlias = BuiltinOperator | Custom
"""What a node computes: an operator of LiteRT's schema, or one of the known custom operators."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The position of element (pixel p, channel c) of a value: `offset + p * pixel_stride + c *
    channel_stride`.

    Offset and strides are counted in elements of the value's own type from the start of the buffer of value
    `root`, which is another value for a view (a reshape, a part of a concatenation). The offset is a multiple
    of LINE bytes except for a part of a concatenation that a copy (a RESHAPE node) writes. Where `padded` is
    true, the lanes up to `round_up(C, 16)` behind each pixel exist, are finite, and may be overwritten by the
    producer; kernels that load and store whole vectors need them.
    """

    root: int
    offset: int
    pixel_stride: int
    channel_stride: int = 1
    padded: bool = True


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor. `data` is the content of a constant in the logical shape, without padding.

    `stored` is what a file holds in place of a float32 constant of the same numbers.
    """

    id: int
    shape: tuple[int, ...]
    name: str = ""
    data: NDArray[Any] | None = None
    type: ElementType = ElementType.F32
    stored: Stored | None = None

    @property
    def channels(self) -> int:
        """The last dimension; 1 for a scalar."""
        return self.shape[-1] if self.shape else 1

    @property
    def pixels(self) -> int:
        """Product of all dimensions but the last."""
        return prod(self.shape[:-1])

    @property
    def elements(self) -> int:
        """Product of all dimensions."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size of all elements, without padding."""
        return self.elements * self.type.size

    @property
    def extents(self) -> str:
        """The shape as labels write it, e.g. 1x224x224x3."""
        return "x".join(map(str, self.shape))

    @property
    def is_constant(self) -> bool:
        """True where the values are known at compile time."""
        return self.data is not None


@dataclass(frozen=True, slots=True)
class Step:
    """One fused element-wise step behind a node: a key of `epilogue.EXPRESSIONS` with its operands.

    `operands` are value ids, e.g. of a residual of the output's shape or of a constant of shape [C];
    `parameters` are the numbers of the expression.
    """

    op: str
    operands: tuple[int, ...] = ()
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. `inputs` are value ids, None for an absent optional one.

    `attributes` are normalised by the family that reads the operator (`lowering.spec.Family.read`);
    `epilogue` holds the steps to apply, in order, to each result before it is stored;
    `sources` are the indices of the model's operators that this node stands for.
    """

    id: int
    op: Kind
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    epilogue: tuple[Step, ...] = ()
    sources: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The operator's name, as models write it."""
        return self.op.value if isinstance(self.op, Custom) else self.op.name

    def input(self, i: int) -> int:
        """Return input i. Raises ValueError if it is absent."""
        found = self.inputs[i]
        if found is None:
            raise ValueError(f"{self.name} lacks its input {i}")
        return found

    @property
    def first(self) -> int:
        """The first input, as `input`."""
        return self.input(0)

    @property
    def filtered(self) -> tuple[int, int, int | None]:
        """Input, weights and bias of a product. Raises ValueError where one of the first two is absent."""
        # A bias may be None among the inputs, or missing behind them.
        source, weights, bias = (*self.inputs, None)[:3]
        if source is None or weights is None:
            raise ValueError(f"{self.name} has an input and weights")
        return source, weights, bias

    @property
    def required(self) -> tuple[int, ...]:
        """The inputs of an operator that has no optional ones. Raises ValueError if one is absent."""
        given = tuple(value for value in self.inputs if value is not None)
        if len(given) < len(self.inputs):
            raise ValueError(f"{self.name} lacks one of its {len(self.inputs)} inputs")
        return given

    @property
    def reads(self) -> tuple[int, ...]:
        """Every value this node reads, operands of the epilogue included."""
        direct = tuple(value for value in self.inputs if value is not None)
        return direct + tuple(operand for step in self.epilogue for operand in step.operands)


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in execution order. `layouts` is filled by the last pass, `assign_layouts`.

    `states` are inputs that are variables: the last outputs are their new contents, in the same order.
    `tensors`: how many the model has, whose numbers no added value gets, read by this graph or not.
    `halves` are the roots of the buffers that hold fp16 in place of float32 (`layout/halves.py`).
    """

    values: Mapping[int, Value]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    states: tuple[int, ...] = ()
    tensors: int = 0
    layouts: Mapping[int, Layout] = field(default_factory=dict)
    halves: frozenset[int] = frozenset()

    def is_half(self, value: int) -> bool:
        """Return True for a value that lies in memory as fp16."""
        # Constants have no layout, and are packed in the types of their own.
        return value in self.layouts and self.layouts[value].root in self.halves

    def element_bytes(self, value: int) -> int:
        """Bytes of an element of a value in memory."""
        return HALF_BYTES if self.is_half(value) else self.values[value].type.size

    def producers(self) -> dict[int, Node]:
        """Value id → the node that writes it."""
        return {value: node for node in self.nodes for value in node.outputs}

    def consumers(self) -> dict[int, list[Node]]:
        """Value id → the nodes that read it, each once, in order; every value has an entry."""
        readers: dict[int, list[Node]] = {value: [] for value in self.values}
        for node in self.nodes:
            for value in dict.fromkeys(node.reads):
                readers[value].append(node)
        return readers

    def fresh_id(self) -> int:
        """Return a value id that is not in use, and is no tensor's."""
        return max((self.tensors - 1, *self.values)) + 1

    def with_nodes(self, nodes: Iterable[Node], new_values: Iterable[Value] = ()) -> "Graph":
        """Return the graph with other nodes and more values, without those that no node uses any more."""
        kept_nodes = tuple(nodes)
        values = dict(self.values) | {value.id: value for value in new_values}
        # An input that no node reads any more still is one: callers give it, and it has its place in memory.
        used = {*self.inputs, *self.outputs}
        for node in kept_nodes:
            used.update(node.reads, node.outputs)
        return replace(self, nodes=kept_nodes, values={key: values[key] for key in values if key in used})


def without_constants(graph: Graph) -> Graph:
    """Return the graph without the weights, for a holder of their packed form."""
    return replace(
        graph, values={key: replace(value, data=None, stored=None) for key, value in graph.values.items()}
    )
