"""RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN: activation(W x + R h + b)."""

from dataclasses import dataclass

import numpy as np

from runtime.ops.recurrent.gates import activate, products, sequence_products, state, weights
from runtime.ops.recurrent.steps import both_ways, one_way_shape, over_time, time_first, two_way_shapes
from runtime.ops.support import Array, Kernel, Op, OpContext, TensorType, operator
from runtime.ops.support.blocks import in_turn
from runtime.ops.support.shapes import require_rank

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
        # For its check of type and shape alone: `sequence_products` reads the bias by its index.
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
        # The recurrent product reads the state, and lies in memory of
        # its own by the time the sum overwrites it.
        np.add(self._given[t], self._recur(), out=self._state)
        self._activate(self._state, self._state)
        np.copyto(y, self._state)


@operator(
    Op.RNN,
    max_version=3,
    infer=lambda op: one_way_shape(op, 2, _units(op, _Slots())),
    types=_TYPES,
    note=_NOTE,
    stateful=True,
)
def rnn(op: OpContext) -> Kernel:
    """RNN: one step for a batch; the state stays for the next run."""
    # A single step is a sequence with a time axis of length 1.
    return over_time(_Cell(op, _Slots(), op.read(0)[None]), op.write()[None])


@operator(
    Op.UNIDIRECTIONAL_SEQUENCE_RNN,
    max_version=3,
    infer=lambda op: one_way_shape(op, 3, _units(op, _Slots())),
    types=_TYPES,
    note=_NOTE,
    stateful=True,
)
def sequence_rnn(op: OpContext) -> Kernel:
    """UNIDIRECTIONAL_SEQUENCE_RNN: a step for every time; the state stays for the next run."""
    return over_time(_Cell(op, _Slots(), time_first(op, op.read(0))), time_first(op, op.write()))


@operator(
    Op.BIDIRECTIONAL_SEQUENCE_RNN,
    max_version=3,
    infer=lambda op: two_way_shapes(op, _units(op, _FORWARD), _units(op, _BACKWARD)),
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
    is_hybrid, time_major = op.input(_FORWARD.weights).type is not TensorType.FLOAT32, op.option("time_major")
    once = both_ways(
        op,
        lambda x, aux: _Cell(op, _FORWARD, x, aux),
        lambda x, aux: _Cell(op, _BACKWARD, x, aux),
        _units(op, _FORWARD),
        _AUXILIARY_INPUT,
        _FORWARD.auxiliary,
        alone=time_major,
    )
    return in_turn(*[once] * (require_rank(op, 0, 3)[0] if is_hybrid and time_major else 1))
