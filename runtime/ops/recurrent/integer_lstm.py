"""One step of an LSTM on integers: int8 in, out and weights, int16 cell (`lstm_eval.cc`, 8x8_16).

Gates are sums of 12 fractional bits, or on the scale that layer normalisation asks for, then sigmoid or tanh
with 15; the cell's scale is a power of two. Intermediates of the operator hold the scales of normalised gates
(0..3) and of the hidden state (4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from runtime.model.graph import Quantization
from runtime.model.schema import TensorType
from runtime.ops.recurrent.fixed_point import (
    INT16_MAX,
    INT16_MIN,
    layer_norm,
    look_up,
    sigmoid_table,
    tanh_table,
)
from runtime.ops.recurrent.float_lstm import LstmSlots, lstm_sizes, present
from runtime.ops.spec import Array, OpContext
from runtime.quantization import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_shift_right,
)

_Multiplier: TypeAlias = tuple[int, int]
_HIDDEN = 4
_INTERMEDIATES = 5


@dataclass(frozen=True, slots=True)
class _Product:
    """Transposed int64 weights, their bias with the zero point's share, and the way to the result's scale."""

    matrix: Array
    bias: Array
    multiplier: _Multiplier

    def __call__(self, levels: Array) -> Array:
        return multiply_by_quantized_multiplier(levels @ self.matrix + self.bias, *self.multiplier)


@dataclass(frozen=True, slots=True)
class _Diagonal:
    """Peephole weights and the way to the gate's scale."""

    weights: Array
    multiplier: _Multiplier

    def __call__(self, cell: Array) -> Array:
        return multiply_by_quantized_multiplier(cell * self.weights, *self.multiplier)


@dataclass(frozen=True, slots=True)
class _Norm:
    """Layer normalisation of one gate."""

    weights: Array
    bias: Array
    scale: _Multiplier
    least_variance: int


@dataclass(frozen=True, slots=True)
class _Gate:
    """What adds up to a gate."""

    given: _Product
    recurrent: _Product
    peephole: _Diagonal | None
    norm: _Norm | None


