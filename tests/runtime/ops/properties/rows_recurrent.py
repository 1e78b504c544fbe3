"""Recurrent operators over sequences: every form of LSTM, RNN and SVDF, float, hybrid and integer.

States start at zero and live through the steps of one run; the tests in `recurrent/` have several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from runtime.model.schema import ActivationFunctionType as Activation
from runtime.model.schema import BuiltinOperator, TensorType
from tests.runtime.models import per_tensor
from tests.runtime.ops.properties.examples import Example
from tests.runtime.ops.properties.rows import Row
from tests.runtime.ops.properties.strategies import Operands
from tests.runtime.ops.recurrent.cells import Cell

Op = BuiltinOperator
F32 = (TensorType.FLOAT32,)
# Without an activation LiteRT's LSTM multiplies by what its scratch memory held before.
LSTM_ACTIVATIONS = (Activation.TANH, Activation.RELU, Activation.RELU6)
ACTIVATIONS = (*LSTM_ACTIVATIONS, Activation.NONE)


class DrawnCell(Cell):
    """Draws its sizes, and feeds every input."""

    def __init__(self, draw: DrawFn, hybrid: bool) -> None:
        super().__init__(hybrid, np.random.default_rng(draw(st.integers(0, 2**32 - 1))))
        self.draw = draw
        self.feeds: list[np.ndarray] = []
        self.batch, self.time, self.size, self.cells, self.outputs = (
            draw(st.integers(1, n)) for n in (3, 4, 9, 9, 5)
        )

    def input(self, slot: int, *shape: int, dtype: Any = np.float32, quantization: Any = None) -> None:
        super().input(slot, *shape, dtype=dtype, quantization=quantization)
        if dtype is np.float32:
            self.feeds.append(self.rng.normal(0, 1, shape).astype(np.float32))
        else:
            self.feeds.append(self.rng.integers(-128, 128, shape).astype(dtype))

    def steps(self, time_major: bool) -> tuple[int, int]:
        return (self.time, self.batch) if time_major else (self.batch, self.time)

    def options(self, activations: Sequence[Activation] = ACTIVATIONS) -> dict[str, Any]:
        activation = self.draw(st.sampled_from(activations))
        asymmetric = self.hybrid and self.draw(st.booleans())
        return {"fused_activation_function": activation, "asymmetric_quantize_inputs": asymmetric}

    def example(self, opcode: Op, count: int, options: dict[str, Any], outputs: int = 1) -> Example:
        model = self.model(opcode, count, options, outputs)
        return Example(model, tuple(self.feeds), near(self.hybrid), runs=1)


def near(hybrid: bool) -> Callable[[np.ndarray, np.ndarray, Sequence[np.ndarray]], None]:
    """Compare sums and transcendentals that feed each other; a hybrid state may besides fall on the next
    level, a 127th of it, if it lies between two.
    """
    share = 5e-3 if hybrid else 1e-5

    def compare(ours: np.ndarray, theirs: np.ndarray, _inputs: Sequence[np.ndarray]) -> None:
        np.testing.assert_allclose(
            ours, theirs, rtol=share, atol=share * max(1.0, float(np.abs(theirs).max()))
        )

    return compare


def gates(
    cell: DrawnCell, first: int, biases: int, outputs: int, cifg: bool, recurrent: int | None = None
) -> None:
    for gate in range(int(cifg), 4):
        cell.matrix(first + gate, cell.cells, cell.size)
        cell.matrix((first + 4 if recurrent is None else recurrent) + gate, cell.cells, outputs)
        cell.vector(biases + gate, cell.cells)


def lstm(opcode: Op, *, hybrid: bool) -> Callable[[DrawFn, Operands], Example]:
    """One step, or a sequence."""

    def build(draw: DrawFn, _: Operands) -> Example:
        cell = DrawnCell(draw, hybrid)
        cifg, peephole, projection, norm = (draw(st.booleans()) for _ in range(4))
        outputs = cell.outputs if projection else cell.cells
        gates(cell, 1, 12, outputs, cifg)
        if peephole:
            for slot in range(9 + int(cifg), 12):
                cell.matrix(slot, cell.cells)
        if projection:
            cell.matrix(16, outputs, cell.cells)
            if draw(st.booleans()):
                cell.vector(17, outputs)
        cell.state(18, cell.batch, outputs)
        cell.state(19, cell.batch, cell.cells)
        if norm:
            for slot in range(20 + int(cifg), 24):
                cell.vector(slot, cell.cells)
        options = cell.options(LSTM_ACTIVATIONS) | {
            "cell_clip": draw(st.sampled_from([0.0, 0.3])),
            "proj_clip": draw(st.sampled_from([0.0, 0.2])) if projection else 0.0,
        }
        if opcode is Op.LSTM:
            cell.input(0, cell.batch, cell.size)
            return cell.example(opcode, 24 if norm else 20, options)
        options["time_major"] = draw(st.booleans())
        cell.input(0, *cell.steps(options["time_major"]), cell.size)
        return cell.example(opcode, 24, options)

    return build


def two_way_lstm(*, hybrid: bool) -> Callable[[DrawFn, Operands], Example]:
    def build(draw: DrawFn, _: Operands) -> Example:
        cell = DrawnCell(draw, hybrid)
        auxiliary = draw(st.sampled_from(["none", "joined", "apart"]))
        for first, state, aux in ((1, 35, 40), (18, 37, 44)):
            gates(cell, first, first + 11, cell.cells, False)
            cell.state(state, cell.batch, cell.cells)
            cell.state(state + 1, cell.batch, cell.cells)
            if auxiliary == "joined":
                for gate in range(4):
                    cell.matrix(aux + gate, cell.cells, cell.size)
        cell.input(0, *cell.steps(True), cell.size)
        if auxiliary != "none":
            cell.input(39, *cell.steps(True), cell.size)
        merge = draw(st.booleans())
        options = cell.options(LSTM_ACTIVATIONS) | {"merge_outputs": merge, "time_major": True}
        return cell.example(Op.BIDIRECTIONAL_SEQUENCE_LSTM, 48, options, 1 if merge else 2)

    return build


def rnn(opcode: Op, *, hybrid: bool) -> Callable[[DrawFn, Operands], Example]:
    def build(draw: DrawFn, _: Operands) -> Example:
        cell = DrawnCell(draw, hybrid)
        cell.matrix(1, cell.cells, cell.size)
        cell.matrix(2, cell.cells, cell.cells)
        cell.vector(3, cell.cells)
        cell.state(4, cell.batch, cell.cells)
        options = cell.options()
        if opcode is Op.RNN:
            cell.input(0, cell.batch, cell.size)
        else:
            options["time_major"] = draw(st.booleans())
            cell.input(0, *cell.steps(options["time_major"]), cell.size)
        return cell.example(opcode, 5, options)

    return build


def two_way_rnn(*, hybrid: bool) -> Callable[[DrawFn, Operands], Example]:
    """LiteRT's hybrid form ends with a fault where time comes first and outputs are merged."""

    def build(draw: DrawFn, _: Operands) -> Example:
        cell = DrawnCell(draw, hybrid)
        auxiliary = draw(st.sampled_from(["none", "joined", "apart"]))
        for first, state, aux in ((1, 4, 10), (5, 8, 11)):
            cell.matrix(first, cell.cells, cell.size)
            cell.matrix(first + 1, cell.cells, cell.cells)
            cell.vector(first + 2, cell.cells)
            cell.state(state, cell.batch, cell.cells)
            if auxiliary == "joined":
                cell.matrix(aux, cell.cells, cell.size)
        merge = draw(st.booleans())
        time_major = draw(st.booleans()) and not (hybrid and merge)
        cell.input(0, *cell.steps(time_major), cell.size)
        if auxiliary != "none":
            cell.input(9, *cell.steps(time_major), cell.size)
        options = cell.options() | {"merge_outputs": merge, "time_major": time_major}
        return cell.example(Op.BIDIRECTIONAL_SEQUENCE_RNN, 12, options, 1 if merge else 2)

    return build


