"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from runtime.model.schema import BuiltinOperator, LSTMKernelType, TensorType
from runtime.ops.recurrent.basic_lstm import basic_lstm, basic_lstm_shape
from runtime.ops.recurrent.float_lstm import FloatLstm, LstmSlots, lstm_sizes, present
from runtime.ops.recurrent.integer_lstm import IntegerLstm
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator

_FORWARD = LstmSlots(state=35, cell=36, norms=(48, 49, 50, 51), auxiliary=(40, 41, 42, 43))
_BACKWARD = LstmSlots(
    inputs=(18, 19, 20, 21),
    recurrent=(22, 23, 24, 25),
    peepholes=(26, 27, 28),
    biases=(29, 30, 31, 32),
    projection=(33, 34),
    state=37,
    cell=38,
    norms=(48, 49, 50, 51),
    auxiliary=(44, 45, 46, 47),
)
_AUXILIARY_INPUT = 39
_TYPES = (TensorType.FLOAT32,)
_NOTE = "weights float32, or int8 and uint8: hybrid"
_WITH_INTEGERS = (TensorType.FLOAT32, TensorType.INT8)
_INTEGER_NOTE = f"{_NOTE}; int8 with an int16 cell"


def _sequence(op: OpContext, i: int = 0) -> Shape:
    shape = op.input(i).shape
    if len(shape) != 3:
        raise op.error(f"input {i} has shape {list(shape)}, rank 3 is needed")
    return shape


def _time_first(op: OpContext, array: Array) -> Array:
    return array if op.option("time_major") else array.swapaxes(0, 1)


def run_steps(
    sources: list[tuple[Array, Array]], y: Array, step: Callable[[Array], None], *, backwards: bool = False
) -> Kernel:
    """A kernel over time: (sequence [time, batch, n], the step's bound input) pairs, y [time, batch, m]."""
    held = np.empty(y.shape[1:], y.dtype)
    order = range(len(y) - 1, -1, -1) if backwards else range(len(y))

    def run() -> None:
        for t in order:
            for sequence, bound in sources:
                np.copyto(bound, sequence[t])
            step(held)
            np.copyto(y[t], held)

    return run


def _step(op: OpContext, bound: Array) -> Callable[[Array], None]:
    """The cell's step, of floats or integers as the input is."""
    kind = IntegerLstm if op.input().type is TensorType.INT8 else FloatLstm
    return kind(op, LstmSlots(), bound).step


def lstm_shape(op: OpContext) -> tuple[Shape, ...]:
    """[batch, outputs] of one step; the basic kernel has three outputs more."""
    if op.option("kernel_type") is LSTMKernelType.BASIC:
        return basic_lstm_shape(op)
    shape, sizes = op.input().shape, lstm_sizes(op, LstmSlots())
    if len(shape) != 2:
        raise op.error(f"an input of shape {list(shape)}, rank 2 is needed")
    return ((shape[0], sizes.outputs),)


@operator(
    BuiltinOperator.LSTM,
    max_version=4,
    infer=lstm_shape,
    types=(*_WITH_INTEGERS, TensorType.UINT8),
    note=f"{_INTEGER_NOTE}; uint8 in the basic kernel",
    stateful=True,
)
def lstm(op: OpContext) -> Kernel:
    """One step for a batch."""
    if op.option("kernel_type") is LSTMKernelType.BASIC:
        return basic_lstm(op)
    x = op.read(0)
    bound = np.empty(x.shape, x.dtype)
    return run_steps([(x[None], bound)], op.write()[None], _step(op, bound))


def sequence_lstm_shape(op: OpContext) -> tuple[Shape, ...]:
    """The input's time and batch, the cell's outputs."""
    return ((*_sequence(op)[:2], lstm_sizes(op, LstmSlots()).outputs),)


@operator(
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM,
    max_version=4,
    infer=sequence_lstm_shape,
    types=_WITH_INTEGERS,
    note=_INTEGER_NOTE,
    stateful=True,
)
def sequence_lstm(op: OpContext) -> Kernel:
    """A step for every time, [time, batch, n] or [batch, time, n]; states stay for the next run."""
    x, y = _time_first(op, op.read(0)), _time_first(op, op.write())
    bound = np.empty(x.shape[1:], x.dtype)
    return run_steps([(x, bound)], y, _step(op, bound))


def bidirectional_lstm_shape(op: OpContext) -> tuple[Shape, ...]:
    """The outputs of both directions, side by side where the option merges them."""
    steps = _sequence(op)[:2]
    forward, backward = (lstm_sizes(op, s).outputs for s in (_FORWARD, _BACKWARD))
    if op.option("merge_outputs"):
        return ((*steps, forward + backward),)
    return ((*steps, forward), (*steps, backward))


@operator(
    BuiltinOperator.BIDIRECTIONAL_SEQUENCE_LSTM,
    max_version=3,
    infer=bidirectional_lstm_shape,
    types=_TYPES,
    note=_NOTE,
    stateful=True,
)
def bidirectional_lstm(op: OpContext) -> Kernel:
    """Two cells, one backwards in time. An auxiliary input joins both, or feeds the second alone."""
    x = _time_first(op, op.read(0))
    aux = _time_first(op, op.read(_AUXILIARY_INPUT)) if present(op, _AUXILIARY_INPUT) else None
    joins = aux is not None and present(op, _FORWARD.auxiliary[1] if _FORWARD.auxiliary else -1)
    second = aux if aux is not None and not joins else x
    runs = [
        _direction(op, _FORWARD, x, aux if joins else None, _part(op, 0), backwards=False),
        _direction(op, _BACKWARD, second, aux if joins else None, _part(op, 1), backwards=True),
    ]

    def run() -> None:
        for direction in runs:
            direction()

    return run


def _part(op: OpContext, direction: int) -> Array:
    if not op.option("merge_outputs"):
        return _time_first(op, op.write(direction))
    split = lstm_sizes(op, _FORWARD).outputs
    y = _time_first(op, op.write())
    return y[..., split:] if direction else y[..., :split]


def _direction(
    op: OpContext, slots: LstmSlots, x: Array, aux: Array | None, y: Array, *, backwards: bool
) -> Kernel:
    bound = np.empty(x.shape[1:], np.float32)
    joined = None if aux is None else np.empty(aux.shape[1:], np.float32)
    sources = [(x, bound)]
    if aux is not None and joined is not None:
        sources.append((aux, joined))
    return run_steps(sources, y, FloatLstm(op, slots, bound, joined).step, backwards=backwards)
