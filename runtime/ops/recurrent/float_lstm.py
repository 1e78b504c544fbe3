"""One step of an LSTM on floats, with float or hybrid weights (`lstm_eval.cc`).

CIFG is without an input gate, which is then 1 - forget; peepholes let the cell into the gates; a projection
shrinks the output; layer normalisation takes the gates' sums before their biases.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.ops.recurrent.gates import (
    activate,
    joined,
    present,
    products,
    real_vector,
    sequence_products,
    sigmoid,
    state,
    weights,
)
from runtime.ops.support import Array, OpContext

_VARIANCE_FLOOR = np.float32(1e-8)
"""What is added to a variance before its root (`kNormalizationConstant` of `portable_tensor_utils.cc`), so
that a row of equal values does not divide by zero."""

_INPUT, _FORGET, _CANDIDATE, _OUTPUT = range(4)


@dataclass(frozen=True, slots=True)
class LstmSlots:
    """The operator inputs of one cell, by index; gates in the order input, forget, cell, output."""

    inputs: tuple[int, int, int, int] = (1, 2, 3, 4)
    recurrent: tuple[int, int, int, int] = (5, 6, 7, 8)
    peepholes: tuple[int, int, int] = (9, 10, 11)
    biases: tuple[int, int, int, int] = (12, 13, 14, 15)
    projection: tuple[int, int] = (16, 17)
    state: int = 18
    cell: int = 19
    norms: tuple[int, int, int, int] = (20, 21, 22, 23)
    auxiliary: tuple[int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class LstmSizes:
    """The sizes of a cell: memory cells, and outputs, of which a projection may leave fewer."""

    cells: int
    outputs: int


def lstm_sizes(op: OpContext, slots: LstmSlots) -> LstmSizes:
    """Return the sizes that the output gate's weights state, as LiteRT reads them. Raises `ShapeError`."""
    given, recurrent = op.input(slots.inputs[3]).shape, op.input(slots.recurrent[3]).shape
    if len(given) != 2 or len(recurrent) not in (1, 2):
        raise op.error(f"weights of {list(given)} and {list(recurrent)} for the output gate")
    return LstmSizes(given[0], recurrent[-1])


def gate_order(op: OpContext, slots: LstmSlots) -> list[int]:
    """Return the cell's gates as they lie side by side: the candidate, then those that end in a sigmoid.

    One sigmoid then covers neighbouring memory, and one matrix product gives the sums of all gates.
    """
    first = [_INPUT] if present(op, slots.inputs[_INPUT]) else []
    return [_CANDIDATE, *first, _FORGET, _OUTPUT]


@dataclass(frozen=True, slots=True)
class _Norm:
    """Layer normalisation of gates [batch, gates, cells]: their weights and biases, side by side."""

    weights: Callable[[], Array]
    biases: Callable[[], Array]

    def __call__(self, sums: Array) -> None:
        shape = sums.shape[1:]
        centred = sums - sums.mean(axis=2, keepdims=True, dtype=np.float32)
        variance = np.square(centred).mean(axis=2, keepdims=True, dtype=np.float32)
        np.divide(centred, np.sqrt(variance + _VARIANCE_FLOOR), out=centred)
        np.multiply(centred, self.weights().reshape(shape), out=centred)
        np.add(centred, self.biases().reshape(shape), out=sums)


@dataclass(frozen=True, slots=True)
class _Stage:
    """Gates whose sums [batch, gates, cells] are complete at the same time; the last of them are sigmoids.

    `peepholes`: gates [batch, cells], each with the weights that let the cell in.
    """

    sums: Array
    sigmoids: Array
    peepholes: Sequence[tuple[Array, Array]]
    norm: _Norm | None

    def __call__(self, cell: Array) -> None:
        # Ahead of the norm, which is over the complete sum (`CalculateLstmGateFloat` of `lstm_eval.cc`).
        for gate, vector in self.peepholes:
            np.add(gate, cell * vector, out=gate)
        if self.norm is not None:
            self.norm(self.sums)
        sigmoid(self.sigmoids)


