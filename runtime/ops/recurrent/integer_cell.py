"""The parameters of an LSTM on integers: scales, zero points and biases as its products need them.

Intermediates of the operator hold the scales of normalised gates (0..3) and of the hidden state (4).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from runtime.model.graph import Quantization
from runtime.ops.recurrent.fixed_point import INT16_MAX
from runtime.ops.recurrent.float_lstm import LstmSlots, gate_order, lstm_sizes
from runtime.ops.recurrent.gates import present
from runtime.ops.support import Array, OpContext, TensorType
from runtime.ops.support.quantization import quantize_multiplier, quantize_multipliers

Multiplier: TypeAlias = tuple[int, int]
"""Multiplier and shift, as `quantize_multiplier` gives them."""

_INPUT, _FORGET, _CANDIDATE, _OUTPUT = range(4)
_HIDDEN = 4
"""Which of the operator's intermediates holds the hidden state's scale and zero point."""

_INTERMEDIATES = 5
"""Intermediates of an 8x8_16 cell: four gates and the hidden state. LiteRT's 8x8_8 cell has 12 instead."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """The way from sums of products to levels: `bias` is added, less what the zero point adds, then comes the
    factor multiplier * 2^(shift - 31). int64 [rows], or [1] of factors.
    """

    bias: Array
    multipliers: Array
    shifts: Array


@dataclass(frozen=True, slots=True)
class Peephole:
    """The share of the cell in a gate, by weights [batch, cells], int64, on the gate's scale."""

    weights: Array
    scale: Multiplier


@dataclass(frozen=True, slots=True)
class Norm:
    """Layer normalisation of one gate."""

    weights: Array
    bias: Array
    scale: Multiplier
    least_variance: int


@dataclass(frozen=True, slots=True)
class IntegerCell:
    """Everything about a cell but its matrices. `order` holds its gates as the results of its products lie.

    `cell_bits` is the binary logarithm of the cell's scale; `clips` are the largest levels of the cell and of
    the projection, 0 for none.
    """

    order: tuple[int, ...]
    given: Scaling
    recurrent: Scaling
    projection: Scaling | None
    peepholes: tuple[Peephole | None, ...]
    norms: tuple[Norm | None, ...]
    cell_bits: int
    to_hidden: Multiplier
    hidden_zero: int
    state_zero: int
    clips: tuple[int, int]


def gate_matrices(op: OpContext, slots: LstmSlots, order: Sequence[int]) -> tuple[Array, Array]:
    """Return the weights of the input and of the previous output, int8 [gates * cells, n]."""
    return (
        _joined(op, [slots.inputs[g] for g in order], 0),
        _joined(op, [slots.recurrent[g] for g in order], slots.state),
    )


def _joined(op: OpContext, inputs: Sequence[int], source: int) -> Array:
    for i in inputs:
        op.require(TensorType.INT8, i=i)
    matrices = [op.constant(i, "weights") for i in inputs]
    # The last matrix is the output gate's, by which LiteRT tells the sizes of a cell.
    if any(m.shape != (matrices[-1].shape[0], op.input(source).shape[-1]) for m in matrices):
        raise op.error(f"weights of {sorted({m.shape for m in matrices})} for input {source}")
    return np.concatenate(matrices)


def integer_cell(
    op: OpContext, slots: LstmSlots, batch: int, quantization_of: Callable[[int], Quantization | None]
) -> IntegerCell:
    """Read a cell for so many batch rows; `quantization_of` tells that of the operator's intermediates.

    Raises `UnsupportedOperatorError` for a form that has no kernel, `ShapeError`.
    """
    return _Reader(op, slots, batch, quantization_of).cell()