def svdf(*, hybrid: bool) -> Callable[[DrawFn, Operands], Example]:
    def build(draw: DrawFn, _: Operands) -> Example:
        cell = DrawnCell(draw, hybrid)
        rank, memory = draw(st.integers(1, 3)), draw(st.integers(1, 8))
        filters = rank * cell.cells
        cell.input(0, cell.batch, cell.size)
        cell.matrix(1, filters, cell.size)
        cell.matrix(2, filters, memory)
        if draw(st.booleans()):
            cell.vector(3, cell.cells)
        cell.state(4, cell.batch, filters * memory)
        options = cell.options() | {"rank": rank}
        options["fused_activation_function"] = draw(st.sampled_from([Activation.RELU, Activation.NONE]))
        return cell.example(Op.SVDF, 5, options)

    return build


def integer_svdf(draw: DrawFn, _: Operands) -> Example:
    cell = DrawnCell(draw, hybrid=False)
    rank, memory = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    filters = rank * cell.cells
    zeros = [draw(st.integers(-128, 127)) for _ in range(2)]
    cell.input(0, cell.batch, cell.size, dtype=np.int8, quantization=per_tensor(0.02, zeros[0]))
    cell.levels(1, np.int8, 0.01, filters, cell.size)
    cell.levels(2, np.int16, 1 / 32768, filters, memory, most=9000)
    cell.levels(3, np.int32, 2e-8, cell.cells, most=20000)
    cell.state(4, cell.batch, filters * memory, dtype=np.int16, quantization=per_tensor(1e-3))
    y = cell.builder.tensor(np.int8, (), per_tensor(float(2.0 ** draw(st.floats(-7, -3))), zeros[1]))
    options = {"rank": rank, "fused_activation_function": Activation.RELU}
    return Example(cell.finish(Op.SVDF, 5, [y], options, 3), tuple(cell.feeds), runs=1)


