"""What an operator is: how its output shapes follow from its inputs, and how a kernel is prepared.

A kernel has two phases, as in tflite-micro: `prepare` does everything that depends on shapes, types and
scales and returns a closure; the closure works on the arrays bound at that time and allocates nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from runtime.errors import FarmRuntimeError, ShapeError, UnsupportedOperatorError
from runtime.model.graph import Operator, Quantization
from runtime.model.schema import ActivationFunctionType, BuiltinOperator, TensorType
from runtime.ops.support.value import Array, Shape, Value, constant_array, dtype_of

__all__ = [
    "CUSTOM_SPECS",
    "SPECS",
    "Array",
    "CustomRegistrar",
    "GraphServices",
    "Kernel",
    "OpContext",
    "OpSpec",
    "PostponeError",
    "Scratch",
    "Shape",
    "Value",
    "constant_array",
    "custom_operator",
    "dtype_of",
    "evaluate",
    "find_spec",
    "infer_shapes",
    "named_failures",
    "operator",
    "prepare_kernel",
    "unforeseen",
    "unsupported",
]

_Resource = TypeVar("_Resource")
CUSTOM_GROUP = "delegate_farm.operators"

Kernel: TypeAlias = Callable[[], None]

SCRATCH_BYTES = 64 << 20
MAX_TENSOR_BYTES = 2 << 30
MAX_INTEGERS = 1 << 16
_ALIGNMENT = 64


class PostponeError(Exception):
    """Not a failure: the outputs' shapes cannot be known before earlier operators have run.

    `tensor` is the tensor whose values `operator` waits for; None where only running the operator tells.
    """

    def __init__(self, text: str, operator: int, tensor: int | None = None) -> None:
        super().__init__(text)
        self.operator = operator
        self.tensor = tensor


class GraphServices(Protocol):
    """What the plan hands to operators that look beyond their own tensors."""

    num_threads: int

    def constant_of(self, tensor: int) -> Array | None:
        """Values of a constant tensor of the operator's subgraph (scales of blocks are such tensors)."""

    def quantization_of(self, tensor: int) -> Quantization | None:
        """Parameters of a tensor of the operator's subgraph, for operators with intermediates."""

    def operators_of(self, index: int) -> tuple[Operator, ...]:
        """Operators of a subgraph, for those that only look at what it computes. Raises IndexError."""

    def infer_subgraph(self, index: int, inputs: Sequence[Value], *, known: bool) -> tuple[Shape | None, ...]:
        """Output shapes of a subgraph for these inputs, whose constants count where they are `known` to stay.

        None stands for a shape that only running tells.
        """

    def run_subgraph(self, index: int, inputs: Sequence[Array]) -> list[Array]:
        """Outputs of a subgraph: views that stay valid until it runs again."""

    def resource(self, kind: type[_Resource], name: tuple[str, str]) -> tuple[int, _Resource]:
        """The handle and the state of a named resource of this interpreter, made where it is missing."""

    def resource_of(self, kind: type[_Resource], handle: int) -> _Resource:
        """The state behind a handle. Raises KeyError for a handle that nobody gave out."""


