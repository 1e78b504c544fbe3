"""One step of an LSTM on floats, with float or hybrid weights (`lstm_eval.cc`).

CIFG is without an input gate, which is then 1 - forget; peepholes let the cell into the gates; a projection
shrinks the output; layer normalisation takes the gates' sums before their biases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from runtime.ops.recurrent.gates import activate, products, real_vector, sigmoid, weights
from runtime.ops.spec import Array, OpContext

_VARIANCE_FLOOR = np.float32(1e-8)


@dataclass(frozen=True, slots=True)
class LstmSlots:
    """Which operator input is what; gates in the order input, forget, cell, output."""

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
    """Units of a cell: memory cells, and outputs (fewer with a projection)."""

    cells: int
    outputs: int


def lstm_sizes(op: OpContext, slots: LstmSlots) -> LstmSizes:
    """Sizes as the output gate's weights state them. Raises `ShapeError` for weights of another rank."""
    given, recurrent = op.input(slots.inputs[3]).shape, op.input(slots.recurrent[3]).shape
    if len(given) != 2 or len(recurrent) not in (1, 2):
        raise op.error(f"weights of {list(given)} and {list(recurrent)} for the output gate")
    return LstmSizes(given[0], recurrent[-1])


def present(op: OpContext, i: int) -> bool:
    """Whether the operator has its optional input `i`; an empty tensor is none."""
    value = op.optional(i)
    return value is not None and value.elements > 0


class FloatLstm:
    """The cell bound to its weights and states. `x` and `aux` hold a step's inputs, `y` gets its output."""

    def __init__(self, op: OpContext, slots: LstmSlots, x: Array, aux: Array | None = None) -> None:
        sizes, batch = lstm_sizes(op, slots), x.shape[0]
        self._cells = sizes.cells
        self._has_input = present(op, slots.inputs[0])
        kept = [g for g in range(4) if g or self._has_input]
        self._asymmetric = bool(op.option("asymmetric_quantize_inputs"))
        self.state = _state(op, slots.state, (batch, sizes.outputs))
        self._cell = _state(op, slots.cell, (batch, sizes.cells))
        self._sums = np.empty((batch, len(kept) * sizes.cells), np.float32)
        self._gates = dict(zip(kept, np.split(self._sums, len(kept), axis=1), strict=True))
        sources = [(x, slots.inputs), (self.state, slots.recurrent)]
        if aux is not None and slots.auxiliary is not None:
            sources.insert(1, (aux, slots.auxiliary))
        self._products = [
            products(op, source, [where[g] for g in kept], sizes.cells, asymmetric=self._asymmetric)
            for source, where in sources
        ]
        self._biases = {g: weights(op, slots.biases[g], (sizes.cells,)) for g in kept}
        self._peepholes = _vectors(op, dict(zip((0, 1, 3), slots.peepholes, strict=True)), kept, sizes.cells)
        self._norms = _vectors(op, dict(enumerate(slots.norms)), kept, sizes.cells)
        self._activate = activate(op)
        self._clip = float(op.option("cell_clip"))
        self._hidden = np.empty((batch, sizes.cells), np.float32)
        self._project = self._projection(op, slots, sizes)

    def _projection(self, op: OpContext, slots: LstmSlots, sizes: LstmSizes) -> Callable[[Array], None]:
        matrix, bias = slots.projection
        if not present(op, matrix):
            if sizes.outputs != sizes.cells:
                raise op.error(f"{sizes.cells} cells become {sizes.outputs} outputs without a projection")
            return lambda y: np.copyto(y, self._hidden)
        project = products(op, self._hidden, [matrix], sizes.outputs, asymmetric=self._asymmetric)
        start = weights(op, bias, (sizes.outputs,)) if present(op, bias) else np.float32(0)
        clip, total = float(op.option("proj_clip")), np.empty_like(self.state)

        def run(y: Array) -> None:
            np.copyto(total, start)
            project(total)
            np.copyto(y, np.clip(total, -clip, clip) if clip > 0 else total)

        return run

    def step(self, y: Array) -> None:
        """Read the bound inputs and states, write `y` [batch, outputs] and the states."""
        self._add_products()
        forget, candidate = self._gate(1), self._gate(2)
        sigmoid(forget)
        given = np.subtract(1, forget) if not self._has_input else self._gate(0)
        if self._has_input:
            sigmoid(given)
        self._activate(candidate, candidate)
        np.multiply(self._cell, forget, out=self._cell)
        np.add(self._cell, given * candidate, out=self._cell)
        if self._clip > 0:
            np.clip(self._cell, -self._clip, self._clip, out=self._cell)
        output = self._gate(3)
        sigmoid(output)
        self._activate(self._cell, self._hidden)
        np.multiply(self._hidden, output, out=self._hidden)
        self._project(y)
        np.copyto(self.state, y)

    def _add_products(self) -> None:
        for gate, part in self._gates.items():
            np.copyto(part, 0 if self._norms else self._biases[gate])
        for product in self._products:
            product(self._sums)

    def _gate(self, gate: int) -> Array:
        """The gate's sums, with peephole and normalisation, ready for its activation."""
        part = self._gates[gate]
        if gate in self._peepholes:
            part += self._cell * self._peepholes[gate]
        if self._norms:
            mean = part.mean(axis=1, keepdims=True, dtype=np.float32)
            centred = part - mean
            variance = np.square(centred).mean(axis=1, keepdims=True, dtype=np.float32)
            part[:] = centred / np.sqrt(variance + _VARIANCE_FLOOR) * self._norms[gate] + self._biases[gate]
        return part


def _state(op: OpContext, i: int, shape: tuple[int, int]) -> Array:
    value = op.input(i)
    if value.shape != shape:
        raise op.error(f"state {i} has shape {list(value.shape)}, {list(shape)} is needed")
    return op.read(i)


def _vectors(op: OpContext, where: dict[int, int], kept: list[int], size: int) -> dict[int, Array]:
    """One vector for each kept gate that `where` lists, or none at all. Raises `ShapeError` for some."""
    wanted = {gate: i for gate, i in where.items() if gate in kept}
    found = {gate: real_vector(op, i, size) for gate, i in wanted.items() if present(op, i)}
    if found and len(found) != len(wanted):
        raise op.error(f"inputs {sorted(wanted.values())} must be given together")
    return found
