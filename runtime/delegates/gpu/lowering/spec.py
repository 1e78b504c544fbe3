"""The records of a kernel family: what it says of operators, and the launches that it offers."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import GraphFacts, Unsupported
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.element_type import MOVABLE, ElementType, ElementTypes
from runtime.delegates.gpu.graph.epilogue import join, join_residual, operands_of
from runtime.delegates.gpu.graph.graph import LANES, LINE, Graph, Kind, Layout, Node, Step, Value, round_up
from runtime.delegates.gpu.graph.parameters import Parameters, parameters
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.graph.work_groups import QUAD, WorkGroup
from runtime.model.graph import Operator
from runtime.model.schema import ActivationFunctionType

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class OperatorFacts:
    """One operator of the model with what is known about its tensors; `i` counts the operator's inputs.

    `types` are those of its tensors in the delegate's graph: float32 for quantised ones that are simulated.
    """

    operator: Operator
    graph: GraphFacts
    types: Mapping[int, ElementType | None] = field(default_factory=dict)

    @property
    def options(self) -> Mapping[str, Any]:
        """The operator's options under the schema's field names."""
        return self.operator.options

    def has_input(self, i: int) -> bool:
        """Return True if input i is given (optional inputs may be absent)."""
        return i < len(self.operator.inputs) and self.operator.inputs[i] >= 0

    def shape(self, i: int) -> tuple[int, ...]:
        """Shape of input i."""
        return self.graph.shapes[self.operator.inputs[i]]

    def output_shape(self, i: int = 0) -> tuple[int, ...]:
        """Shape of output i."""
        return self.graph.shapes[self.operator.outputs[i]]

    def constant(self, i: int) -> Array | None:
        """Values of input i where it is constant, else None; also where a file lacks the input."""
        return self.graph.constants.get(self.operator.inputs[i]) if self.has_input(i) else None

    def known(self, i: int) -> Array:
        """Return the values of input i, one of the family's `constants`. Raises ValueError without them."""
        found = self.constant(i)
        if found is None:
            raise ValueError(f"{self.operator.name} was accepted without a constant input {i}")
        return found


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """An operator as the delegate sees it.

    `inputs` are tensor indices, -1 for an absent one. `steps`, whose operands are tensor indices, become the
    node's epilogue, followed by `activation`: a name of ActivationFunctionType, None for an operator without
    that option. `states` are variables among the inputs that the operator updates, each with the position of
    the output that is its new content, or None, which gives the node one more output for it.
    """

    inputs: tuple[int, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    activation: str | None = None
    steps: tuple[Step, ...] = ()
    states: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PackedConstant:
    """A constant in the order in which its kernel reads it; made on demand, flat and of `type`.

    `weights`: the type of the weights of which it consists, for reports; None where it is no such constant.
    """

    name: str
    elements: int
    make: Callable[[], Array]
    type: ElementType = ElementType.F32
    weights: WeightType | None = None

    @property
    def bytes(self) -> int:
        """The size in memory."""
        return self.elements * self.type.size

    def values(self) -> Array:
        """Return the packed values. Raises ValueError if `make` returns another size than announced."""
        array = np.ascontiguousarray(self.make(), dtype=self.type.dtype).reshape(-1)
        if array.size != self.elements:
            raise ValueError(
                f"constant {self.name!r}: {array.size} elements were packed, {self.elements} announced"
            )
        return array


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory that lives only within one candidate, in elements; `key` distinguishes several blocks of it."""

    key: str
    elements: int
    type: ElementType = ElementType.F32

    @property
    def bytes(self) -> int:
        """The size in memory."""
        return self.elements * self.type.size


@dataclass(frozen=True, slots=True)
class LineOf:
    """A pointer to the start of the line of 64 bytes in which `value` begins; `Context.shift` says where."""

    value: int


@dataclass(frozen=True, slots=True)
class Check:
    """A pointer to an integer that a kernel sets to 1 where an operand holds what the operator cannot take.

    Such a kernel reads and writes nothing outside of its values and goes on; behind the run, `message` is the
    error of the whole run, that of the CPU path word for word.
    """

    message: str

    @classmethod
    def of(cls, node: Node, text: str) -> "Check":
        """Create the check of a node, in the words of an operator's errors (`OpContext.error`)."""
        return cls(f"operator {node.sources[0]} {node.op.name}: {text}")


Argument: TypeAlias = "int | LineOf | PackedConstant | Scratch | Check"
"""A pointer argument: a value id, the line of a value, a packed constant, scratch memory, or a check."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A compiled function, by its file of `kernels/`, a readable name and its defines, and its parameters.

    `work_group` is None for a unit function.
    """

    source: str
    name: str
    defines: tuple[tuple[str, int | str], ...] = ()
    parameters: Parameters = ()
    work_group: WorkGroup | None = None


Code: TypeAlias = tuple[str, str, tuple[tuple[str, int | str], ...], str]
"""The code that a launch runs: file, name and defines of its instance, and its epilogue's expression."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """The fused steps of a launch: the expression over (v, p, c), its operands, and its parameters."""

    expression: str = "(v)"
    operands: tuple[int | PackedConstant, ...] = ()
    parameters: Parameters = ()


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a launch, for profile and plan: operations, and bytes that are read and written; without
    `moved` those of the node's inputs and outputs. `note` stands in its label in place of the output's shape.
    """

    note: str = ""
    flops: int = 0
    moved: int | None = None

    @classmethod
    def of_product(cls, rows: int, depth: int, columns: int, moved: int) -> "Work":
        """Return the work of a product [rows, depth] by [depth, columns]."""
        return cls(f"{rows}x{depth}x{columns}", 2 * rows * depth * columns, moved)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel execution.

    `units`: how many equal pieces of work there are; those of work-groups are the groups. `flops` and
    `bytes`: for profile and plan. `groups`: how many work-groups there are in each dimension, where the
    instance has them. `halves`: the places of pointers to fp16, operands of the epilogue behind the others.
    """

    instance: Instance
    args: tuple[Argument, ...]
    units: int
    label: str
    sources: tuple[int, ...]
    flops: int = 0
    bytes: int = 0
    epilogue: Epilogue = field(default_factory=Epilogue)
    groups: tuple[int, ...] = ()
    halves: tuple[int, ...] = ()

    def reading(self, names: Mapping[int, "Argument"]) -> "Launch":
        """Return the launch with other arguments in place of values."""
        args = tuple(names.get(arg, arg) if isinstance(arg, int) else arg for arg in self.args)
        return replace(self, args=args)

    @property
    def code(self) -> Code:
        """The code that it runs, whatever its parameters and the types of its buffers."""
        return self.instance.source, self.instance.name, self.instance.defines, self.epilogue.expression

    @property
    def local_size(self) -> tuple[int, ...]:
        """Work-items of a group in each dimension: one for a unit function."""
        group = self.instance.work_group
        return (1,) if group is None else group.size

    @property
    def global_size(self) -> tuple[int, ...]:
        """Work-items of the launch in each dimension: units where there are no work-groups."""
        counts = self.groups if self.instance.work_group is not None else (max(1, self.units),)
        return tuple(count * size for count, size in zip(counts, self.local_size, strict=True))

    @property
    def work_items(self) -> int:
        """Work-items of the launch."""
        return prod(self.global_size)

    @property
    def local_bytes(self) -> int:
        """Local memory of each work-group."""
        group = self.instance.work_group
        return 0 if group is None else group.local_bytes


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run a node. `name` identifies it among the node's candidates and in the tuning cache."""

    name: str
    launches: tuple[Launch, ...]

    @property
    def works_in_groups(self) -> bool:
        """True where all launches are of work-groups."""
        return all(launch.instance.work_group is not None for launch in self.launches)


@dataclass(frozen=True, slots=True)
class Context:
    """The facts that a lowering may use. `spares_memory`: of candidates the smallest are taken, so that each
    family offers one with little scratch and few constants. `rounding`: that of integer products. `refused`:
    the code that the device runs in smaller work-groups only than it is made for, as its build has shown.
    """

    graph: Graph
    device: Capabilities
    spares_memory: bool = False
    rounding: str = "reference"
    refused: Set[Code] = frozenset()

    def refuses(self, candidate: Candidate) -> bool:
        """Return True where the device cannot run a candidate, as an earlier try has shown."""
        return any(launch.code in self.refused for launch in candidate.launches)

    def first_accepted(self, candidates: Iterable[Candidate]) -> Candidate:
        """Return the first candidate that the device does not refuse; the last where it refuses all.

        Further ones are not lowered. Raises ValueError where there is none.
        """
        found: Candidate | None = None
        for found in candidates:
            if not self.refuses(found):
                break
        if found is None:
            raise ValueError("no candidate to choose from")
        return found

    def value(self, value_id: int) -> Value:
        """Return the value with this id."""
        return self.graph.values[value_id]

    def layout(self, value_id: int) -> Layout:
        """Return the value's layout; a constant, which `pointer` packs, lies in padded rows of its own."""
        value = self.graph.values[value_id]
        if value.is_constant:
            return Layout(value_id, 0, round_up(value.channels))
        return self.graph.layouts[value_id]

    def strides(self, **values: int) -> dict[str, int]:
        """Return parameters: `IN_STRIDE` with the distance between pixels of the value given as `IN`."""
        return {f"{name}_STRIDE": self.layout(value).pixel_stride for name, value in values.items()}

    def tail(self, value_id: int) -> int:
        """Return the number of padded lanes behind the channels of a pixel."""
        channels = self.value(value_id).channels
        return round_up(channels) - channels if self.layout(value_id).padded else 0

    def launch(
        self,
        node: Node,
        instance: Instance,
        args: tuple[Argument, ...],
        units: int | tuple[int, ...],
        work: Work = Work(),
    ) -> Launch:
        """Return a launch of a node; one that stores the node's output applies its epilogue.

        Args:
            node: what is computed.
            instance: the function, whose epilogue has vectors of `LANES`, of `QUAD` for work-groups.
            args: its pointers.
            units: units, or the number of work-groups in each dimension.
            work: what it computes and moves.
        """
        groups = units if isinstance(units, tuple) else ()
        direct = (value for value in (*node.inputs, *node.outputs) if value is not None)
        return Launch(
            instance,
            args,
            units=units if isinstance(units, int) else prod(units),
            label=f"{node.name} {work.note or self.value(node.outputs[0]).extents}",
            sources=node.sources,
            flops=work.flops,
            bytes=sum(self.value(value).bytes for value in direct) if work.moved is None else work.moved,
            epilogue=epilogue_of(node, self.graph, QUAD if groups else LANES)
            if node.outputs[0] in args
            else Epilogue(),
            groups=groups,
        )

    def shift(self, value_id: int) -> int:
        """Elements between the start of a line of 64 bytes and the value's first element."""
        return self.layout(value_id).offset % (LINE // self.value(value_id).type.size)

    def pointer(self, value_id: int) -> Argument:
        """Return the argument of a launch by which it reads the value, constant or not."""
        value = self.graph.values[value_id]
        return pixels_packed(value) if value.is_constant else value_id

    def constant(self, value_id: int) -> Array:
        """Return the content of a constant value, in its logical shape and of its type."""
        data = self.graph.values[value_id].data
        if data is None:
            raise ValueError(f"value {value_id} is not a constant")
        return data


Lower: TypeAlias = Callable[[Node, Context], Sequence[Candidate]]


@dataclass(frozen=True, slots=True)
class Types:
    """The element types that a kernel takes, for each input and each output of the operator.

    The last entry holds for all further ones. Parameters (see `Family`) are no part of it. `alike`: places of
    the same types have one type, as the two values of a selection and its result.
    """

    inputs: tuple[ElementTypes, ...] = ((ElementType.F32,),)
    outputs: tuple[ElementTypes, ...] = ((ElementType.F32,),)
    alike: bool = False

    def of_input(self, i: int) -> ElementTypes:
        """Return the types that input i may have."""
        return self.inputs[min(i, len(self.inputs) - 1)]

    def of_output(self, i: int) -> ElementTypes:
        """Return the types that output i may have."""
        return self.outputs[min(i, len(self.outputs) - 1)]


PARAMETRISED: tuple[ElementTypes, ...] = (MOVABLE, (ElementType.F32,))
"""The inputs of an operator that moves the first by parameters, which must be constant."""


def moving(*operators: Kind, inputs: tuple[ElementTypes, ...] = (MOVABLE,)) -> dict[Kind, Types]:
    """`Family.types` of operators that only move elements, of any type."""
    return dict.fromkeys(operators, Types(inputs, (MOVABLE,), alike=True))


@dataclass(frozen=True, slots=True)
class Family:
    """A kernel family: the operators that it runs, and its answers to the questions of `lowering`.

    It follows the rules of every version of an operator that the CPU path knows; newer ones are refused.
    `parameters` are the positions of inputs whose constant integers `read` and `supports` look at (axes,
    paddings, shapes), the same for all operators or for each its own.
    `any_layout`: all nodes read and write any strides; the two functions behind it answer for single nodes.
    `constants`: the inputs by their positions that are absent or constant, and what a refusal calls them.
    `weights` are the positions of inputs that may be constants of levels (int8 and narrower) beside float
    activations; `weights_of` packs them.
    `types` holds for each operator what its tensors may be; one that is not in it takes float32 only. Another
    family may run the same operator where its first input has other types.
    """

    operators: tuple[Kind, ...]
    read: Callable[[OperatorFacts], NodeSpec]
    lower: Lower
    supports: Callable[[OperatorFacts], Unsupported | None] = lambda _facts: None
    epilogue: bool = False
    any_layout: bool = False
    reads_any_layout: Callable[[Node, Graph], bool] = lambda _node, _graph: False
    writes_dense: Callable[[Node, Graph], bool] = lambda _node, _graph: False
    parameters: tuple[int, ...] | Mapping[Kind, tuple[int, ...]] = ()
    constants: Mapping[int, str] = field(default_factory=dict)
    weights: tuple[int, ...] = ()
    types: Mapping[Kind, Types] = field(default_factory=dict)

    def parameters_of(self, operator: Kind) -> tuple[int, ...]:
        """Return the positions of an operator's parameters."""
        return self.parameters if isinstance(self.parameters, tuple) else self.parameters.get(operator, ())

    def types_of(self, operator: Kind) -> Types:
        """Return the types that the tensors of an operator may have."""
        return self.types.get(operator, Types())


def epilogue_of(node: Node, graph: Graph, lanes: int = LANES) -> Epilogue:
    """Return a node's fused steps, on vectors of `lanes` floats, for the launch that stores its output."""
    operands = operands_of(node, graph)
    # Work-groups have no functions that ask at run time whether there is a residual.
    joined = join_residual(node, operands) if lanes == LANES else None
    read = [operand.value for operand in operands]
    if joined is None:
        joined = join(node.epilogue, operands, graph.values[node.outputs[0]].channels, lanes)
    elif not read:
        # Shared functions always take an operand; without a residual it is never read, so any value will do.
        read = [node.outputs[0]]
    arguments: list[int | PackedConstant] = []
    for value_id in read:
        value = graph.values[value_id]
        arguments.append(pixels_packed(value) if value.is_constant else value.id)
    return Epilogue(joined.expression, tuple(arguments), joined.parameters)


def pixels_packed(value: Value) -> PackedConstant:
    """Pack a constant value in the activations' layout: each pixel's channels padded with zeros to 16."""
    stride = round_up(value.channels)

    def make() -> Array:
        if value.data is None:
            raise ValueError(f"value {value.id} is not a constant")
        rows = value.data.reshape(value.pixels, value.channels)
        return np.pad(rows, ((0, 0), (0, stride - value.channels)))

    return PackedConstant(f"v{value.id}", value.pixels * stride, make, value.type)


def defines(**values: int | str) -> tuple[tuple[str, int | str], ...]:
    """Return defines in a stable order; booleans become 0 and 1. Floats are parameters."""
    return tuple(
        sorted((name, int(value) if isinstance(value, bool) else value) for name, value in values.items())
    )


def joined(*parts: Mapping[str, int | str]) -> dict[str, int | str]:
    """Return the defines of all parts. Raises `ValueError` for a name in two of them: one would be lost."""
    found = {name: value for part in parts for name, value in part.items()}
    if len(found) < sum(map(len, parts)):
        raise ValueError(f"a define is in two parts: {[sorted(part) for part in parts]}")
    return found


def function(
    source: str,
    name: str,
    defined: Mapping[str, int | str],
    work_group: WorkGroup | None = None,
    /,
    **values: int | float,
) -> Instance:
    """Return the function of a file of `kernels/` under its defines; `values` are its parameters."""
    return Instance(source, name, defines(**defined), parameters(**values), work_group)


def activation_of(facts: OperatorFacts) -> str:
    """Return the fused activation's name; NONE clamps to the finite numbers, as LiteRT does."""
    return ActivationFunctionType(facts.options.get("fused_activation_function", 0)).name


def instance_name(family: str, tile: str = "", weights: WeightType = WeightType.F32) -> str:
    """Return a function's name by the grammar `f32_<family>_<variant>_<type of weights>__<tile>`.

    The type of the weights is left out where it is float32 too.
    """
    variant = family if weights is WeightType.F32 else f"{family}_{weights.value.lower()}"
    return f"f32_{variant}__{tile}" if tile else f"f32_{variant}"
