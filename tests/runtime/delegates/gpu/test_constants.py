"""Constants of every type of the file in every place of every operator: what no kernel reads is refused."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pytest

from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.graph.graph import Custom, Kind
from runtime.delegates.gpu.lowering import families
from runtime.delegates.gpu.lowering.treatment import refusal
from runtime.delegates.partition import make_partition
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding, TensorType
from runtime.ops.support.registry import CUSTOM_SPECS
from runtime.ops.support.value import constant_array, dtype_of
from runtime.plan.inference import GraphValues
from tests.runtime.models import Builder

_IMAGE = (1, 4, 4, 4)
_WINDOW = {"stride_h": 1, "stride_w": 1, "padding": Padding.SAME}
_POOL = {**_WINDOW, "filter_height": 2, "filter_width": 2}


def _integers(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


_MARGINS = _integers([0, 0], [0, 0], [1, 1], [0, 0])
_NO_MARGINS = _integers([0, 0], [0, 0])
_WHOLE = (_integers(0, 0, 0, 0), _integers(1, 4, 4, 4), _integers(1, 1, 1, 1))
_BINARY = (
    Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MAXIMUM, Op.MINIMUM, Op.SQUARED_DIFFERENCE, Op.PRELU,
    Op.POW, Op.FLOOR_DIV, Op.FLOOR_MOD, Op.ATAN2, Op.STABLEHLO_ADD, Op.STABLEHLO_MULTIPLY,
    Op.STABLEHLO_MAXIMUM, Op.STABLEHLO_MINIMUM,
)  # fmt: skip
_COMPARISONS = (Op.EQUAL, Op.NOT_EQUAL, Op.LESS, Op.LESS_EQUAL, Op.GREATER, Op.GREATER_EQUAL)
_OF_BOOLS = (Op.LOGICAL_AND, Op.LOGICAL_OR)
_OF_INTEGERS = (Op.BITWISE_XOR, Op.RIGHT_SHIFT, Op.STABLEHLO_AND, Op.STABLEHLO_SHIFT_LEFT)
_OF_FLAGS = (Op.REDUCE_ANY, Op.REDUCE_ALL)
_REDUCTIONS = (Op.MEAN, Op.SUM, Op.REDUCE_MAX, Op.REDUCE_MIN, Op.REDUCE_PROD, *_OF_FLAGS)


@dataclass(frozen=True)
class _State:
    """An operand that keeps what the run before has left."""

    shape: tuple[int, ...]


_Operand: TypeAlias = "tuple[int, ...] | np.ndarray | _State | None"
"""The shape of an operand, the integers that it must be given, a state, or None for an absent one."""

_CELL = [
    *((3, 4),) * 4,
    *((3, 3),) * 4,
    *(None,) * 3,
    *((3,),) * 4,
    None,
    None,
    _State((2, 3)),
    _State((2, 3)),
]

_FORMS: dict[Kind, tuple[list[_Operand], tuple[int, ...], dict[str, Any]]] = {
    Op.CONV_2D: ([_IMAGE, (2, 3, 3, 4), (2,)], (1, 4, 4, 2), _WINDOW),
    Op.DEPTHWISE_CONV_2D: ([_IMAGE, (1, 3, 3, 4), (4,)], _IMAGE, {**_WINDOW, "depth_multiplier": 1}),
    Op.FULLY_CONNECTED: ([(2, 4), (3, 4), (3,)], (2, 3), {}),
    Op.TRANSPOSE_CONV: ([_integers(1, 4, 4, 2), (2, 3, 3, 4), _IMAGE, (2,)], (1, 4, 4, 2), _WINDOW),
    Custom.CONVOLUTION_2D_TRANSPOSE_BIAS: ([_IMAGE, (2, 3, 3, 4), (2,)], (1, 4, 4, 2), {}),
    Op.CONV_3D: ([(1, 4, 4, 4, 4), (2, 2, 2, 4, 2), (2,)], (1, 4, 4, 4, 2), {**_WINDOW, "stride_d": 1}),
    Op.BATCH_MATMUL: ([(2, 4, 5), (5, 3)], (2, 4, 3), {"adj_x": False, "adj_y": False}),
    Op.CONCATENATION: ([_IMAGE, _IMAGE], (1, 4, 4, 8), {"axis": 3}),
    Op.MAX_POOL_2D: ([_IMAGE], _IMAGE, _POOL),
    Op.AVERAGE_POOL_2D: ([_IMAGE], _IMAGE, _POOL),
    Op.L2_POOL_2D: ([_IMAGE], _IMAGE, _POOL),
    Op.LOCAL_RESPONSE_NORMALIZATION: (
        [_IMAGE],
        _IMAGE,
        {"radius": 1, "alpha": 1.0, "beta": 0.5, "bias": 1.0},
    ),
    Op.CUMSUM: ([_IMAGE, _integers(1)], _IMAGE, {}),
    Op.SOFTMAX: ([_IMAGE], _IMAGE, {"beta": 1.0}),
    Op.RESHAPE: ([_IMAGE, _integers(4, 16)], (4, 16), {"new_shape": [4, 16]}),
    Op.SQUEEZE: ([_IMAGE], (4, 4, 4), {}),
    Op.EXPAND_DIMS: ([_IMAGE, _integers(0)], (1, *_IMAGE), {}),
    Op.PAD: ([_IMAGE, _MARGINS], (1, 4, 6, 4), {}),
    Op.PADV2: ([_IMAGE, _MARGINS, (1,)], (1, 4, 6, 4), {}),
    Op.TRANSPOSE: ([_IMAGE, _integers(0, 2, 1, 3)], _IMAGE, {}),
    Op.SLICE: ([_IMAGE, *_WHOLE[:2]], _IMAGE, {}),
    Op.STRIDED_SLICE: ([_IMAGE, *_WHOLE], _IMAGE, {}),
    Op.SPLIT: ([_integers(3), _IMAGE], _IMAGE, {"num_splits": 1}),
    Op.SPLIT_V: ([_IMAGE, _integers(4), _integers(3)], _IMAGE, {"num_splits": 1}),
    Op.UNPACK: ([_IMAGE], (4, 4, 4), {"axis": 0, "num": 1}),
    Op.TILE: ([_IMAGE, _integers(1, 1, 2, 1)], (1, 4, 8, 4), {}),
    Op.BROADCAST_TO: ([_IMAGE, _integers(2, 4, 4, 4)], (2, 4, 4, 4), {}),
    Op.FILL: ([_integers(3, 7), (1,)], (3, 7), {}),
    Op.REVERSE_V2: ([_IMAGE, _integers(1)], _IMAGE, {}),
    Op.MIRROR_PAD: ([_IMAGE, _MARGINS], (1, 4, 6, 4), {"mode": 0}),
    Op.SPACE_TO_BATCH_ND: ([_IMAGE, _integers(2, 2), _NO_MARGINS], (4, 2, 2, 4), {}),
    Op.BATCH_TO_SPACE_ND: ([(4, 2, 2, 4), _integers(2, 2), _NO_MARGINS], _IMAGE, {}),
    Op.RESIZE_BILINEAR: ([_IMAGE, _integers(8, 8)], (1, 8, 8, 4), {}),
    Op.RESIZE_NEAREST_NEIGHBOR: ([_IMAGE, _integers(8, 8)], (1, 8, 8, 4), {}),
    **{op: ([_IMAGE, _integers(1)], (1, 4, 4), {}) for op in (Op.ARG_MAX, Op.ARG_MIN)},
    Op.EMBEDDING_LOOKUP: ([(3,), (4, 4)], (3, 4), {}),
    Op.GATHER: ([_IMAGE, (3,)], (1, 3, 4, 4), {"axis": 1, "batch_dims": 0}),
    Op.GATHER_ND: ([(4, 4), (3, 2)], (3,), {}),
    Op.ONE_HOT: ([(4,), _integers(3), (1,), (1,)], (4, 3), {"axis": -1}),
    Op.TOPK_V2: ([_IMAGE, _integers(2)], (1, 4, 4, 2), {}),
    Op.RFFT2D: ([(4, 8), _integers(4, 8)], (4, 5), {}),
    Op.CONV_3D_TRANSPOSE: (
        [_integers(1, 4, 4, 4, 2), (2, 2, 2, 2, 4), (1, 4, 4, 4, 4), (2,)],
        (1, 4, 4, 4, 2),
        {**_WINDOW, "stride_d": 1},
    ),
    Op.RNN: ([(2, 4), (3, 4), (3, 3), (3,), _State((2, 3))], (2, 3), {}),
    Op.UNIDIRECTIONAL_SEQUENCE_RNN: ([(2, 5, 4), (3, 4), (3, 3), (3,), _State((2, 3))], (2, 5, 3), {}),
    Op.SVDF: ([(2, 4), (6, 4), (6, 7), (3,), _State((2, 42))], (2, 3), {"rank": 2}),
    Op.LSTM: ([(2, 4), *_CELL], (2, 3), {}),
    Op.UNIDIRECTIONAL_SEQUENCE_LSTM: ([(2, 5, 4), *_CELL], (2, 5, 3), {}),
    Op.LEAKY_RELU: ([_IMAGE], _IMAGE, {"alpha": 0.5}),
    **{op: ([_IMAGE, (4,)], _IMAGE, {}) for op in (*_BINARY, *_COMPARISONS, *_OF_BOOLS, *_OF_INTEGERS)},
    **{op: ([_IMAGE, _IMAGE, _IMAGE], _IMAGE, {}) for op in (Op.SELECT, Op.SELECT_V2)},
    **{op: ([_IMAGE, _integers(1, 2)], (1, 4), {"keep_dims": False}) for op in _REDUCTIONS},
}
"""Operator → its operands (the shape of a float one, or the integers that it must be given), the shape of its
output, and its options. Every other operator that has a kernel takes one image."""

_COMPUTED: dict[Kind, int] = {
    Op.CONV_2D: 0,
    Op.CONV_3D: 0,
    Op.DEPTHWISE_CONV_2D: 0,
    Op.CONV_3D_TRANSPOSE: 2,
    Op.FULLY_CONNECTED: 0,
    Op.PADV2: 0,
    Op.TRANSPOSE_CONV: 2,
    **dict.fromkeys((Op.LSTM, Op.RNN, Op.SVDF), 0),
    **dict.fromkeys((Op.UNIDIRECTIONAL_SEQUENCE_LSTM, Op.UNIDIRECTIONAL_SEQUENCE_RNN), 0),
    Custom.CONVOLUTION_2D_TRANSPOSE_BIAS: 0,
}
"""Operators all of whose other operands must be constants → the place of the computed one."""

_FLOATS, _BOOLS, _INTEGERS = ((kind,) for kind in (TensorType.FLOAT32, TensorType.BOOL, TensorType.INT32))
_INDEXED = (Op.EMBEDDING_LOOKUP, Op.ONE_HOT)
_TYPED: dict[Kind, tuple[tuple[TensorType, ...], TensorType]] = {
    **dict.fromkeys(_COMPARISONS, (_FLOATS, TensorType.BOOL)),
    **dict.fromkeys((*_OF_BOOLS, *_OF_FLAGS, Op.LOGICAL_NOT), (_BOOLS, TensorType.BOOL)),
    **dict.fromkeys(_OF_INTEGERS, (_INTEGERS, TensorType.INT32)),
    **dict.fromkeys((Op.REAL, Op.IMAG, Op.COMPLEX_ABS), ((TensorType.COMPLEX64,), TensorType.FLOAT32)),
    Op.RFFT2D: (_FLOATS, TensorType.COMPLEX64),
    **dict.fromkeys((Op.ARG_MAX, Op.ARG_MIN), (_FLOATS, TensorType.INT32)),
    **dict.fromkeys(_INDEXED, (_INTEGERS + _FLOATS, TensorType.FLOAT32)),
    **dict.fromkeys((Op.GATHER, Op.GATHER_ND), (_FLOATS + _INTEGERS, TensorType.FLOAT32)),
    **dict.fromkeys((Op.SELECT, Op.SELECT_V2), (_BOOLS + _FLOATS, TensorType.FLOAT32)),
}
"""Operator → a type of each operand, the last for all further ones, and of its output; else float32."""

_INDICES = (TensorType.INT32, TensorType.INT64)
_COMPARED = (TensorType.FLOAT32, TensorType.FLOAT16, TensorType.INT32, TensorType.BOOL)
_SEVERAL: dict[tuple[Kind, int], tuple[TensorType, ...]] = {
    **{(op, 0): (*_COMPARED, TensorType.INT8, TensorType.UINT8) for op in (Op.ARG_MAX, Op.ARG_MIN)},
    (Op.BITCAST, 0): (TensorType.FLOAT32, TensorType.FLOAT16, TensorType.INT32),
    (Op.CAST, 0): (
        *_COMPARED,
        TensorType.INT64,
        TensorType.UINT8,
        TensorType.INT8,
        TensorType.INT16,
    ),
    **{(op, 1): _INDICES for op in (Op.GATHER, Op.GATHER_ND)},
    (Op.ONE_HOT, 0): _INDICES,
}
"""Operator and place of a constant whose type no other operand has to share → its types."""


def _types(op: Kind, place: int) -> tuple[TensorType, TensorType]:
    """Return the type of the operand at a place, and that of the output."""
    operands, output = _TYPED.get(op, (_FLOATS, TensorType.FLOAT32))
    return operands[min(place, len(operands) - 1)], output


def _read(op: Kind, place: int) -> tuple[TensorType, ...]:
    """Return the types that a constant may have at the place."""
    if isinstance(_form(op)[0][place], np.ndarray):
        return TensorType.INT32, TensorType.INT64
    if (op, place) in _SEVERAL:
        return _SEVERAL[op, place]
    kind, _ = _types(op, place)
    return (kind, TensorType.FLOAT16) if kind is TensorType.FLOAT32 else (kind,)


def _form(op: Kind) -> tuple[list[_Operand], tuple[int, ...], dict[str, Any]]:
    return _FORMS.get(op, ([_IMAGE], _IMAGE, {}))


def _facts(op: Kind, place: int, kind: TensorType) -> tuple[GraphValues, Operator]:
    """Build the operator with a constant of type `kind` at `place`; its other operands are as they should
    be.
    """
    operands, shape, options = _form(op)
    build, inputs = Builder(), []
    for i, operand in enumerate(operands):
        if i == place:
            values = operand if isinstance(operand, np.ndarray) else np.ones(operand)
            dtype = dtype_of(kind)
            stored = values.astype(object if dtype is None else dtype)
            if stored.dtype == object:
                stored = np.frompyfunc(lambda _: b"x", 1, 1)(values)
            inputs.append(build.constant(stored, type=kind))
        elif isinstance(operand, np.ndarray):
            inputs.append(build.constant(operand))
        elif isinstance(operand, _State):
            inputs.append(build.tensor(np.float32, operand.shape, is_variable=True))
        elif operand is None:
            inputs.append(-1)
        elif i != _COMPUTED.get(op, i):
            inputs.append(build.constant(np.ones(operand, dtype_of(_types(op, i)[0]))))
        else:
            inputs.append(build.input(dtype_of(_types(op, i)[0]), operand))
    output = build.tensor(dtype_of(_types(op, 0)[1]), shape)
    if isinstance(op, Custom):
        window = struct.pack("<6i", 1, 1, 1, 1, 1, 0)
        version = CUSTOM_SPECS[op.value].max_version
        build.operator(Op.CUSTOM, inputs, [output], None, version, op.value, window)
    else:
        build.operator(op, inputs, [output], options)
    (subgraph,) = build.model([output]).subgraphs
    tensors = {t.index: t for t in subgraph.tensors}
    constants = {i: constant_array(t) for i, t in tensors.items() if t.data is not None}
    known = {i: array for i, array in constants.items() if array is not None}
    values = GraphValues(subgraph, {}, shapes={i: t.shape for i, t in tensors.items()}, constants=known)
    return values, subgraph.operators[0]


@pytest.mark.parametrize("op", sorted(families(), key=lambda o: o.name), ids=lambda o: o.name)
def test_a_constant_of_a_type_that_no_kernel_reads_is_refused(op):
    operands = enumerate(_form(op)[0])
    places = [place for place, one in operands if not (one is None or isinstance(one, _State))]
    for place, kind in product(places, TensorType):
        values, operator = _facts(op, place, kind)
        found, told = refusal(values.facts(), operator), (place, kind.name)
        if kind not in _read(op, place):
            assert found is not None, told
            assert kind.name.lower() in found.reason, (*told, found.reason)
        elif op is not Op.CONCATENATION:
            assert found is None, (*told, found)


def test_levels_cannot_enter_the_graph_as_numbers():
    """A value that `refusal` should have kept out is an error, not another number."""
    values, operator = _facts(Op.CONV_2D, 1, TensorType.FLOAT32)
    facts = values.facts()
    partition = make_partition(None, facts, (operator,))
    levels = {operator.inputs[1]: np.ones((2, 3, 3, 4), np.uint8)}
    with pytest.raises(ValueError, match="uint8"):
        build_graph(replace(partition, constants={**partition.constants, **levels}))
