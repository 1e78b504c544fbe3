"""One step of an LSTM on integers: int8 in, out and weights, int16 cell (`lstm_eval.cc`, 8x8_16).

Gates are sums of 12 fractional bits, or on the scale that layer normalisation asks for, then sigmoid or tanh
with 15; the cell's scale is a power of two. Intermediates of the operator hold the scales of normalised gates
(0..3) and of the hidden state (4).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from runtime.model.graph import Quantization
from runtime.ops.recurrent.fixed_point import (
    INT16_MAX,
    layer_norm,
    look_up,
    narrow,
    narrow_to_byte,
    sigmoid_table,
    tanh_table,
)
from runtime.ops.recurrent.float_lstm import LstmSlots, gate_order, lstm_sizes
from runtime.ops.recurrent.gates import present, state
from runtime.ops.support import Array, OpContext, TensorType
from runtime.ops.support.quantization import (
    EXACT_FLOAT32_TERMS,
    QuantizedMultiplier,
    quantize_multiplier,
    quantize_multipliers,
    rounding_shift_right,
)

_Multiplier: TypeAlias = tuple[int, int]
_INPUT, _FORGET, _CANDIDATE, _OUTPUT = range(4)
_HIDDEN = 4
"""Which of the operator's intermediates holds the hidden state's scale and zero point."""

_INTERMEDIATES = 5
"""Intermediates of an 8x8_16 cell: four gates and the hidden state. LiteRT's 8x8_8 cell has 12 instead."""


class _Product:
    """The product of int8 rows [rows, n] with the gates' weights, on the results' scales; int64.

    Products of bytes are summed in floats, exactly: in float32 where there are few enough, else in float64.
    """

    def __init__(self, weights: Array, bias: Array, scales: Sequence[float]) -> None:
        few = weights.shape[1] <= EXACT_FLOAT32_TERMS
        self._matrix = np.ascontiguousarray(weights.T, np.float32 if few else np.float64)
        self._bias = bias
        self._scaled = QuantizedMultiplier(*quantize_multipliers([float(np.float32(s)) for s in scales]))

    def __call__(self, levels: Array) -> Array:
        sums = np.matmul(levels.astype(self._matrix.dtype), self._matrix).astype(np.int64)
        return self._scaled(sums + self._bias)


@dataclass(frozen=True, slots=True)
class _Peephole:
    """A peephole: what the cell adds to a gate, by weights [batch, cells], on the gate's scale."""

    weights: Array
    scaled: QuantizedMultiplier

    def __call__(self, cell: Array) -> Array:
        return self.scaled(cell * self.weights)


@dataclass(frozen=True, slots=True)
class _Norm:
    """Layer normalisation of one gate."""

    weights: Array
    bias: Array
    scale: _Multiplier
    least_variance: int

    def __call__(self, sums: Array) -> Array:
        return layer_norm(sums, self.weights, self.bias, self.scale, self.least_variance)


@dataclass(frozen=True, slots=True)
class _Completion:
    """The steps that complete the sums of the gate at `place` before its sigmoid or tanh."""

    place: slice
    peephole: _Peephole | None
    norm: _Norm | None

    def __call__(self, sums: Array, cell: Array) -> None:
        gate = sums[:, self.place]
        if self.peephole is not None:
            gate[:] = narrow(gate + self.peephole(cell))
        if self.norm is not None:
            gate[:] = self.norm(gate)


