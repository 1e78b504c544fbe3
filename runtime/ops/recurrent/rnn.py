"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN: activation(W x + R h + b)."""

from dataclasses import dataclass

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.recurrent.gates import activate, present, products, sequence_products, state, weights
from runtime.ops.recurrent.steps import (
    over_time,
    sequence_shape,
    step_shape,
    time_first,
    two_way_outputs,
    two_way_shapes,
)
from runtime.ops.support import Array, Kernel, OpContext, Shape, operator

_TYPES = (TensorType.FLOAT32,)
_NOTE = "weights float32, or int8 and uint8: hybrid"
_AUXILIARY_INPUT = 9
"""Index of the auxiliary input (`kAuxInputTensor` of `bidirectional_sequence_rnn.cc`)."""


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
    """The cell bound to its weights, its state and sequences [time, batch, n]: the input's, an auxiliary."""

    def __init__(self, op: OpContext, slots: _Slots, x: Array, aux: Array | None = None) -> None:
        units = _units(op, slots)
        self._state = state(op, slots.state, (x.shape[1], units))
        weights(op, slots.bias, (units,))
        asymmetric = bool(op.option("asymmetric_quantize_inputs"))
        sources = [(x, [slots.weights])]
        if aux is not None:
            sources.append((aux, [slots.auxiliary]))
        self.begin, self._given = sequence_products(op, sources, units, [slots.bias], asymmetric=asymmetric)
        self._recur = products(op, self._state, [slots.recurrent], units, asymmetric=asymmetric)
        self._activate = activate(op)

    def step(self, t: int, y: Array) -> None:
        """See `Cell.step`."""
        np.add(self._given[t], self._recur(), out=self._state)
        self._activate(self._state, self._state)
        np.copyto(y, self._state)


def rnn_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [batch, units] of one step."""
    return ((step_shape(op)[0], _units(op, _Slots())),)


@operator(BuiltinOperator.RNN, max_version=3, infer=rnn_shape, types=_TYPES, note=_NOTE, stateful=True)
def rnn(op: OpContext) -> Kernel:
    """RNN: one step for a batch; the state stays for the next run."""
    return over_time(_Cell(op, _Slots(), op.read(0)[None]), op.write()[None])


def sequence_rnn_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the input's time and batch, and the units."""
    return ((*sequence_shape(op)[:2], _units(op, _Slots())),)


@operator(
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN,
    max_version=3,
    infer=sequence_rnn_shape,
    types=_TYPES,
    note=_NOTE,
    stateful=True,
)
def sequence_rnn(op: OpContext) -> Kernel:
    """UNIDIRECTIONAL_SEQUENCE_RNN: a step for every time; the state stays for the next run."""
    return over_time(_Cell(op, _Slots(), time_first(op, op.read(0))), time_first(op, op.write()))


def bidirectional_rnn_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the outputs of both directions, side by side where the option merges them."""
    return two_way_shapes(op, _units(op, _FORWARD), _units(op, _BACKWARD))


@operator(
    BuiltinOperator.BIDIRECTIONAL_SEQUENCE_RNN,
    max_version=3,
    infer=bidirectional_rnn_shape,
    types=_TYPES,
    note=_NOTE,
    stateful=True,
)
def bidirectional_rnn(op: OpContext) -> Kernel:
    """BIDIRECTIONAL_SEQUENCE_RNN: two cells, one backwards in time.

    An auxiliary input joins both cells' input where it has weights; else it is the input of the second alone,
    which `bidirectional_sequence_rnn.cc` does only where time comes first. In that layout its hybrid cells
    pass over the whole sequence once for every step, and keep their states in between.
    """
    x = time_first(op, op.read(0))
    aux = time_first(op, op.read(_AUXILIARY_INPUT)) if present(op, _AUXILIARY_INPUT) else None
    joins = present(op, _FORWARD.auxiliary)
    second = aux if aux is not None and not joins and op.option("time_major") else x
    joined = aux if joins else None
    is_hybrid = op.input(_FORWARD.weights).type is not TensorType.FLOAT32
    passes = len(x) if is_hybrid and op.option("time_major") else 1
    y, z = two_way_outputs(op, _units(op, _FORWARD))
    first = over_time(_Cell(op, _FORWARD, x, joined), y)
    last = over_time(_Cell(op, _BACKWARD, second, joined), z, backwards=True)

    def run() -> None:
        for _ in range(passes):
            first()
            last()

    return run