class IntegerLstm:
    """The cell bound to its weights and states; `x` [batch, n] holds a step's input."""

    def __init__(self, op: OpContext, slots: LstmSlots, x: Array) -> None:
        self._op, self._slots, self._x = op, slots, x
        sizes, batch = lstm_sizes(op, slots), x.shape[0]
        op.require(TensorType.INT16, i=slots.cell)
        self.state, self._cell = op.read(slots.state), op.read(slots.cell)
        if self.state.shape != (batch, sizes.outputs) or self._cell.shape != (batch, sizes.cells):
            raise op.error(f"states of {list(self.state.shape)} and {list(self._cell.shape)}")
        self._scales = self._gate_scales()
        hidden_scale, self._hidden_zero = self._parameters(_HIDDEN)
        self._cell_bits = self._log2_of_cell_scale()
        self._input, self._forget, self._candidate, self._output = (
            self._gate(g) if g or present(op, slots.inputs[0]) else None for g in range(4)
        )
        self._to_hidden = _multiplier(2.0**-15 / float(hidden_scale) * 2.0**-15)
        self._projection = self._project(hidden_scale) if present(op, slots.projection[0]) else None
        self._clips = self._quantized_clips()

    def _parameters(self, intermediate: int) -> tuple[np.float32, int]:
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

    def _gate_scales(self) -> list[np.float32]:
        if not present(self._op, self._slots.norms[1]):
            return [np.float32(2.0**-12)] * 4
        first = 0 if present(self._op, self._slots.inputs[0]) else 1
        return [self._parameters(max(i, first))[0] for i in range(4)]

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

    def _product(self, i: int, source: int, bias: Array | int, result: np.float32) -> _Product:
        op = self._op
        op.require(TensorType.INT8, i=i)
        scale, zero = op.scale_and_zero_point(op.input(source))
        matrix = op.constant(i, "weights").astype(np.int64)
        return _Product(
            matrix.T,
            bias - zero * matrix.sum(axis=1),
            _multiplier(float(self._scale(i) * np.float32(scale) / result)),
        )

    def _gate(self, g: int) -> _Gate:
        op, slots, scale = self._op, self._slots, self._scales[g]
        bias = op.constant(slots.biases[g], "bias").astype(np.int64)
        norm = None
        if present(op, slots.norms[g]):
            weight_scale = self._scale(slots.norms[g])
            weights = op.constant(slots.norms[g], "layer norm weights").astype(np.int64)
            least = max(1, int(np.float32(10000) * weight_scale))
            norm = _Norm(weights, bias, _multiplier(float(weight_scale)), least)
        given = self._product(slots.inputs[g], 0, 0 if norm else bias, scale)
        recurrent = self._product(slots.recurrent[g], slots.state, 0, scale)
        return _Gate(given, recurrent, self._peephole(g, scale), norm)

    def _peephole(self, g: int, scale: np.float32) -> _Diagonal | None:
        where = dict(zip((0, 1, 3), self._slots.peepholes, strict=True)).get(g)
        if where is None or not present(self._op, where):
            return None
        self._op.require(TensorType.INT16, i=where)
        weights = self._spread(self._op.constant(where, "peephole").astype(np.int64))
        real = 2.0**self._cell_bits * float(self._scale(where)) / float(scale)
        return _Diagonal(weights, _multiplier(real))

    def _spread(self, weights: Array) -> Array:
        """Peephole weights [batch, cells]. Under a projection LiteRT steps through cells by outputs: it uses
        only so many weights, and where a step holds the whole batch, rows run into each other.
        """
        outputs, spread = self.state.shape[1], np.zeros(self._cell.shape, np.int64)
        if self._op.operator.options.get("time_major", True):
            flat = spread.reshape(-1)
            flat[: len(spread) * outputs] = np.tile(weights[:outputs], len(spread))
        else:
            spread[:, :outputs] = weights[:outputs]
        return spread

    def _project(self, hidden_scale: np.float32) -> _Product:
        matrix, bias = self._slots.projection
        self._op.require(TensorType.INT8, i=matrix)
        weights = self._op.constant(matrix, "projection").astype(np.int64)
        start = self._op.constant(bias, "bias").astype(np.int64) if present(self._op, bias) else 0
        real = self._scale(matrix) * hidden_scale / self._scale(self._slots.state)
        return _Product(weights.T, start - self._hidden_zero * weights.sum(axis=1), _multiplier(float(real)))

    def _quantized_clips(self) -> tuple[int, int]:
        """(of the cell, of the projection), 0 for none."""
        cell, projection = (np.float32(self._op.option(n)) for n in ("cell_clip", "proj_clip"))
        out_scale = np.float32(self._op.scale_and_zero_point(self._op.output())[0])
        return (
            min(int(cell / self._scale(self._slots.cell)), INT16_MAX) if cell > 0 else 0,
            min(int(projection / out_scale), 127) if projection > 0 else 0,
        )

    def step(self, y: Array) -> None:
        """Read the bound input and the states, write `y` [batch, outputs] and the states."""
        x, state, cell = self._x.astype(np.int64), self.state.astype(np.int64), self._cell.astype(np.int64)
        assert self._forget is not None
        assert self._candidate is not None
        assert self._output is not None
        forget = look_up(sigmoid_table(), _summed(self._forget, x, state, cell)).astype(np.int64)
        candidate = look_up(tanh_table(3), _summed(self._candidate, x, state, cell)).astype(np.int64)
        if self._input is None:
            given = INT16_MAX - forget
        else:
            given = look_up(sigmoid_table(), _summed(self._input, x, state, cell)).astype(np.int64)
        kept = rounding_shift_right(forget * cell, 15)
        fresh = rounding_shift_right(given * candidate, 30 + self._cell_bits)
        cell = _narrow(kept + fresh)
        if self._clips[0]:
            cell = np.clip(cell, -self._clips[0], self._clips[0])
        output = look_up(sigmoid_table(), _summed(self._output, x, state, cell)).astype(np.int64)
        shaped = look_up(tanh_table(15 + self._cell_bits), cell).astype(np.int64)
        hidden = multiply_by_quantized_multiplier(output * shaped, *self._to_hidden) + self._hidden_zero
        np.copyto(self._cell, cell.astype(np.int16))
        np.copyto(y, self._projected(np.clip(hidden, -128, 127)).astype(np.int8))
        np.copyto(self.state, y)

    def _projected(self, hidden: Array) -> Array:
        if self._projection is None:
            return hidden
        _, zero = self._op.scale_and_zero_point(self._op.input(self._slots.state))
        found: Array = np.clip(self._projection(hidden) + zero, -128, 127)
        return np.asarray(np.clip(found, -self._clips[1], self._clips[1])) if self._clips[1] else found


def _multiplier(real: float) -> _Multiplier:
    """Effective scales are single precision where LiteRT keeps them."""
    return quantize_multiplier(float(np.float32(real)))


def _narrow(x: Array) -> Array:
    return np.asarray(np.clip(x, INT16_MIN, INT16_MAX))


def _summed(gate: _Gate, x: Array, state: Array, cell: Array) -> Array:
    """The gate's level before its activation; every addition saturates."""
    total = _narrow(gate.given(x))
    total = _narrow(total + gate.recurrent(state))
    if gate.peephole is not None:
        total = _narrow(total + gate.peephole(cell))
    if gate.norm is None:
        return total
    n = gate.norm
    return layer_norm(total, n.weights, n.bias, n.scale, n.least_variance)