def integer_lstm(opcode: Op) -> Callable[[DrawFn, Operands], Example]:
    """int8 but for a cell of int16, whose scale is a power of two."""

    def build(draw: DrawFn, _: Operands) -> Example:
        cell = DrawnCell(draw, hybrid=False)
        cifg, peephole, projection, norm = (draw(st.booleans()) for _ in range(4))
        outputs, scale = cell.outputs if projection else cell.cells, 2.0 ** draw(st.floats(-9, -5))
        for gate in range(int(cifg), 4):
            cell.levels(1 + gate, np.int8, scale, cell.cells, cell.size)
            cell.levels(5 + gate, np.int8, scale * 0.8, cell.cells, outputs)
            cell.levels(12 + gate, np.int32, scale * 0.02, cell.cells, most=3000)
        if peephole:
            for slot in range(9 + int(cifg), 12):
                cell.levels(slot, np.int16, 3e-5, cell.cells)
        if projection:
            cell.levels(16, np.int8, 0.01, outputs, cell.cells)
            cell.levels(17, np.int32, 1e-4, outputs, most=2000)
        zero = draw(st.integers(-20, 20))
        out = per_tensor(0.02 if projection else 1 / 128, zero)
        cell.state(18, cell.batch, outputs, dtype=np.int8, quantization=out)
        shift = draw(st.integers(-15, -9))
        cell.state(19, cell.batch, cell.cells, dtype=np.int16, quantization=per_tensor(2.0**shift))
        if norm:
            for slot in range(20 + int(cifg), 24):
                cell.levels(slot, np.int16, 3e-5, cell.cells)
        time_major = draw(st.booleans())
        steps = (cell.batch,) if opcode is Op.LSTM else cell.steps(time_major)
        cell.input(0, *steps, cell.size, dtype=np.int8, quantization=per_tensor(0.02, 9))
        scales = [2.0 ** draw(st.floats(-10, -7)) for _ in range(4)]
        made = [cell.builder.tensor(np.int16, (), per_tensor(s)) for s in scales]
        made.append(cell.builder.tensor(np.int8, (), per_tensor(1 / 128, zero)))
        options: dict[str, Any] = {
            "fused_activation_function": Activation.TANH,
            "cell_clip": draw(st.sampled_from([0.0, 0.3])),
            "proj_clip": draw(st.sampled_from([0.0, 0.4])) if projection else 0.0,
        }
        if opcode is not Op.LSTM:
            options["time_major"] = time_major
        y = cell.builder.tensor(np.int8, (), out)
        model = cell.finish(opcode, 24, [y], options, 2, made)
        return Example(model, tuple(cell.feeds), runs=1)

    return build


LSTMS = (Op.LSTM, Op.UNIDIRECTIONAL_SEQUENCE_LSTM)
RNNS = (Op.RNN, Op.UNIDIRECTIONAL_SEQUENCE_RNN)

ROWS = [
    *(Row(n, op, F32, lstm(op, hybrid=h)) for op in LSTMS for n, h in (("float", False), ("hybrid", True))),
    *(Row(n, op, F32, rnn(op, hybrid=h)) for op in RNNS for n, h in (("float", False), ("hybrid", True))),
    *(
        Row(n, op, F32, build(hybrid=h))
        for op, build in (
            (Op.BIDIRECTIONAL_SEQUENCE_LSTM, two_way_lstm),
            (Op.BIDIRECTIONAL_SEQUENCE_RNN, two_way_rnn),
            (Op.SVDF, svdf),
        )
        for n, h in (("float", False), ("hybrid", True))
    ),
    Row("integer", Op.SVDF, (TensorType.INT8,), integer_svdf),
    *(Row("integer", op, (TensorType.INT8,), integer_lstm(op)) for op in LSTMS),
]
