"""One step of an LSTM on integers: int8 in, out and weights, int16 cell (`lstm_eval.cc`, 8x8_16).

Gates are sums of 12 fractional bits, or on the scale that layer normalisation asks for, then sigmoid or tanh
with 15; the cell's scale is a power of two.
"""

import numpy as np

from runtime.ops.recurrent import fixed_point
from runtime.ops.recurrent.float_lstm import LstmSlots, lstm_sizes
from runtime.ops.recurrent.gates import state
from runtime.ops.recurrent.integer_cell import Scaling, gate_matrices, integer_cell
from runtime.ops.support import Array, OpContext
from runtime.ops.support.quantization import (
    EXACT_FLOAT32_TERMS,
    QuantizedMultiplier,
    multiply_by_quantized_multiplier,
    rounding_shift_right,
)


class _Product:
    """The product of int8 rows [rows, n] with weights [m, n], on the results' scales; int64.

    Products of bytes are summed in floats, exactly: in float32 where there are few enough, else in float64.
    """

    def __init__(self, weights: Array, scaling: Scaling) -> None:
        few = weights.shape[1] <= EXACT_FLOAT32_TERMS
        self._matrix = np.ascontiguousarray(weights.T, np.float32 if few else np.float64)
        self._bias = scaling.bias
        self._scaled = QuantizedMultiplier(scaling.multipliers, scaling.shifts)

    def __call__(self, levels: Array) -> Array:
        sums = np.matmul(levels.astype(self._matrix.dtype), self._matrix).astype(np.int64)
        return self._scaled(sums + self._bias)


class IntegerLstm:
    """The cell bound to its weights, states and a sequence [time, batch, n]."""

    def __init__(self, op: OpContext, slots: LstmSlots, x: Array) -> None:
        self._x = x
        sizes, batch = lstm_sizes(op, slots), x.shape[1]
        self._form = integer_cell(op, slots, batch, op.services.quantization_of)
        self._state = state(op, slots.state, (batch, sizes.outputs))
        self._cell = state(op, slots.cell, (batch, sizes.cells))
        given, recurrent = gate_matrices(op, slots, self._form.order)
        self._give, self._recur = _Product(given, self._form.given), _Product(recurrent, self._form.recurrent)
        self._given = op.temporary((*x.shape[:2], len(given)), np.int64)
        self._places = [slice(i * sizes.cells, (i + 1) * sizes.cells) for i in range(len(self._form.order))]
        self._cells = sizes.cells
        self._to_hidden = QuantizedMultiplier(*self._form.to_hidden)
        scaling = self._form.projection
        self._project = (
            None if scaling is None else _Product(op.constant(slots.projection[0], "projection"), scaling)
        )

    def _complete(self, gate: int, sums: Array, cell: Array) -> None:
        """Complete the sums of one gate before its sigmoid or tanh."""
        part, peephole, norm = sums[:, self._places[gate]], self._form.peepholes[gate], self._form.norms[gate]
        if peephole is not None:
            added = multiply_by_quantized_multiplier(cell * peephole.weights, *peephole.scale)
            part[:] = fixed_point.narrow(part + added)
        if norm is not None:
            part[:] = fixed_point.layer_norm(part, norm.weights, norm.bias, norm.scale, norm.least_variance)

    def begin(self) -> None:
        """See `Cell.begin`."""
        time, batch, size = self._x.shape
        rows = self._x.reshape(time * batch, size)
        np.copyto(self._given, fixed_point.narrow(self._give(rows)).reshape(self._given.shape))

    def step(self, t: int, y: Array) -> None:
        """See `Cell.step`. Gates have 15 fractional bits after sigmoid and tanh, and the candidate with them.

        `narrow` saturates wherever the reference stores int16; products in between have int64 here.
        """
        size, cell = self._cells, self._cell.astype(np.int64)
        sums = fixed_point.narrow(self._given[t] + self._recur(self._state))
        for gate in range(len(self._places) - 1):
            self._complete(gate, sums, cell)
        candidate = fixed_point.look_up(fixed_point.tanh_table(3), sums[:, :size])
        shares = fixed_point.look_up(fixed_point.sigmoid_table(), sums[:, size:-size])
        forget = shares[:, -size:]
        # Under CIFG it is 1 - forget, where 1 is the largest int16.
        given = shares[:, :size] if len(self._places) == 4 else fixed_point.INT16_MAX - forget
        kept = rounding_shift_right(forget * cell, 15)
        # Both factors have 15 fractional bits, the cell has -cell_bits.
        cell = fixed_point.narrow(kept + rounding_shift_right(given * candidate, 30 + self._form.cell_bits))
        clip = self._form.clips[0]
        if clip:
            cell = np.clip(cell, -clip, clip)
        # The output gate comes last: its peephole reads the new cell.
        self._complete(len(self._places) - 1, sums, cell)
        output = fixed_point.look_up(fixed_point.sigmoid_table(), sums[:, -size:])
        shaped = fixed_point.look_up(fixed_point.tanh_table(15 + self._form.cell_bits), cell)
        hidden = fixed_point.narrow_to_byte(self._to_hidden(output * shaped) + self._form.hidden_zero)
        np.copyto(self._cell, cell, casting="same_kind")
        np.copyto(self._state, self._projected(hidden), casting="same_kind")
        np.copyto(y, self._state)

    def _projected(self, hidden: Array) -> Array:
        if self._project is None:
            return hidden
        found, clip = (
            fixed_point.narrow_to_byte(self._project(hidden) + self._form.state_zero),
            self._form.clips[1],
        )
        return np.asarray(np.clip(found, -clip, clip)) if clip else found
