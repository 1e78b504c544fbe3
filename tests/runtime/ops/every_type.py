"""Operators that move elements, as data: each is built once for every type, and is LiteRT's bit for bit."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pytest

from runtime.errors import InvocationError, ModelError
from runtime.model.schema import BuiltinOperator, TensorType
from tests.oracle import LiteRtError, OracleDiedError, run_litert
from tests.runtime.models import Arg, Out, const, one_operator
from tests.runtime.ops.cases import CPU, Case, run_ours

Op = BuiltinOperator
Built: TypeAlias = "tuple[Sequence[Arg | None], Sequence[Out], Mapping[str, Any]]"

REFERENCE = "BUILTIN_REF"
# Where the reference resolver lacks the operator or this version of it.
PLAIN = "BUILTIN_WITHOUT_DEFAULT_DELEGATES"

DTYPES = {
    TensorType.FLOAT32: np.float32,
    TensorType.FLOAT16: np.float16,
    TensorType.FLOAT64: np.float64,
    TensorType.INT8: np.int8,
    TensorType.UINT8: np.uint8,
    TensorType.INT16: np.int16,
    TensorType.UINT16: np.uint16,
    TensorType.INT32: np.int32,
    TensorType.UINT32: np.uint32,
    TensorType.INT64: np.int64,
    TensorType.UINT64: np.uint64,
    TensorType.BOOL: np.bool_,
    TensorType.STRING: np.object_,
    TensorType.COMPLEX64: np.complex64,
}
TYPES = tuple(DTYPES)
NOT_STRINGS = tuple(t for t in TYPES if t is not TensorType.STRING)


class Values:
    """Operands of one type; `seed` makes them differ from case to case."""

    def __init__(self, tensor_type: TensorType, seed: int = 0) -> None:
        self.type = tensor_type
        self.dtype = np.dtype(DTYPES[tensor_type])
        self._random = np.random.default_rng(seed)

    def array(self, *shape: int) -> np.ndarray:
        kind = self.dtype.kind
        if kind == "O":
            lengths = self._random.integers(0, 9, shape)
            words = [bytes(97 + self._random.integers(0, 26, n, dtype=np.uint8)) for n in lengths.flat]
            found = np.empty(len(words), object)
            found[:] = words
            return found.reshape(shape)
        if kind == "b":
            return self._random.integers(0, 2, shape).astype(np.bool_)
        if kind in "iu":
            info = np.iinfo(self.dtype)
            return self._random.integers(info.min, info.max, shape, self.dtype, endpoint=True)
        values = self._random.normal(0, 10, shape)
        return (values + 1j * self._random.normal(0, 10, shape) if kind == "c" else values).astype(self.dtype)

    def arg(self, *shape: int) -> Arg:
        return Arg(self.array(*shape), type=self.type)

    def out(self, shape: tuple[int, ...] = ()) -> Out:
        return Out(self.dtype, type=self.type, shape=shape)


@dataclass(frozen=True)
class Movement:
    """`build` makes operands, results and options for one type.

    `only`: the types to build it for, where LiteRT leaves results of others undefined instead of refusing.
    """

    name: str
    opcode: BuiltinOperator
    build: Callable[[Values], Built]
    version: int = 1
    resolver: str = REFERENCE
    only: tuple[TensorType, ...] = TYPES

    def __str__(self) -> str:
        return f"{self.opcode.name}-{self.name}"


def ints(values: Any, dtype: Any = np.int32) -> Arg:
    return const(values, dtype)


def fed(values: Any, dtype: Any = np.int32) -> Arg:
    return Arg(np.asarray(values, dtype))


def unary(
    name: str,
    opcode: BuiltinOperator,
    shape: Sequence[int],
    *more: Arg,
    version: int = 1,
    resolver: str = REFERENCE,
    **options: Any,
) -> Movement:
    """One operand of the type, further ones as given, one result of the type."""
    return Movement(name, opcode, lambda v: ([v.arg(*shape), *more], [v.out()], options), version, resolver)


def several(
    name: str,
    opcode: BuiltinOperator,
    shapes: Sequence[Sequence[int]],
    version: int = 1,
    resolver: str = REFERENCE,
    outs: int = 1,
    **options: Any,
) -> Movement:
    """Operands of the type alone."""
    return Movement(
        name,
        opcode,
        lambda v: ([v.arg(*s) for s in shapes], [v.out() for _ in range(outs)], options),
        version,
        resolver,
    )


def every_type(movements: Sequence[Movement]) -> pytest.MarkDecorator:
    """Parametrise a test with `movement`, each of which it tries in each of its types."""
    return pytest.mark.parametrize("movement", movements, ids=str)


def moves_as_litert(movement: Movement) -> None:
    for tensor_type in movement.only:
        try:
            _moves_as_litert(built(movement, tensor_type))
        except Exception as error:
            error.add_note(f"of {tensor_type.name}")
            raise


def _moves_as_litert(case: Case) -> None:
    try:
        expected = run_litert(case.model, case.inputs, case.resolver)
    except (LiteRtError, OracleDiedError):
        runs_or_refuses(case)
        return
    found = run_ours(case, CPU)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def built(movement: Movement, tensor_type: TensorType) -> Case:
    values = Values(tensor_type, zlib.crc32(str(movement).encode()))
    args, outs, options = movement.build(values)
    model = one_operator(movement.opcode, args, outs, options, movement.version)
    inputs = tuple(a.value for a in args if a is not None and not a.constant)
    return Case(str(movement), model, inputs, movement.resolver)


def runs_or_refuses(case: Case) -> None:
    """Run a kernel that LiteRT lacks: ours may have it, or refuse it as an error of the model."""
    with contextlib.suppress(ModelError, InvocationError):
        run_ours(case, CPU)
