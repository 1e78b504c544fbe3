"""The interface of a plan to an operator: its inputs, outputs, options and memory, and the plan's services.

A kernel has two phases, as in tflite-micro: `prepare` does everything that depends on shapes, types and
scales and returns a closure; the closure works on the arrays bound at that time and allocates nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from runtime.errors import ShapeError, UnsupportedOperatorError
from runtime.model.graph import Operator, Quantization
from runtime.model.schema import ActivationFunctionType, TensorType
from runtime.ops.support.scratch import Scratch
from runtime.ops.support.value import Array, Shape, Value

_Resource = TypeVar("_Resource")

Kernel: TypeAlias = Callable[[], object]
"""Runs an operator once on the arrays bound while it was prepared; what it returns means nothing."""

MAX_TENSOR_BYTES = 2 << 30
"""Largest tensor or workspace in bytes. Chosen, as a file of a few bytes can ask for any size (TILE, FILL,
PAD): beyond it planning ends with an error instead of exhausting the machine."""

MAX_INTEGERS = 1 << 16
"""Largest number of elements of an input that states shapes, axes or paddings. Chosen: far above any rank,
and small enough that a hostile file cannot make planning build long Python tuples."""


class PostponeError(Exception):
    """The outputs' shapes cannot be known before earlier operators have run; this is not a failure.

    `tensor`: the one whose values `operator` waits for; None where only running it tells its shapes.
    """

    def __init__(self, text: str, operator: int, tensor: int | None = None) -> None:
        super().__init__(text)
        self.operator = operator
        self.tensor = tensor


class GraphServices(Protocol):
    """The services of a plan for operators that look beyond their own tensors."""

    num_threads: int

    def constant_of(self, tensor: int) -> Array | None:
        """Return the values of a constant tensor of the operator's subgraph, such as the scales of blocks."""

    def quantization_of(self, tensor: int) -> Quantization | None:
        """Return the parameters of a tensor of the operator's subgraph, for operators with intermediates."""

    def operators_of(self, index: int) -> tuple[Operator, ...]:
        """Return the operators of a subgraph that is not run but recognised. Raises IndexError."""

    def infer_subgraph(self, index: int, inputs: Sequence[Value], *, known: bool) -> tuple[Shape | None, ...]:
        """Return the output shapes of a subgraph for these inputs, None where only running it tells.

        Constants among the inputs are used where `known` says that they stay the same in every run.
        """

    def run_subgraph(self, index: int, inputs: Sequence[Array]) -> list[Array]:
        """Run a subgraph and return its outputs, views that stay valid until it runs again."""

    def resource(self, kind: type[_Resource], name: tuple[str, str]) -> tuple[int, _Resource]:
        """Return handle and state of a named resource of this interpreter; create it where it is missing."""

    def resource_of(self, kind: type[_Resource], handle: int) -> _Resource:
        """Return the state behind a handle. Raises KeyError for a handle that `resource` did not return."""


