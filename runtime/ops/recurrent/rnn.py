"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN: activation(W x + R h + b)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.recurrent.float_lstm import present
from runtime.ops.recurrent.gates import activate, products, weights
from runtime.ops.recurrent.lstm import run_steps
from runtime.ops.spec import Array, Kernel, OpContext, Shape, operator

_TYPES = (TensorType.FLOAT32,)
_NOTE = "weights float32, or int8 and uint8: hybrid"
_AUXILIARY_INPUT = 9


@dataclass(frozen=True, slots=True)
class _Slots:
    weights: int = 1
    recurrent: int = 2
    bias: int = 3
    state: int = 4
    auxiliary: int = -1


_FORWARD = _Slots(auxiliary=10)
_BACKWARD = _Slots(weights=5, recurrent=6, bias=7, state=8, auxiliary=11)


def _units(op: OpContext, slots: _Slots) -> int:
    shape = op.input(slots.weights).shape
    if len(shape) != 2:
        raise op.error(f"weights of shape {list(shape)}, rank 2 is needed")
    return shape[0]


class _Cell:
    """The cell bound to its weights and state; `x` and `aux` hold a step's inputs."""

    def __init__(self, op: OpContext, slots: _Slots, x: Array, aux: Array | None = None) -> None:
        units, batch = _units(op, slots), x.shape[0]
        if op.input(slots.state).shape != (batch, units):
            raise op.error(f"a state of {list(op.input(slots.state).shape)} for {[batch, units]}")
        self._state = op.read(slots.state)
        self._bias = weights(op, slots.bias, (units,))
        self._activate = activate(op)
        asymmetric = bool(op.option("asymmetric_quantize_inputs"))
        sources = [(x, slots.weights), (self._state, slots.recurrent)]
        if aux is not None:
            sources.append((aux, slots.auxiliary))
        self._products = [products(op, s, [i], units, asymmetric=asymmetric) for s, i in sources]

    def step(self, y: Array) -> None:
        """Read the bound inputs and the state, write `y` [batch, units] and the state."""
        np.copyto(y, self._bias)
        for product in self._products:
            product(y)
        self._activate(y, y)
        np.copyto(self._state, y)


def rnn_shape(op: OpContext) -> tuple[Shape, ...]:
    """[batch, units] of one step."""
    shape = op.input().shape
    if len(shape) != 2:
        raise op.error(f"an input of shape {list(shape)}, rank 2 is needed")
    return ((shape[0], _units(op, _Slots())),)


@operator(BuiltinOperator.RNN, max_version=3, infer=rnn_shape, types=_TYPES, note=_NOTE, stateful=True)
def rnn(op: OpContext) -> Kernel:
    """One step for a batch."""
    x = op.read(0)
    bound = np.empty(x.shape, np.float32)
    return run_steps([(x[None], bound)], op.write()[None], _Cell(op, _Slots(), bound).step)


def _steps(op: OpContext) -> Shape:
    shape = op.input().shape
    if len(shape) != 3:
        raise op.error(f"an input of shape {list(shape)}, rank 3 is needed")
    return shape[:2]


def _time_first(op: OpContext, array: Array) -> Array:
    return array if op.option("time_major") else array.swapaxes(0, 1)


def sequence_rnn_shape(op: OpContext) -> tuple[Shape, ...]:
    """The input's time and batch, and the units."""
    return ((*_steps(op), _units(op, _Slots())),)


@operator(
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN,
    max_version=3,
    infer=sequence_rnn_shape,
    types=_TYPES,
    note=_NOTE,
    stateful=True,
)
def sequence_rnn(op: OpContext) -> Kernel:
    """A step for every time; the state stays for the next run."""
    x, y = _time_first(op, op.read(0)), _time_first(op, op.write())
    bound = np.empty(x.shape[1:], np.float32)
    return run_steps([(x, bound)], y, _Cell(op, _Slots(), bound).step)


def bidirectional_rnn_shape(op: OpContext) -> tuple[Shape, ...]:
    """The outputs of both directions, side by side where the option merges them."""
    steps, forward, backward = _steps(op), _units(op, _FORWARD), _units(op, _BACKWARD)
    if op.option("merge_outputs"):
        return ((*steps, forward + backward),)
    return ((*steps, forward), (*steps, backward))


@operator(
    BuiltinOperator.BIDIRECTIONAL_SEQUENCE_RNN,
    max_version=3,
    infer=bidirectional_rnn_shape,
    types=_TYPES,
    note=_NOTE,
    stateful=True,
)
def bidirectional_rnn(op: OpContext) -> Kernel:
    """Two cells, one backwards in time. An auxiliary input joins both, or feeds the second alone.

    As in `bidirectional_sequence_rnn.cc` it does the latter only where time comes first, and there hybrid
    cells go through the sequence as often as it has steps, their states going on.
    """
    x = _time_first(op, op.read(0))
    aux = _time_first(op, op.read(_AUXILIARY_INPUT)) if present(op, _AUXILIARY_INPUT) else None
    joins = aux is not None and present(op, _FORWARD.auxiliary)
    second = aux if aux is not None and not joins and op.option("time_major") else x
    is_hybrid = op.input(_FORWARD.weights).type is not TensorType.FLOAT32
    passes = len(x) if is_hybrid and op.option("time_major") else 1
    split = _units(op, _FORWARD)
    if op.option("merge_outputs"):
        y = _time_first(op, op.write())
        parts = [y[..., :split], y[..., split:]]
    else:
        parts = [_time_first(op, op.write(i)) for i in (0, 1)]
    joined = aux if joins else None
    first = _direction(op, _FORWARD, x, joined, parts[0], backwards=False)
    last = _direction(op, _BACKWARD, second, joined, parts[1], backwards=True)

    def run() -> None:
        for _ in range(passes):
            first()
            last()

    return run


def _direction(
    op: OpContext, slots: _Slots, x: Array, aux: Array | None, y: Array, *, backwards: bool
) -> Kernel:
    bound = np.empty(x.shape[1:], np.float32)
    joined = None if aux is None else np.empty(aux.shape[1:], np.float32)
    sources = [(x, bound)]
    if aux is not None and joined is not None:
        sources.append((aux, joined))
    return run_steps(sources, y, _Cell(op, slots, bound, joined).step, backwards=backwards)