class Scratch:
    """Memory that operators use one after another. Pages are touched only where a kernel writes."""

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self._size = size
        self._memory: Array | None = None
        self._used = 0

    def begin(self) -> None:
        """The next operator starts: it may reuse what the one before it had."""
        self._used = 0

    def take(self, shape: Shape, dtype: Any) -> Array:
        """An uninitialised array that is valid during one run of the current operator."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if self._used + size > self._size:
            return np.empty(shape, dtype)
        if self._memory is None:
            self._memory = np.empty(self._size, np.uint8)
        start = self._used + -(self._memory.ctypes.data + self._used) % _ALIGNMENT
        self._used = start + size
        if self._used > self._size:
            return np.empty(shape, dtype)
        taken: Array = self._memory[start : start + size].view(dtype).reshape(shape)
        return taken


@dataclass(frozen=True, slots=True)
class OpContext:
    """One operator with its inputs and outputs; what `infer` and `prepare` receive.

    Shapes may depend on values: `infer` asks for them with `constant` or `integers`. Where an earlier
    operator computes them at run time, planning stops there by itself, runs what comes before, and calls
    `infer` again with the values known (and anew when they change). Where only running the operator tells
    the shapes, `infer` raises `shapes_at_run_time()` and the kernel hands every output over with `deliver`.
    """

    operator: Operator
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    scratch: Scratch | None = None
    graph: GraphServices | None = None
    sink: Callable[[int, Array], None] | None = None

    @property
    def where(self) -> str:
        """`operator 7 CONV_2D` for error texts."""
        return f"operator {self.operator.index} {self.operator.name}"

    def option(self, name: str) -> Any:
        """An option by its name in the schema."""
        return self.operator.options[name]

    def optional(self, i: int) -> Value | None:
        """Input `i`, or None where the operator leaves it out."""
        return self.inputs[i] if i < len(self.inputs) else None

    def input(self, i: int = 0) -> Value:
        """Input `i`. Raises `ShapeError` where it is missing."""
        value = self.optional(i)
        if value is None:
            raise self.error(f"input {i} is missing")
        return value

    def output(self, i: int = 0) -> Value:
        """Output `i`. Raises `ShapeError` where it is missing."""
        if i >= len(self.outputs):
            raise self.error(f"output {i} is missing")
        return self.outputs[i]

    def read(self, i: int = 0) -> Array:
        """Memory of input `i`: its constant, or the bound array."""
        value = self.input(i)
        array = value.constant if value.constant is not None else value.array
        if array is None:
            raise self.unsupported(f"input {i} of type {value.type.name} has no numpy form")
        return array

    def write(self, i: int = 0) -> Array:
        """Memory of output `i`."""
        value = self.output(i)
        if value.array is None:
            raise self.unsupported(f"output {i} of type {value.type.name} has no numpy form")
        return value.array

    def constant(self, i: int, what: str) -> Array:
        """Values of input `i` while planning; `what` names them in errors about their form.

        Raises `PostponeError`, which operators let pass, where they are not known yet.
        """
        value = self.input(i)
        if value.constant is None:
            text = f"{self.where}: {what} (input {i}) is computed at run time"
            raise PostponeError(text, self.operator.index, value.index)
        return value.constant

    def integers(self, i: int, what: str) -> tuple[int, ...]:
        """A constant input as a flat tuple of integers. Raises `ShapeError` beyond `MAX_INTEGERS` of them."""
        values = self.constant(i, what).reshape(-1)
        if values.size > MAX_INTEGERS:
            raise self.error(f"{what} (input {i}) has {values.size} elements")
        return tuple(int(v) for v in values)

    def shapes_at_run_time(self) -> PostponeError:
        """What `infer` raises where only running the operator tells its outputs' shapes."""
        text = f"{self.where}: only running it tells the shapes of its outputs"
        return PostponeError(text, self.operator.index)

    def deliver(self, i: int, array: Array) -> None:
        """Output `i` of a run: copied into its memory, or kept where its shape was not known before.

        Raises `ShapeError` where the memory has another shape, or the tensor another type.
        """
        value = self.output(i)
        if value.dtype != array.dtype:
            raise self.error(f"output {i} became {array.dtype} where {value.type.name} is declared")
        if value.array is None:
            if self.sink is None:
                raise self.unsupported(f"output {i} of type {value.type.name} has no memory")
            self.sink(value.index, array)
        elif value.array.shape != array.shape:
            raise self.error(
                f"output {i} became {list(array.shape)} where {list(value.array.shape)} is planned"
            )
        else:
            np.copyto(value.array, array)

    @property
    def num_threads(self) -> int:
        """Threads that a kernel may use."""
        return 1 if self.graph is None else self.graph.num_threads

    @property
    def services(self) -> GraphServices:
        """What reaches beyond this operator. Raises `UnsupportedOperatorError` where it runs by itself."""
        if self.graph is None:
            raise self.unsupported("it cannot run outside a model")
        return self.graph

    def temporary(self, shape: Shape, dtype: Any = np.float32) -> Array:
        """Scratch memory for one run of this operator. Raises `ShapeError` beyond `MAX_TENSOR_BYTES`."""
        if math.prod(shape) * np.dtype(dtype).itemsize > MAX_TENSOR_BYTES:
            raise self.error(f"a workspace of shape {list(shape)} is too large to plan")
        if self.scratch is None:
            return np.empty(shape, dtype)
        return self.scratch.take(shape, dtype)

    def activation(self) -> ActivationFunctionType:
        """The fused activation, one that every kernel can clamp. Raises `UnsupportedOperatorError`."""
        found: ActivationFunctionType = self.option("fused_activation_function")
        if found in (ActivationFunctionType.TANH, ActivationFunctionType.SIGN_BIT):
            raise self.unsupported(f"fused activation {found.name} is not defined")
        return found

    def scale_and_zero_point(self, value: Value) -> tuple[float, int]:
        """Per-tensor parameters of a quantised value. Raises `UnsupportedOperatorError` without them."""
        q = value.quantization
        if q is None or q.blocks is not None or q.is_custom or len(q.scales) != 1:
            raise self.unsupported(f"tensor {value.name!r} has no per-tensor scale and zero point")
        if q.scales[0] == 0:
            raise self.unsupported(f"tensor {value.name!r} has a scale of 0")
        return q.scales[0], q.zero_points[0]

    def error(self, text: str) -> ShapeError:
        """A `ShapeError` that names this operator."""
        return ShapeError(f"{self.where}: {text}")

    def unsupported(self, reason: str) -> UnsupportedOperatorError:
        """An `UnsupportedOperatorError` that names this operator, its version and its index."""
        return unsupported(self.operator, reason)

    def require(self, *types: TensorType, i: int = 0) -> TensorType:
        """The type of input `i`, which must be one of `types` and have no block quantisation."""
        value = self.input(i)
        if value.type not in types:
            listed = ", ".join(t.name for t in types)
            raise self.unsupported(f"input {i} has type {value.type.name}; the CPU kernel has {listed}")
        return value.type

    def require_output(self, *types: TensorType, i: int = 0) -> TensorType:
        """The type of output `i`, which must be one of `types`."""
        value = self.output(i)
        if value.type not in types:
            listed = ", ".join(t.name for t in types)
            raise self.unsupported(f"output {i} has type {value.type.name}; the CPU kernel gives {listed}")
        return value.type

    def require_same_type(self, *inputs: int) -> None:
        """The listed inputs and output 0 must have one type."""
        found = {self.input(i).type for i in inputs} | {self.output().type}
        if len(found) > 1:
            names = ", ".join(sorted(t.name for t in found))
            raise self.unsupported(f"mixed types {names}; the CPU kernel needs one type")


