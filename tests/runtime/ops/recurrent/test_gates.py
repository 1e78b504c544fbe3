"""The gates' weights: constants, or computed anew for every run."""

from __future__ import annotations

import pytest

from runtime.model.schema import ActivationFunctionType as Activation
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.recurrent.runs import (
    BATCH,
    CELLS,
    INPUT,
    OUTPUTS,
    check,
    lstm_cell,
    lstm_options,
    rnn_cell,
    sequences,
    svdf_cell,
)

GIVEN_AT_RUN_TIME = {
    "lstm": (Op.LSTM, {2: (CELLS, INPUT), 6: (CELLS, CELLS), 10: (CELLS,), 13: (CELLS,)}),
    "projected_lstm": (Op.LSTM, {7: (CELLS, OUTPUTS), 16: (OUTPUTS, CELLS), 17: (OUTPUTS,)}),
    "normalised_lstm": (Op.LSTM, {12: (CELLS,), 22: (CELLS,)}),
    "rnn": (Op.RNN, {1: (CELLS, INPUT), 2: (CELLS, CELLS), 3: (CELLS,)}),
    "svdf": (Op.SVDF, {1: (2 * CELLS, INPUT), 2: (2 * CELLS, 7), 3: (CELLS,)}),
}
"""Slots of float operands, each with its shape, that earlier operators may compute."""


@pytest.mark.parametrize("name", GIVEN_AT_RUN_TIME)
def test_weights_that_change_between_runs_match_litert(name):
    opcode, given = GIVEN_AT_RUN_TIME[name]
    if opcode is Op.LSTM:
        projects, norms = name == "projected_lstm", name == "normalised_lstm"
        cell = lstm_cell(False, peephole=True, projection=projects, norm=norms)
        options = lstm_options({})[1]
    elif opcode is Op.RNN:
        cell, options = rnn_cell(False), {"fused_activation_function": Activation.TANH}
    else:
        cell, options = svdf_cell(False, 2, bias=True), {"rank": 2}
    cell.input(0, BATCH, INPUT)
    for slot, shape in given.items():
        cell.input(slot, *shape)
    count = 24 if name == "normalised_lstm" else 20 if opcode is Op.LSTM else 5
    check(cell.model(opcode, count, options), sequences((BATCH, INPUT), *given.values()))
