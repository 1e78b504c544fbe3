"""The registry of kernels: registration by opcode or custom name, and look-up for an operator of a file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Protocol, TypeAlias

from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from runtime.ops.support.context import Kernel, OpContext, unsupported
from runtime.ops.support.value import Shape

CUSTOM_GROUP = "delegate_farm.operators"
"""The entry-point group in which packages register custom operators."""

Infer: TypeAlias = Callable[[OpContext], tuple[Shape, ...]]
Prepare: TypeAlias = Callable[[OpContext], Kernel]


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One operator of the CPU path: how its output shapes follow from its inputs, and its kernel.

    `shape_only`: outputs depend on shapes of inputs, not on values. `types` are the types that input `data`
    may have, empty where the kernel alone decides; `note` says what they leave out (weights, second
    operands). `docs/operators.md` is written from the three. `stateful`: running it twice is not the same as
    once (variables, random numbers, other subgraphs), so it is never folded and keeps its order among the
    stateful operators. `subgraphs` names the options that hold indices of subgraphs that it runs.
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


_REGISTRY: dict[Op, OpSpec] = {}
_CUSTOM: dict[str, OpSpec] = {}
SPECS: Mapping[Op, OpSpec] = _REGISTRY
CUSTOM_SPECS: Mapping[str, OpSpec] = _CUSTOM


def operator(
    *opcodes: Op,
    infer: Infer,
    max_version: int = 1,
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
                # Otherwise the order of imports would decide which of the two kernels counts.
                raise ValueError(f"{opcode.name} is registered by {first} and {prepare.__module__}")
            _REGISTRY[opcode] = spec
        return prepare

    return register


class CustomRegistrar(Protocol):
    """The signature of `custom_operator`, for functions that receive it as an argument."""

    def __call__(
        self, name: str, *, infer: Infer, max_version: int = 1, stateful: bool = False
    ) -> Callable[[Prepare], Prepare]:
        """Return a decorator that registers a kernel's `prepare`."""


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


def find_spec(op: Operator) -> OpSpec:
    """Return the CPU kernel for an operator.

    Raises `UnsupportedOperatorError` for one without a kernel, or of a newer version than the kernel knows.
    """
    if op.custom_code is not None:
        # What this process has registered comes first: entry points are only looked for where nothing has.
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
    """Load the entry points of a custom operator's name; return what they registered, None for nothing."""
    for point in entry_points(group=CUSTOM_GROUP, name=name):
        # The import alone counts: the decorators of the module register the kernels.
        point.load()
    return _CUSTOM.get(name)


def _unknown_custom(name: str) -> str:
    if name.startswith("Flex"):
        return f"custom operator {name} needs TensorFlow's own kernels, which a .tflite runtime lacks"
    return f"custom operator {name}; runtime.custom_operator registers a kernel for it"