def unsupported(operator: Operator, reason: str) -> UnsupportedOperatorError:
    """The error for an operator that the CPU path cannot run."""
    return UnsupportedOperatorError(
        f"operator {operator.index} {operator.name} version {operator.version}: {reason}",
        operator_name=operator.name,
        version=operator.version,
        index=operator.index,
    )


Infer: TypeAlias = Callable[[OpContext], tuple[Shape, ...]]
Prepare: TypeAlias = Callable[[OpContext], Kernel]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One operator of the CPU path.

    `shape_only`: outputs depend on shapes of inputs, not on values. `types` are the types that input `data`
    may have, empty where the kernel alone decides; `note` says what they leave out (weights, second
    operands). `docs/operators.md` is written from the three. `stateful`: running it twice is not the same as
    once (variables, random numbers, other subgraphs), so it is never folded and keeps its place among its
    like. `subgraphs` names the options that hold indices of subgraphs that it runs.
    """

    max_version: int
    infer: Infer
    prepare: Prepare
    shape_only: bool = False
    types: tuple[TensorType, ...] = ()
    data: int = 0
    note: str = ""
    stateful: bool = False
    subgraphs: tuple[str, ...] = ()


_REGISTRY: dict[BuiltinOperator, OpSpec] = {}
_CUSTOM: dict[str, OpSpec] = {}
SPECS: Mapping[BuiltinOperator, OpSpec] = _REGISTRY
CUSTOM_SPECS: Mapping[str, OpSpec] = _CUSTOM


def operator(
    *opcodes: BuiltinOperator,
    max_version: int,
    infer: Infer,
    shape_only: bool = False,
    types: tuple[TensorType, ...] = (),
    data: int = 0,
    note: str = "",
    stateful: bool = False,
    subgraphs: tuple[str, ...] = (),
) -> Callable[[Prepare], Prepare]:
    """Register a kernel's `prepare` for one or more operators. Raises ValueError on a second registration."""

    def register(prepare: Prepare) -> Prepare:
        spec = OpSpec(max_version, infer, prepare, shape_only, types, data, note, stateful, subgraphs)
        for opcode in opcodes:
            if opcode in _REGISTRY:
                first = _REGISTRY[opcode].prepare.__module__
                raise ValueError(f"{opcode.name} is registered by {first} and {prepare.__module__}")
            _REGISTRY[opcode] = spec
        return prepare

    return register