class IntegerLstm:
    """The cell bound to its weights, states and a sequence [time, batch, n]."""

    def __init__(self, op: OpContext, slots: LstmSlots, x: Array) -> None:
        self._op, self._slots, self._x = op, slots, x
        sizes, batch = lstm_sizes(op, slots), x.shape[1]
        op.require(TensorType.INT16, i=slots.cell)
        self._state = state(op, slots.state, (batch, sizes.outputs))
        self._cell = state(op, slots.cell, (batch, sizes.cells))
        order = gate_order(op, slots)
        has_norm = present(op, slots.norms[_FORGET])
        scales = self._gate_scales(order, has_norm=has_norm)
        hidden_scale, self._hidden_zero = self._parameters(_HIDDEN)
        self._cell_bits = self._log2_of_cell_scale()
        # Under layer normalisation biases come after it; otherwise they are part of the input's product.
        biases = [op.constant(slots.biases[g], "bias").astype(np.int64) for g in order]
        start = np.zeros(len(order) * sizes.cells, np.int64) if has_norm else np.concatenate(biases)
        self._give = self._product([slots.inputs[g] for g in order], 0, start, scales)
        self._recur = self._product(
            [slots.recurrent[g] for g in order], slots.state, np.zeros(1, np.int64), scales
        )
        self._given = op.temporary((*x.shape[:2], len(order) * sizes.cells), np.int64)
        places = [slice(i * sizes.cells, (i + 1) * sizes.cells) for i in range(len(order))]
        self._completions = [
            _Completion(place, self._peephole(g, scale), self._norm(g, bias) if has_norm else None)
            for g, place, scale, bias in zip(order, places, scales, biases, strict=True)
        ]
        self._has_input, self._cells = _INPUT in order, sizes.cells
        self._to_hidden = QuantizedMultiplier(*_multiplier(2.0**-15 / float(hidden_scale) * 2.0**-15))
        self._projection = self._project(hidden_scale) if present(op, slots.projection[0]) else None
        _, self._state_zero = op.scale_and_zero_point(op.input(slots.state))
        self._clips = self._quantized_clips()

    def _parameters(self, intermediate: int) -> tuple[np.float32, int]:
        """Return scale and zero point of an intermediate. Raises `UnsupportedOperatorError` without them."""
        wanted = self._op.operator.intermediates
        if len(wanted) != _INTERMEDIATES:
            raise self._op.unsupported(
                f"{len(wanted)} intermediates; integer cells here have {_INTERMEDIATES}"
            )
        index = wanted[intermediate]
        found: Quantization | None = self._op.services.quantization_of(index) if index >= 0 else None
        if found is None or not found.scales:
            raise self._op.unsupported(f"intermediate {intermediate} has no scale")
        return np.float32(found.scales[0]), found.zero_points[0]

    def _gate_scales(self, order: Sequence[int], *, has_norm: bool) -> list[np.float32]:
        if not has_norm:
            return [np.float32(2.0**-12)] * len(order)
        return [self._parameters(g)[0] for g in order]

    def _log2_of_cell_scale(self) -> int:
        scale, zero = self._op.scale_and_zero_point(self._op.input(self._slots.cell))
        bits = round(math.log2(scale))
        if zero != 0 or scale != 2.0**bits or not -15 <= bits <= -9:
            raise self._op.unsupported(
                f"a cell of scale {scale}; a power of two from 2^-15 to 2^-9 is needed"
            )
        return bits

    def _scale(self, i: int) -> np.float32:
        return np.float32(self._op.scale_and_zero_point(self._op.input(i))[0])

    def _product(
        self, inputs: Sequence[int], source: int, bias: Array, results: Sequence[np.float32]
    ) -> _Product:
        """Return the product of input `source` with weights, less what the zero point adds."""
        op = self._op
        for i in inputs:
            op.require(TensorType.INT8, i=i)
        scale, zero = op.scale_and_zero_point(op.input(source))
        matrices = [op.constant(i, "weights") for i in inputs]
        if any(m.shape != (matrices[-1].shape[0], op.input(source).shape[-1]) for m in matrices):
            raise op.error(f"weights of {sorted({m.shape for m in matrices})} for input {source}")
        matrix = np.concatenate(matrices)
        reals = [float(self._scale(i) * np.float32(scale) / r) for i, r in zip(inputs, results, strict=True)]
        spread = np.repeat(reals, len(matrices[0]))
        return _Product(matrix, bias - zero * matrix.sum(axis=1, dtype=np.int64), [float(s) for s in spread])

    def _norm(self, g: int, bias: Array) -> _Norm:
        where = self._slots.norms[g]
        scale = self._scale(where)
        weights = self._op.constant(where, "layer norm weights").astype(np.int64)
        return _Norm(weights, bias, _multiplier(float(scale)), max(1, int(np.float32(10000) * scale)))

    def _peephole(self, g: int, scale: np.float32) -> _Peephole | None:
        where = dict(zip((_INPUT, _FORGET, _OUTPUT), self._slots.peepholes, strict=True)).get(g)
        if where is None or not present(self._op, where):
            return None
        self._op.require(TensorType.INT16, i=where)
        weights = self._spread(self._op.constant(where, "peephole").astype(np.int64))
        real = 2.0**self._cell_bits * float(self._scale(where)) / float(scale)
        return _Peephole(weights, QuantizedMultiplier(*_multiplier(real)))

    def _spread(self, weights: Array) -> Array:
        """Return peephole weights [batch, cells] as LiteRT applies them.

        Under a projection LiteRT steps through the cells by the number of outputs: it uses only so many
        weights, and where a step holds the whole batch, each row starts inside the one before.
        """
        outputs, spread = self._state.shape[1], np.zeros(self._cell.shape, np.int64)
        if self._op.operator.options.get("time_major", True):
            flat = spread.reshape(-1)
            flat[: len(spread) * outputs] = np.tile(weights[:outputs], len(spread))
        else:
            spread[:, :outputs] = weights[:outputs]
        return spread

    def _project(self, hidden_scale: np.float32) -> _Product:
        matrix, bias = self._slots.projection
        self._op.require(TensorType.INT8, i=matrix)
        weights = self._op.constant(matrix, "projection")
        start = self._op.constant(bias, "bias").astype(np.int64) if present(self._op, bias) else 0
        real = self._scale(matrix) * hidden_scale / self._scale(self._slots.state)
        shift = self._hidden_zero * weights.sum(axis=1, dtype=np.int64)
        return _Product(weights, start - shift, [float(real)])

    def _quantized_clips(self) -> tuple[int, int]:
        """Return the largest level of the cell and of the projection, 0 for no clip."""
        cell, projection = (np.float32(self._op.option(n)) for n in ("cell_clip", "proj_clip"))
        out_scale = np.float32(self._op.scale_and_zero_point(self._op.output())[0])
        return (
            min(int(cell / self._scale(self._slots.cell)), INT16_MAX) if cell > 0 else 0,
            min(int(projection / out_scale), 127) if projection > 0 else 0,
        )

    def begin(self) -> None:
        """See `Cell.begin`."""
        time, batch, size = self._x.shape
        rows = self._x.reshape(time * batch, size)
        np.copyto(self._given, narrow(self._give(rows)).reshape(self._given.shape))

    def step(self, t: int, y: Array) -> None:
        """See `Cell.step`. Gates have 15 fractional bits after sigmoid and tanh, and the candidate with them.

        `narrow` saturates wherever the reference stores int16; products in between have int64 here.
        """
        size, cell = self._cells, self._cell.astype(np.int64)
        sums = narrow(self._given[t] + self._recur(self._state))
        for complete in self._completions[:-1]:
            complete(sums, cell)
        candidate = look_up(tanh_table(3), sums[:, :size])
        shares = look_up(sigmoid_table(), sums[:, size:-size])
        forget = shares[:, -size:]
        given = shares[:, :size] if self._has_input else INT16_MAX - forget
        kept = rounding_shift_right(forget * cell, 15)
        cell = narrow(kept + rounding_shift_right(given * candidate, 30 + self._cell_bits))
        if self._clips[0]:
            cell = np.clip(cell, -self._clips[0], self._clips[0])
        self._completions[-1](sums, cell)
        output = look_up(sigmoid_table(), sums[:, -size:])
        shaped = look_up(tanh_table(15 + self._cell_bits), cell)
        hidden = narrow_to_byte(self._to_hidden(output * shaped) + self._hidden_zero)
        np.copyto(self._cell, cell, casting="same_kind")
        np.copyto(self._state, self._projected(hidden), casting="same_kind")
        np.copyto(y, self._state)

    def _projected(self, hidden: Array) -> Array:
        if self._projection is None:
            return hidden
        found = narrow_to_byte(self._projection(hidden) + self._state_zero)
        return np.asarray(np.clip(found, -self._clips[1], self._clips[1])) if self._clips[1] else found


def _multiplier(real: float) -> _Multiplier:
    """Quantise an effective scale, which LiteRT keeps in single precision."""
    return quantize_multiplier(float(np.float32(real)))