@dataclass(frozen=True, slots=True)
class OpContext:
    """One operator with its inputs and outputs: the argument of `infer` and `prepare`.

    Shapes may depend on values: `infer` asks for them with `constant` or `integers`. Where an earlier
    operator computes them at run time, planning stops there by itself, runs what comes before, and calls
    `infer` again with the values known (and once more whenever they change). Where only running the operator
    tells the shapes, `infer` raises `shapes_at_run_time()` and the kernel returns every output by `deliver`.
    """

    operator: Operator
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    scratch: Scratch | None = None
    graph: GraphServices | None = None
    sink: Callable[[int, Array], None] | None = None

    @property
    def where(self) -> str:
        """The operator in error texts, as in `operator 7 CONV_2D`."""
        return f"operator {self.operator.index} {self.operator.name}"

    def option(self, name: str) -> Any:
        """Return an option by its name in the schema."""
        return self.operator.options[name]

    def optional(self, i: int) -> Value | None:
        """Return input `i`, or None where the operator leaves it out."""
        return self.inputs[i] if i < len(self.inputs) else None

    def input(self, i: int = 0) -> Value:
        """Return input `i`. Raises `ShapeError` where it is missing."""
        value = self.optional(i)
        if value is None:
            raise self.error(f"input {i} is missing")
        return value

    def output(self, i: int = 0) -> Value:
        """Return output `i`. Raises `ShapeError` where it is missing."""
        if i >= len(self.outputs):
            raise self.error(f"output {i} is missing")
        return self.outputs[i]

    def read(self, i: int = 0) -> Array:
        """Return the memory of input `i`: its constant, or the bound array.

        Raises `UnsupportedOperatorError` for a type that numpy lacks.
        """
        value = self.input(i)
        array = value.constant if value.constant is not None else value.array
        if array is None:
            raise self.unsupported(f"input {i} of type {value.type.name} has no numpy form")
        return array

    def write(self, i: int = 0) -> Array:
        """Return the memory of output `i`. Raises `UnsupportedOperatorError` for a type that numpy lacks."""
        value = self.output(i)
        if value.array is None:
            raise self.unsupported(f"output {i} of type {value.type.name} has no numpy form")
        return value.array

    def constant(self, i: int, what: str) -> Array:
        """Return the values of input `i` while planning; `what` names them in error texts.

        Raises `PostponeError`, which operators let pass, where the values are not known yet.
        """
        value = self.input(i)
        if value.constant is None:
            text = f"{self.where}: {what} (input {i}) is computed at run time"
            raise PostponeError(text, self.operator.index, value.index)
        return value.constant

    def integers(self, i: int, what: str) -> tuple[int, ...]:
        """Return a constant input as a flat tuple. Raises `ShapeError` beyond `MAX_INTEGERS` elements."""
        values = self.constant(i, what).reshape(-1)
        if values.size > MAX_INTEGERS:
            raise self.error(f"{what} (input {i}) has {values.size} elements")
        return tuple(int(v) for v in values)

    def shapes_at_run_time(self) -> PostponeError:
        """Return the error that `infer` raises where only running the operator tells its outputs' shapes."""
        text = f"{self.where}: only running it tells the shapes of its outputs"
        return PostponeError(text, self.operator.index)

    def deliver(self, i: int, array: Array) -> None:
        """Store output `i` of a run: copied into its memory, or kept where its shape was not known before.

        Raises `ShapeError` where the memory has another shape, or the tensor another type.
        """
        value = self.output(i)
        # `copyto` below would convert silently within a kind, int64 to int32 for example.
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
        """The number of threads that a kernel may use."""
        return 1 if self.graph is None else self.graph.num_threads

    @property
    def services(self) -> GraphServices:
        """The plan's services. Raises `UnsupportedOperatorError` where the operator runs outside a model."""
        if self.graph is None:
            raise self.unsupported("it cannot run outside a model")
        return self.graph

    def temporary(self, shape: Shape, dtype: Any = np.float32) -> Array:
        """Return scratch memory for one run. Raises `ShapeError` beyond `MAX_TENSOR_BYTES`."""
        # By Python's integers: a product in int64 could wrap around to a small number.
        if math.prod(shape) * np.dtype(dtype).itemsize > MAX_TENSOR_BYTES:
            raise self.error(f"a workspace of shape {list(shape)} is too large to plan")
        if self.scratch is None:
            return np.empty(shape, dtype)
        return self.scratch.take(shape, dtype)

    def activation(self) -> ActivationFunctionType:
        """Return the fused activation. Raises `UnsupportedOperatorError` for one that is not a clamp."""
        found: ActivationFunctionType = self.option("fused_activation_function")
        if found in (ActivationFunctionType.TANH, ActivationFunctionType.SIGN_BIT):
            raise self.unsupported(f"fused activation {found.name} is not defined")
        return found

    def scale_and_zero_point(self, value: Value) -> tuple[float, int]:
        """Return per-tensor scale and zero point. Raises `UnsupportedOperatorError` where it has none."""
        q = value.quantization
        if q is None or q.blocks is not None or q.is_custom or len(q.scales) != 1:
            raise self.unsupported(f"tensor {value.name!r} has no per-tensor scale and zero point")
        if q.scales[0] == 0:
            raise self.unsupported(f"tensor {value.name!r} has a scale of 0")
        return q.scales[0], q.zero_points[0]

    def scales(self) -> tuple[float, int, float, int]:
        """Return scale and zero point of input 0, then of output 0, as `scale_and_zero_point` does."""
        given, result = self.scale_and_zero_point(self.input()), self.scale_and_zero_point(self.output())
        return (*given, *result)

    def error(self, text: str) -> ShapeError:
        """Return a `ShapeError` that names this operator."""
        return ShapeError(f"{self.where}: {text}")

    def unsupported(self, reason: str) -> UnsupportedOperatorError:
        """Return an `UnsupportedOperatorError` that names this operator, its version and its index."""
        return unsupported(self.operator, reason)

    def require(self, *types: TensorType, i: int = 0) -> TensorType:
        """Return the type of input `i`. Raises `UnsupportedOperatorError` unless it is one of `types`."""
        value = self.input(i)
        if value.type not in types:
            listed = ", ".join(t.name for t in types)
            raise self.unsupported(f"input {i} has type {value.type.name}; the CPU kernel has {listed}")
        return value.type

    def require_output(self, *types: TensorType, i: int = 0) -> TensorType:
        """Return the type of output `i`. Raises `UnsupportedOperatorError` unless it is one of `types`."""
        value = self.output(i)
        if value.type not in types:
            listed = ", ".join(t.name for t in types)
            raise self.unsupported(f"output {i} has type {value.type.name}; the CPU kernel gives {listed}")
        return value.type

    def require_operands(self, *inputs: int) -> None:
        """Raise `UnsupportedOperatorError` unless the listed inputs have the type of input 0."""
        for i in inputs:
            self.require(self.input().type, i=i)

    def require_same_type(self, *inputs: int) -> None:
        """Raise `UnsupportedOperatorError` unless the listed inputs and output 0 have one type."""
        found = {self.input(i).type for i in inputs} | {self.output().type}
        if len(found) > 1:
            names = ", ".join(sorted(t.name for t in found))
            raise self.unsupported(f"mixed types {names}; the CPU kernel needs one type")

    def require_equal_quantization(self, first: Value, *others: Value) -> None:
        """Raise `UnsupportedOperatorError` unless all values have equal quantisation, or none has any."""
        if any(value.quantization != first.quantization for value in others):
            raise self.unsupported("inputs and output differ in scale or zero point")


def unsupported(operator: Operator, reason: str) -> UnsupportedOperatorError:
    """Return the error for an operator that the CPU path cannot run."""
    return UnsupportedOperatorError(
        f"operator {operator.index} {operator.name} version {operator.version}: {reason}",
        operator_name=operator.name,
        version=operator.version,
        index=operator.index,
    )
