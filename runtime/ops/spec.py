"""What an operator is: how its output shapes follow from its inputs, and how a kernel is prepared.

A kernel has two phases, as in tflite-micro: `prepare` does everything that depends on shapes, types and
scales and returns a closure; the closure works on the arrays bound at that time and allocates nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from runtime.errors import ShapeError, UnsupportedOperatorError
from runtime.model.graph import Operator, Quantization, Tensor
from runtime.model.schema import ActivationFunctionType, BuiltinOperator, TensorType

Array: TypeAlias = NDArray[Any]
Shape: TypeAlias = tuple[int, ...]
Kernel: TypeAlias = Callable[[], None]

SCRATCH_BYTES = 64 << 20
MAX_TENSOR_BYTES = 2 << 30
_ALIGNMENT = 64

_DTYPES: Mapping[TensorType, Any] = {
    TensorType.FLOAT32: np.float32,
    TensorType.FLOAT16: np.float16,
    TensorType.INT32: np.int32,
    TensorType.UINT8: np.uint8,
    TensorType.INT64: np.int64,
    TensorType.BOOL: np.bool_,
    TensorType.INT16: np.int16,
    TensorType.COMPLEX64: np.complex64,
    TensorType.INT8: np.int8,
    TensorType.FLOAT64: np.float64,
    TensorType.COMPLEX128: np.complex128,
    TensorType.UINT64: np.uint64,
    TensorType.UINT32: np.uint32,
    TensorType.UINT16: np.uint16,
}


def dtype_of(tensor_type: TensorType) -> np.dtype[Any] | None:
    """The numpy dtype that holds `tensor_type`, or None for packed, string and resource types."""
    found = _DTYPES.get(tensor_type)
    return None if found is None else np.dtype(found)


def constant_array(tensor: Tensor) -> Array | None:
    """The values of a dense constant, as a view of the file where its alignment allows, else None."""
    dtype = dtype_of(tensor.type)
    if tensor.data is None or dtype is None or tensor.sparsity is not None:
        return None
    values = np.frombuffer(tensor.data, dtype.newbyteorder("<")).reshape(tensor.shape)
    return values if values.flags.aligned else values.copy()


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor as an operator sees it.

    `constant` holds values known while planning. `array` is the bound memory: None while shapes are inferred.
    """

    index: int
    name: str
    type: TensorType
    shape: Shape
    quantization: Quantization | None = None
    constant: Array | None = None
    array: Array | None = None

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The numpy dtype, or None for types that numpy lacks."""
        return dtype_of(self.type)

    @property
    def elements(self) -> int:
        """Product of the dimensions."""
        return math.prod(self.shape)


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
    """One operator with its inputs and outputs; what `infer` and `prepare` receive."""

    operator: Operator
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    scratch: Scratch | None = None

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
        """Values of input `i`, which must be known while planning."""
        value = self.input(i).constant
        if value is None:
            raise self.unsupported(
                f"{what} (input {i}) is computed at run time; only a constant is supported"
            )
        return value

    def integers(self, i: int, what: str) -> tuple[int, ...]:
        """A constant input as a flat tuple of integers."""
        return tuple(int(v) for v in self.constant(i, what).reshape(-1))

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
    """One operator of the CPU path. `shape_only`: outputs depend on shapes of inputs, not on values."""

    opcode: BuiltinOperator
    max_version: int
    infer: Infer
    prepare: Prepare
    shape_only: bool = False


_REGISTRY: dict[BuiltinOperator, OpSpec] = {}
SPECS: Mapping[BuiltinOperator, OpSpec] = _REGISTRY


def operator(
    *opcodes: BuiltinOperator, max_version: int, infer: Infer, shape_only: bool = False
) -> Callable[[Prepare], Prepare]:
    """Register a kernel's `prepare` for one or more operators. Raises ValueError on a second registration."""

    def register(prepare: Prepare) -> Prepare:
        for opcode in opcodes:
            if opcode in _REGISTRY:
                first = _REGISTRY[opcode].prepare.__module__
                raise ValueError(f"{opcode.name} is registered by {first} and {prepare.__module__}")
            _REGISTRY[opcode] = OpSpec(opcode, max_version, infer, prepare, shape_only)
        return prepare

    return register


def prepare_kernel(op: OpContext) -> Kernel:
    """The closure that runs an operator; one without anything to compute does nothing."""
    spec = find_spec(op.operator)
    if op.outputs and all(value.elements == 0 for value in op.outputs):
        return lambda: None
    return spec.prepare(op)


def evaluate(operator: Operator, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> list[Array]:
    """Run an operator once on constant inputs (`Value.constant`), as constant folding does.

    `outputs` state shapes and types. Raises `UnsupportedOperatorError` where the CPU path cannot.
    """
    bound = []
    for value in outputs:
        if value.dtype is None:
            raise unsupported(operator, f"output {value.name!r} of type {value.type.name} has no numpy form")
        bound.append(replace(value, array=np.empty(value.shape, value.dtype)))
    context = OpContext(operator, tuple(inputs), tuple(bound))
    with np.errstate(all="ignore"):
        prepare_kernel(context)()
    return [context.write(i) for i in range(len(bound))]


def find_spec(op: Operator) -> OpSpec:
    """The CPU kernel for an operator. Raises `UnsupportedOperatorError`."""
    if op.custom_code is not None:
        raise unsupported(op, "the CPU path has no such custom operator")
    spec = SPECS.get(op.opcode)
    if spec is None:
        raise unsupported(op, "the CPU path has no kernel for this operator")
    if op.version > spec.max_version:
        raise unsupported(op, f"the CPU kernel knows versions up to {spec.max_version}")
    return spec