class _Reader:
    """Reads the parameters of a cell from its operator."""

    def __init__(
        self,
        op: OpContext,
        slots: LstmSlots,
        batch: int,
        quantization_of: Callable[[int], Quantization | None],
    ) -> None:
        self._op, self._slots, self._batch, self._quantization_of = op, slots, batch, quantization_of
        op.require(TensorType.INT16, i=slots.cell)
        self._sizes = lstm_sizes(op, slots)

    def cell(self) -> IntegerCell:
        op, slots = self._op, self._slots
        order = tuple(gate_order(op, slots))
        has_norm = present(op, slots.norms[_FORGET])
        scales = self._gate_scales(order, has_norm=has_norm)
        hidden_scale, hidden_zero = self._parameters(_HIDDEN)
        cell_bits = self._log2_of_cell_scale()
        # Under layer normalisation biases come after it; otherwise they are part of the input's product.
        biases = [op.constant(slots.biases[g], "bias").astype(np.int64) for g in order]
        none = np.zeros(len(order) * self._sizes.cells, np.int64)
        given, recurrent = gate_matrices(op, slots, order)
        start = none if has_norm else np.concatenate(biases)
        inputs, previous = ([kind[g] for g in order] for kind in (slots.inputs, slots.recurrent))
        return IntegerCell(
            order,
            self._scaling(inputs, given, 0, start, scales),
            self._scaling(previous, recurrent, slots.state, none, scales),
            self._projection(hidden_scale, hidden_zero) if present(op, slots.projection[0]) else None,
            tuple(self._peephole(g, scale, cell_bits) for g, scale in zip(order, scales, strict=True)),
            tuple(self._norm(g, bias) if has_norm else None for g, bias in zip(order, biases, strict=True)),
            cell_bits,
            # The output gate and the tanh of the cell have 15 fractional bits each.
            _multiplier(2.0**-15 / float(hidden_scale) * 2.0**-15),
            hidden_zero,
            op.scale_and_zero_point(op.input(slots.state))[1],
            self._clips(),
        )

    def _parameters(self, intermediate: int) -> tuple[np.float32, int]:
        """Return scale and zero point of an intermediate. Raises `UnsupportedOperatorError` without them."""
        wanted = self._op.operator.intermediates
        if len(wanted) != _INTERMEDIATES:
            raise self._op.unsupported(
                f"{len(wanted)} intermediates; integer cells here have {_INTERMEDIATES}"
            )
        index = wanted[intermediate]
        found = self._quantization_of(index) if index >= 0 else None
        if found is None or not found.scales:
            raise self._op.unsupported(f"intermediate {intermediate} has no scale")
        return np.float32(found.scales[0]), found.zero_points[0]

    def _gate_scales(self, order: Sequence[int], *, has_norm: bool) -> list[np.float32]:
        if not has_norm:
            # Q3.12: without norms the sums of the gates have 3 integer bits.
            return [np.float32(2.0**-12)] * len(order)
        return [self._parameters(g)[0] for g in order]

    def _log2_of_cell_scale(self) -> int:
        scale, zero = self._op.scale_and_zero_point(self._op.input(self._slots.cell))
        bits = round(math.log2(scale))
        # 0 to 6 integer bits, for which LiteRT's `ApplyTanh` has a case each.
        if zero != 0 or scale != 2.0**bits or not -15 <= bits <= -9:
            raise self._op.unsupported(
                f"a cell of scale {scale}; a power of two from 2^-15 to 2^-9 is needed"
            )
        return bits

    def _scale(self, i: int) -> np.float32:
        return np.float32(self._op.scale_and_zero_point(self._op.input(i))[0])

    def _scaling(
        self, inputs: Sequence[int], matrix: Array, source: int, bias: Array, results: Sequence[np.float32]
    ) -> Scaling:
        """Return the scaling of the product of input `source` with a matrix, on the results' scales."""
        scale, zero = self._op.scale_and_zero_point(self._op.input(source))
        reals = [float(self._scale(i) * np.float32(scale) / r) for i, r in zip(inputs, results, strict=True)]
        spread = [float(np.float32(s)) for s in np.repeat(reals, len(matrix) // len(inputs))]
        start = bias - zero * matrix.sum(axis=1, dtype=np.int64)
        return Scaling(start, *quantize_multipliers(spread))

    def _projection(self, hidden_scale: np.float32, hidden_zero: int) -> Scaling:
        matrix, bias = self._slots.projection
        self._op.require(TensorType.INT8, i=matrix)
        weights = self._op.constant(matrix, "projection")
        start = self._op.constant(bias, "bias").astype(np.int64) if present(self._op, bias) else 0
        real = self._scale(matrix) * hidden_scale / self._scale(self._slots.state)
        shift = hidden_zero * weights.sum(axis=1, dtype=np.int64)
        return Scaling(start - shift, *quantize_multipliers([float(np.float32(real))]))

    def _norm(self, g: int, bias: Array) -> Norm:
        where = self._slots.norms[g]
        scale = self._scale(where)
        weights = self._op.constant(where, "layer norm weights").astype(np.int64)
        # The last one is `variance_guard` of `lstm.cc`.
        return Norm(weights, bias, _multiplier(float(scale)), max(1, int(np.float32(10000) * scale)))

    def _peephole(self, g: int, scale: np.float32, cell_bits: int) -> Peephole | None:
        where = dict(zip((_INPUT, _FORGET, _OUTPUT), self._slots.peepholes, strict=True)).get(g)
        if where is None or not present(self._op, where):
            return None
        self._op.require(TensorType.INT16, i=where)
        weights = self._spread(self._op.constant(where, "peephole").astype(np.int64))
        return Peephole(weights, _multiplier(2.0**cell_bits * float(self._scale(where)) / float(scale)))

    def _spread(self, weights: Array) -> Array:
        """Return peephole weights [batch, cells] as LiteRT applies them.

        Under a projection LiteRT steps through the cells by the number of outputs: it uses only so many
        weights, and where a step holds the whole batch, each row starts inside the one before.
        """
        outputs, spread = self._sizes.outputs, np.zeros((self._batch, self._sizes.cells), np.int64)
        if self._op.operator.options.get("time_major", True):
            flat = spread.reshape(-1)
            flat[: self._batch * outputs] = np.tile(weights[:outputs], self._batch)
        else:
            spread[:, :outputs] = weights[:outputs]
        return spread

    def _clips(self) -> tuple[int, int]:
        cell, projection = (np.float32(self._op.option(n)) for n in ("cell_clip", "proj_clip"))
        out_scale = np.float32(self._op.scale_and_zero_point(self._op.output())[0])
        return (
            min(int(cell / self._scale(self._slots.cell)), INT16_MAX) if cell > 0 else 0,
            min(int(projection / out_scale), 127) if projection > 0 else 0,
        )


def _multiplier(real: float) -> Multiplier:
    """Quantise an effective scale, which LiteRT keeps in single precision."""
    return quantize_multiplier(float(np.float32(real)))