class CustomRegistrar(Protocol):
    """The form of `custom_operator`, for functions that are handed it."""

    def __call__(
        self, name: str, *, infer: Infer, max_version: int = 1, stateful: bool = False
    ) -> Callable[[Prepare], Prepare]:
        """Register the kernel that the result decorates."""


def custom_operator(
    name: str, *, infer: Infer, max_version: int = 1, stateful: bool = False
) -> Callable[[Prepare], Prepare]:
    """Register a kernel's `prepare` for the custom operator `name`; `examples/custom_operator` shows it.

    A package does so for every process, runners of a farm included, with an entry point of this name in the
    group `delegate_farm.operators`. Raises ValueError on a second registration.
    """

    def register(prepare: Prepare) -> Prepare:
        if name in _CUSTOM:
            first = _CUSTOM[name].prepare.__module__
            raise ValueError(f"custom operator {name} is registered by {first} and {prepare.__module__}")
        _CUSTOM[name] = OpSpec(max_version, infer, prepare, stateful=stateful)
        return prepare

    return register


def prepare_kernel(op: OpContext) -> Kernel:
    """The closure that runs an operator; one without anything to compute does nothing."""
    spec = find_spec(op.operator)
    if spec.types and op.optional(spec.data) is not None:
        op.require(*spec.types, i=spec.data)
    empty = all(value.elements == 0 and value.array is not None for value in op.outputs)
    if op.outputs and not spec.stateful and empty:
        return lambda: None
    with named_failures(op.operator):
        return spec.prepare(op)


def infer_shapes(spec: OpSpec, op: OpContext) -> tuple[Shape, ...]:
    """Shapes of the outputs; `UnsupportedOperatorError` for what the operator's `infer` did not foresee."""
    with named_failures(op.operator):
        return spec.infer(op)


@contextmanager
def named_failures(operator: Operator) -> Iterator[None]:
    """What a kernel did not foresee of a file becomes an `UnsupportedOperatorError` that names the operator.

    Kernels of other packages raise what they like, and a file may pair any operator with any tensors.
    """
    try:
        yield
    except (FarmRuntimeError, PostponeError, MemoryError):
        raise
    except Exception as error:
        raise unsupported(operator, unforeseen(error)) from error


def unforeseen(error: Exception) -> str:
    """The reason in words, for an operator whose kernel raised something of its own."""
    return f"it cannot take these tensors: {type(error).__name__}: {error}"


def evaluate(
    operator: Operator,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
    graph: GraphServices | None = None,
) -> list[Array]:
    """Run an operator once on constant inputs (`Value.constant`), as constant folding does.

    `outputs` state shapes and types. Raises `UnsupportedOperatorError` where the CPU path cannot.
    """
    bound = []
    for value in outputs:
        if value.dtype is None:
            raise unsupported(operator, f"output {value.name!r} of type {value.type.name} has no numpy form")
        bound.append(replace(value, array=np.empty(value.shape, value.dtype)))
    context = OpContext(operator, tuple(inputs), tuple(bound), graph=graph)
    with np.errstate(all="ignore"), named_failures(operator):
        prepare_kernel(context)()
    return [context.write(i) for i in range(len(bound))]


def find_spec(op: Operator) -> OpSpec:
    """The CPU kernel for an operator. Raises `UnsupportedOperatorError`."""
    if op.custom_code is not None:
        spec = _CUSTOM.get(op.custom_code) or _installed(op.custom_code)
        if spec is None:
            raise unsupported(op, _unknown_custom(op.custom_code))
    else:
        spec = SPECS.get(op.opcode)
        if spec is None:
            raise unsupported(op, "the CPU path has no kernel for this operator")
    if op.version > spec.max_version:
        raise unsupported(op, f"the CPU kernel knows versions up to {spec.max_version}")
    return spec


@cache
def _installed(name: str) -> OpSpec | None:
    """What an installed package registers for a custom operator, found by entry point."""
    for point in entry_points(group=CUSTOM_GROUP, name=name):
        point.load()
    return _CUSTOM.get(name)


def _unknown_custom(name: str) -> str:
    if name.startswith("Flex"):
        return f"custom operator {name} needs TensorFlow's own kernels, which a .tflite runtime lacks"
    return f"custom operator {name}; runtime.custom_operator registers a kernel for it"