class FloatLstm:
    """The cell bound to its weights, states and sequences [time, batch, n]: the input's, an auxiliary one.

    An output gate with a peephole reads the new cell, so that it is a stage of its own after the others.
    """

    def __init__(self, op: OpContext, slots: LstmSlots, x: Array, aux: Array | None = None) -> None:
        sizes, batch = lstm_sizes(op, slots), x.shape[1]
        order = gate_order(op, slots)
        self._state = state(op, slots.state, (batch, sizes.outputs))
        self._cell = state(op, slots.cell, (batch, sizes.cells))
        asymmetric = bool(op.option("asymmetric_quantize_inputs"))
        has_norm = _given_together(op, [slots.norms[g] for g in order])
        biases = [slots.biases[g] for g in order]
        for i in biases:
            weights(op, i, (sizes.cells,))
        sources = [(x, [slots.inputs[g] for g in order])]
        if aux is not None and slots.auxiliary is not None:
            sources.append((aux, [slots.auxiliary[g] for g in order]))
        # With norms the biases come behind the normalisation, which `_Norm` does.
        self.begin, self._given = sequence_products(
            op, sources, sizes.cells, () if has_norm else biases, asymmetric=asymmetric
        )
        self._recur = products(
            op, self._state, [slots.recurrent[g] for g in order], sizes.cells, asymmetric=asymmetric
        )
        self._sums = op.temporary((batch, len(order) * sizes.cells))
        gates = self._sums.reshape(batch, len(order), sizes.cells)
        # From the end, as CIFG has no input gate between the candidate and these.
        self._candidate, self._forget, self._output = gates[:, 0], gates[:, -2], gates[:, -1]
        self._input = gates[:, 1] if _INPUT in order else op.temporary(self._cell.shape)
        self._has_input = _INPUT in order
        self._stages = _stages(op, slots, order, gates, has_norm=has_norm)
        self._activate = activate(op)
        self._clip = float(op.option("cell_clip"))
        self._hidden = op.temporary((batch, sizes.cells))
        self._project = self._projection(op, slots, sizes, asymmetric=asymmetric)

    def _projection(
        self, op: OpContext, slots: LstmSlots, sizes: LstmSizes, *, asymmetric: bool
    ) -> Callable[[], None]:
        """Return what writes the output state from the hidden one. Raises `ShapeError`."""
        matrix, bias = slots.projection
        if not present(op, matrix):
            if sizes.outputs != sizes.cells:
                raise op.error(f"{sizes.cells} cells become {sizes.outputs} outputs without a projection")
            return lambda: np.copyto(self._state, self._hidden)
        product = products(op, self._hidden, [matrix], sizes.outputs, asymmetric=asymmetric)
        start = weights(op, bias, (sizes.outputs,)) if present(op, bias) else np.float32(0)
        clip = float(op.option("proj_clip"))

        def run() -> None:
            np.add(start, product(), out=self._state)
            if clip > 0:
                np.clip(self._state, -clip, clip, out=self._state)

        return run

    def step(self, t: int, y: Array) -> None:
        """See `Cell.step`. The input's products were computed for all steps at once; the state's are here."""
        cell, hidden = self._cell, self._hidden
        np.add(self._given[t], self._recur(), out=self._sums)
        self._stages[0](cell)
        self._activate(self._candidate, self._candidate)
        if not self._has_input:
            np.subtract(1, self._forget, out=self._input)
        np.multiply(cell, self._forget, out=cell)
        np.multiply(self._input, self._candidate, out=self._candidate)
        np.add(cell, self._candidate, out=cell)
        # Clipped before the output gate's peephole and the activation read it, as in `lstm_eval.cc`.
        if self._clip > 0:
            np.clip(cell, -self._clip, self._clip, out=cell)
        for late in self._stages[1:]:
            late(cell)
        self._activate(cell, hidden)
        np.multiply(hidden, self._output, out=hidden)
        self._project()
        np.copyto(y, self._state)


def _stages(
    op: OpContext, slots: LstmSlots, order: Sequence[int], gates: Array, *, has_norm: bool
) -> list[_Stage]:
    """Return the stages that complete the gates' sums: all together, or the output gate after the others."""
    size = gates.shape[2]

    def norm(some: Sequence[int]) -> _Norm | None:
        return _norm(op, slots, some, size) if has_norm else None

    # The candidate has no peephole.
    where = dict(zip((_INPUT, _FORGET, _OUTPUT), slots.peepholes, strict=True))
    if not _given_together(op, [where[g] for g in order if g in where]):
        return [_Stage(gates, gates[:, 1:], (), norm(order))]
    pairs = [(gates[:, i], real_vector(op, where[g], size)) for i, g in enumerate(order) if g in where]
    return [
        _Stage(gates[:, :-1], gates[:, 1:-1], pairs[:-1], norm(order[:-1])),
        _Stage(gates[:, -1:], gates[:, -1:], pairs[-1:], norm(order[-1:])),
    ]


def _norm(op: OpContext, slots: LstmSlots, order: Sequence[int], size: int) -> _Norm:
    inputs = [slots.norms[g] for g in order]
    for i in inputs:
        weights(op, i, (size,))
    return _Norm(joined(op, inputs), joined(op, [slots.biases[g] for g in order]))


def _given_together(op: OpContext, inputs: Sequence[int]) -> bool:
    """Return whether the operator has these optional inputs. Raises `ShapeError` for some of them alone."""
    found = [present(op, i) for i in inputs]
    if any(found) and not all(found):
        raise op.error(f"inputs {sorted(inputs)} must be given together")
    return all(found)
