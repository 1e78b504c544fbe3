"""Operators that move elements, as data: each case is built once for every type that a tensor can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from runtime.model.schema import BuiltinOperator, MirrorPadMode, TensorType
from tests.runtime.models import Arg, Out, const

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


_DIAGONAL = (
    TensorType.FLOAT32,
    TensorType.INT64,
    TensorType.INT32,
    TensorType.INT16,
    TensorType.INT8,
    TensorType.UINT8,
)
_NOT_STRINGS = tuple(t for t in TYPES if t is not TensorType.STRING)


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


REFLECT, SYMMETRIC = MirrorPadMode.REFLECT, MirrorPadMode.SYMMETRIC

SHAPES = [
    unary("option", Op.RESHAPE, (2, 3, 4), new_shape=[4, -1]),
    unary("tensor", Op.RESHAPE, (2, 3, 4), ints([3, 2, 4])),
    unary("to_scalar", Op.RESHAPE, (1, 1), new_shape=[0]),
    unary("empty", Op.RESHAPE, (2, 0, 3), ints([3, 0])),
    unary("all", Op.SQUEEZE, (1, 3, 1, 2)),
    unary("listed", Op.SQUEEZE, (1, 3, 1, 2), squeeze_dims=[-2]),
    unary("front", Op.EXPAND_DIMS, (3, 2), ints(0)),
    unary("last", Op.EXPAND_DIMS, (3, 2), ints([-1])),
    unary("middle_int64", Op.EXPAND_DIMS, (3, 2), ints([1], np.int64)),
    unary("matrix", Op.TRANSPOSE, (3, 5), ints([1, 0])),
    unary("image", Op.TRANSPOSE, (2, 3, 4, 5), ints([0, 3, 1, 2])),
    unary("six", Op.TRANSPOSE, (2, 1, 3, 2, 2, 2), ints([5, 0, 3, 1, 4, 2])),
]

JOINS = [
    several("middle", Op.CONCATENATION, [(2, 3, 4), (2, 1, 4), (2, 5, 4)], axis=1),
    several("last", Op.CONCATENATION, [(2, 3), (2, 4)], axis=-1),
    several("one", Op.CONCATENATION, [(2, 3)], axis=0),
    several("with_empty", Op.CONCATENATION, [(2, 3), (0, 3)], axis=0),
    several("front", Op.PACK, [(3, 4)] * 3, values_count=3, axis=0),
    several("behind", Op.PACK, [(3, 4)] * 2, values_count=2, axis=-1),
    several("scalars", Op.PACK, [()] * 3, values_count=3, axis=0),
    several("front", Op.UNPACK, [(3, 4)], outs=3, num=3, axis=0),
    several("last", Op.UNPACK, [(3, 2, 2)], outs=2, num=2, axis=-1),
    Movement(
        "three", Op.SPLIT, lambda v: ([ints(1), v.arg(2, 6)], [v.out() for _ in range(3)], {"num_splits": 3})
    ),
    Movement(
        "sizes",
        Op.SPLIT_V,
        lambda v: ([v.arg(2, 7), ints([1, -1, 2]), ints(1)], [v.out() for _ in range(3)], {"num_splits": 3}),
    ),
    Movement(
        "int64_sizes",
        Op.SPLIT_V,
        lambda v: ([v.arg(7, 2), ints([3, 4], np.int64), ints(-2)], [v.out(), v.out()], {"num_splits": 2}),
    ),
]

SLICES = [
    unary("box", Op.SLICE, (4, 5, 6), ints([1, 0, 2]), ints([2, 5, -1])),
    unary("int64", Op.SLICE, (4, 5), ints([1, 2], np.int64), ints([3, 2], np.int64)),
    unary("computed_begin", Op.SLICE, (4, 5), fed([1, 2]), ints([3, 2])),
    unary("computed", Op.SLICE, (4, 5), fed([1, 2]), fed([3, -1])),
    unary("five", Op.SLICE, (2, 3, 2, 3, 2), ints([0, 1, 0, 1, 0]), ints([2, 2, 1, 2, 2])),
    unary("steps", Op.STRIDED_SLICE, (7, 9), ints([0, 1]), ints([7, 9]), ints([3, 2])),
    unary("backwards", Op.STRIDED_SLICE, (7, 9), ints([6, 8]), ints([0, 2]), ints([-2, -3])),
    unary(
        "masks", Op.STRIDED_SLICE, (4, 5, 6), *(ints(v) for v in ([1, 1, 1], [2, 2, 2], [1, 2, 1])),
        begin_mask=1, end_mask=4, shrink_axis_mask=2,
    ),
    unary("computed", Op.STRIDED_SLICE, (7, 9), fed([1, 0]), fed([5, 9]), ints([1, 2])),
    unary(
        "offset", Op.STRIDED_SLICE, (7, 9), ints([-6, 2]), ints([3, 4]), ints([1, 1]),
        offset=True, version=8, resolver=PLAIN,
    ),
    unary("empty", Op.STRIDED_SLICE, (7, 9), ints([5, 0]), ints([2, 9]), ints([1, 1])),
    Movement(
        "clamped", Op.DYNAMIC_UPDATE_SLICE,
        lambda v: ([v.arg(5, 6), v.arg(2, 3), fed([4, -1])], [v.out()], {}),
    ),
    Movement(
        "int64", Op.DYNAMIC_UPDATE_SLICE,
        lambda v: ([v.arg(3, 4, 5), v.arg(1, 2, 5), fed([1, 1, 0], np.int64)], [v.out()], {}),
    ),
]  # fmt: skip

PADS = [
    unary("zeros", Op.PAD, (2, 3, 4), ints([[1, 0], [0, 2], [1, 1]])),
    unary("int64", Op.PAD, (2, 3), ints([[1, 0], [0, 2]], np.int64)),
    unary("computed", Op.PAD, (2, 3), fed([[1, 0], [0, 2]])),
    unary("five", Op.PAD, (2, 1, 2, 3, 2), ints([[0, 1], [1, 0], [0, 0], [2, 1], [0, 0]])),
    Movement("value", Op.PADV2, lambda v: ([v.arg(2, 3), ints([[1, 1], [0, 2]]), v.arg(1)], [v.out()], {})),
    unary("reflect", Op.MIRROR_PAD, (4, 5), ints([[2, 3], [4, 1]]), mode=REFLECT),
    unary("symmetric", Op.MIRROR_PAD, (3, 4), ints([[3, 1], [2, 4]], np.int64), mode=SYMMETRIC),
    unary("cube", Op.MIRROR_PAD, (3, 3, 4), ints([[1, 2], [0, 1], [3, 0]]), mode=REFLECT),
    Movement("square", Op.DILATE, lambda v: ([v.arg(3, 4), ints([2, 3]), v.arg()], [v.out()], {})),
    Movement("computed", Op.DILATE, lambda v: ([v.arg(2, 3, 2), fed([1, 2, 2]), v.arg()], [v.out()], {})),
    Movement(
        "edges_and_interior", Op.STABLEHLO_PAD,
        lambda v: ([v.arg(3, 4), v.arg()], [v.out()], {
            "edge_padding_low": [1, 0], "edge_padding_high": [2, 1], "interior_padding": [1, 2]}),
    ),
    Movement(
        "crops", Op.STABLEHLO_PAD,
        lambda v: ([v.arg(4, 5), v.arg()], [v.out()], {
            "edge_padding_low": [-1, -2], "edge_padding_high": [1, -1], "interior_padding": [0, 1]}),
    ),
]  # fmt: skip

CHOICES = [
    unary("rows", Op.GATHER, (7, 4), fed([3, 0, 6, 6])),
    unary("list", Op.GATHER, (7,), fed([3, 0, 6, 6])),
    unary("int16", Op.GATHER, (2, 7, 3), ints([[1, 5], [0, 2]], np.int16), axis=1),
    unary("int64", Op.GATHER, (2, 7), ints([6, 1], np.int64), axis=-1),
    unary("scalar", Op.GATHER, (5, 4), ints(2)),
    unary("batch", Op.GATHER, (2, 5, 3), ints([[4, 0, 1], [2, 2, 3]]), axis=1, batch_dims=1),
    unary("batch_before_axis", Op.GATHER, (2, 3, 4), ints([[3, 0], [1, 2]]), axis=2, batch_dims=1),
    unary("batch_negative", Op.GATHER, (2, 3, 4), ints([[3, 0], [1, 2]]), axis=-1, batch_dims=-1),
    unary("elements", Op.GATHER_ND, (3, 4), fed([[0, 1], [2, 3], [1, 0]])),
    unary("slices", Op.GATHER_ND, (3, 4, 2), ints([[[0], [2]], [[1], [1]]], np.int64)),
    unary("int16", Op.GATHER_ND, (3, 4, 2), ints([[2, 1], [0, 0]], np.int16)),
    Movement(
        "elements", Op.SCATTER_ND, lambda v: ([ints([[3], [0], [3]]), v.arg(3), ints([5])], [v.out()], {})
    ),
    Movement(
        "slices", Op.SCATTER_ND,
        lambda v: ([fed([[1], [1], [0]]), v.arg(3, 2, 2), fed([2, 2, 2])], [v.out()], {}),
    ),
    Movement(
        "matrix", Op.SPARSE_TO_DENSE,
        lambda v: ([ints([[0, 1], [2, 3]]), ints([3, 4]), v.arg(2), v.arg()], [v.out()], {}),
    ),
    Movement(
        "one_for_all", Op.SPARSE_TO_DENSE,
        lambda v: ([ints([1, 4], np.int64), fed([6], np.int64), v.arg(), v.arg()], [v.out()], {}),
    ),
]  # fmt: skip

REPEATS = [
    unary("plain", Op.TILE, (2, 3), ints([2, 3])),
    unary("computed_int64", Op.TILE, (2, 1, 3), fed([1, 4, 2], np.int64)),
    unary("none", Op.TILE, (2, 3), ints([0, 3])),
    unary("matrix", Op.BROADCAST_TO, (3, 1), ints([2, 3, 4]), version=2),
    unary("eight", Op.BROADCAST_TO, (1, 2, 1), ints([2, 1, 1, 2, 1, 3, 2, 2], np.int64), version=2),
    unary("computed", Op.BROADCAST_TO, (4,), fed([3, 4]), version=2),
    Movement("plain", Op.FILL, lambda v: ([ints([2, 3]), v.arg()], [v.out()], {}), only=_NOT_STRINGS),
    Movement(
        "computed", Op.FILL, lambda v: ([fed([2, 3], np.int64), v.arg()], [v.out()], {}), only=_NOT_STRINGS
    ),
    unary("plain", Op.ZEROS_LIKE, (2, 3)),
    Movement(
        "last", Op.ONE_HOT,
        lambda v: ([fed([[1, 4], [0, 7]]), ints(5), v.arg(), v.arg()], [v.out()], {"axis": -1}),
    ),
    Movement(
        "first_int64", Op.ONE_HOT,
        lambda v: ([fed([1, -1, 2], np.int64), fed(3), v.arg(), v.arg()], [v.out()], {"axis": 0}),
    ),
    Movement("plain", Op.MATRIX_DIAG, lambda v: ([v.arg(2, 3)], [v.out()], {}), only=_DIAGONAL),
    Movement(
        "wide", Op.MATRIX_SET_DIAG, lambda v: ([v.arg(2, 3, 4), v.arg(2, 3)], [v.out()], {}), only=_DIAGONAL
    ),
    Movement("tall", Op.MATRIX_SET_DIAG, lambda v: ([v.arg(4, 2), v.arg(2)], [v.out()], {}), only=_DIAGONAL),
]  # fmt: skip

BLOCKS = [
    unary("two", Op.SPACE_TO_DEPTH, (2, 4, 6, 3), block_size=2),
    unary("two", Op.DEPTH_TO_SPACE, (2, 2, 3, 8), block_size=2),
    unary("three", Op.DEPTH_TO_SPACE, (1, 2, 1, 18), block_size=3),
    unary("image", Op.SPACE_TO_BATCH_ND, (1, 3, 5, 2), ints([2, 3]), ints([[0, 1], [1, 0]])),
    unary("line", Op.SPACE_TO_BATCH_ND, (2, 4, 3), ints([2]), ints([[0, 0]])),
    unary("computed", Op.SPACE_TO_BATCH_ND, (1, 2, 2, 1), fed([2, 2]), fed([[0, 0], [2, 0]])),
    unary("image", Op.BATCH_TO_SPACE_ND, (6, 2, 2, 2), ints([2, 3]), ints([[0, 1], [1, 2]])),
    unary("line", Op.BATCH_TO_SPACE_ND, (4, 2, 3), ints([2]), ints([[0, 0]])),
]

ORDERS = [
    unary("one", Op.REVERSE_V2, (3, 4), ints([1])),
    unary("two", Op.REVERSE_V2, (3, 4, 2), ints([0, -2])),
    unary("plain", Op.REVERSE_SEQUENCE, (3, 4, 2), fed([4, 0, 2]), seq_dim=1, batch_dim=0),
    unary("int64", Op.REVERSE_SEQUENCE, (2, 3, 3), fed([1, 2, 2], np.int64), seq_dim=0, batch_dim=2),
    Movement("rows", Op.TOPK_V2, lambda v: ([v.arg(3, 9), ints(4)], [v.out(), Out(np.int32)], {})),
    Movement("computed", Op.TOPK_V2, lambda v: ([v.arg(7), fed([7])], [v.out(), Out(np.int32)], {})),
    Movement(
        "int16", Op.TOPK_V2,
        lambda v: ([v.arg(2, 5), ints(3, np.int16)], [v.out(), Out(np.int16)], {}), version=3,
    ),
    Movement("plain", Op.UNIQUE, lambda v: ([v.arg(9)], [v.out(), Out(np.int32)], {})),
    Movement(
        "int64", Op.UNIQUE,
        lambda v: ([v.arg(30)], [v.out(), Out(np.int64)], {"idx_out_type": TensorType.INT64}),
    ),
    Movement("cube", Op.WHERE, lambda v: ([v.arg(2, 3, 4)], [Out(np.int64)], {})),
    Movement("shape", Op.SHAPE, lambda v: ([v.arg(2, 3)], [Out(np.int32)], {"out_type": TensorType.INT32})),
    Movement("shape64", Op.SHAPE, lambda v: ([v.arg(2)], [Out(np.int64)], {"out_type": TensorType.INT64})),
    Movement("rank", Op.RANK, lambda v: ([v.arg(2, 3, 1)], [Out(np.int32)], {})),
]  # fmt: skip

SEGMENTS = [
    Movement(
        "rows", Op.SEGMENT_SUM, lambda v: ([v.arg(5, 2), fed([0, 0, 1, 2, 2])], [v.out()], {}), resolver=PLAIN
    ),
    *(
        Movement(
            "negative_and_empty", opcode,
            lambda v: ([v.arg(5, 2), fed([3, -1, 0, 3, 1]), ints([5])], [v.out()], {}),
        )
        for opcode in (
            Op.UNSORTED_SEGMENT_SUM, Op.UNSORTED_SEGMENT_PROD, Op.UNSORTED_SEGMENT_MAX,
            Op.UNSORTED_SEGMENT_MIN,
        )
    ),
]  # fmt: skip

MOVEMENTS = SHAPES + JOINS + SLICES + PADS + CHOICES + REPEATS + BLOCKS + ORDERS + SEGMENTS
