"""Sequences through LSTMs in one and two directions, against LiteRT; cells that do not fit together."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.delegates.base import GraphFacts
from runtime.errors import ShapeError
from runtime.model.reader import read_model
from runtime.model.schema import ActivationFunctionType as Activation
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.recurrent.cells import Cell
from tests.runtime.ops.recurrent.runs import (
    BATCH,
    CELLS,
    INPUT,
    TIME,
    VARIANTS,
    check,
    check_on_gpu,
    fill_gates,
    lstm_cell,
    lstm_options,
    sequences,
)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("time_major", [True, False], ids=["time_major", "batch_major"])
@pytest.mark.parametrize("weights", ["float", "hybrid"])
def test_sequence_lstm_matches_litert(variant, time_major, weights):
    shape, options = lstm_options(variant, time_major=time_major)
    cell = lstm_cell(weights != "float", **shape)
    steps = (TIME, BATCH) if time_major else (BATCH, TIME)
    cell.input(0, *steps, INPUT)
    model = cell.model(Op.UNIDIRECTIONAL_SEQUENCE_LSTM, 24, options)
    check(model, sequences((*steps, INPUT)), loose=weights != "float")


WIDE = {"cells": 150, "inputs": 70}
"""More cells than a vector has, and more of everything than a work-item of a group takes."""


def float_sequences() -> tuple[list[bytes], list[list[list[np.ndarray]]]]:
    """Return models of one operator, and what is fed to each in several runs."""
    models, fed = [], []
    wide = [VARIANTS[name] | WIDE for name in ("full", "everything", "cifg_everything")]
    for variant, time_major in product([*VARIANTS.values(), *wide], (True, False)):
        shape, options = lstm_options(variant, time_major=time_major)
        cell = lstm_cell(False, **shape)
        form = (*((TIME, BATCH) if time_major else (BATCH, TIME)), shape.get("inputs", INPUT))
        cell.input(0, *form)
        models.append(cell.model(Op.UNIDIRECTIONAL_SEQUENCE_LSTM, 24, options))
        fed.append(sequences(form))
    return models, fed


def test_float_sequences_on_the_gpu_match_litert(gpu):
    check_on_gpu(*float_sequences(), gpu)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("hybrid", "tensor 0 't0' is int8, where LSTM takes float32"),
        ("no variable", "the state in input 18 is no variable"),
        ("sign", "the activation SIGN_BIT has no kernel"),
    ],
)
def test_cells_that_the_gpu_has_no_kernel_for_stay_on_the_cpu_path(change, reason, gpu):
    cell = lstm_cell(change == "hybrid")
    cell.input(0, BATCH, INPUT)
    if change == "no variable":
        cell.input(18, BATCH, CELLS)
    activation = Activation.SIGN_BIT if change == "sign" else Activation.TANH
    model = read_model(cell.model(Op.LSTM, 20, lstm_options({"activation": activation})[1]))
    graph = model.subgraphs[0]
    dtypes = {t.index: np.dtype(t.type.name.lower()) for t in graph.tensors}
    constants = {
        t.index: np.frombuffer(t.data, dtypes[t.index]).reshape(t.shape)
        for t in graph.tensors
        if t.is_constant
    }
    shapes = {t.index: t.shape for t in graph.tensors}
    found = gpu.delegate.supports(GraphFacts(graph, shapes, dtypes, constants), graph.operators[0])
    assert found is not None
    assert found.reason == reason


@pytest.mark.parametrize("auxiliary", ["none", "joined", "apart"])
@pytest.mark.parametrize("merge", [True, False], ids=["merged", "two_outputs"])
@pytest.mark.parametrize("weights", ["float", "hybrid"])
def test_bidirectional_lstm_matches_litert(auxiliary, merge, weights):
    cell = Cell(weights != "float")
    for first, state, aux in ((1, 35, 40), (18, 37, 44)):
        fill_gates(cell, first, first + 4, first + 11, CELLS, False)
        cell.state(state, BATCH, CELLS)
        cell.state(state + 1, BATCH, CELLS)
        if auxiliary == "joined":
            for gate in range(4):
                cell.matrix(aux + gate, CELLS, INPUT)
    cell.input(0, TIME, BATCH, INPUT)
    shapes = [(TIME, BATCH, INPUT)]
    if auxiliary != "none":
        cell.input(39, TIME, BATCH, INPUT)
        shapes *= 2
    options = {"fused_activation_function": Activation.TANH, "merge_outputs": merge, "time_major": True}
    model = cell.model(Op.BIDIRECTIONAL_SEQUENCE_LSTM, 48, options, 1 if merge else 2)
    check(model, sequences(*shapes), loose=weights != "float")


def _refused_lstm(slot: int, change: str) -> bytes:
    """Build an LSTM with everything but projection, one of whose operands has another form."""
    cell = lstm_cell(False, peephole=True, norm=True)
    cell.input(0, BATCH, INPUT)
    if change == "gone":
        del cell.slots[slot]
    elif change == "state":
        cell.state(slot, BATCH, CELLS + 1)
    else:
        cell.matrix(slot, *(int(n) for n in change.split("x")))
    return cell.model(Op.LSTM, 24, lstm_options({})[1])


@pytest.mark.parametrize(
    ("slot", "change", "text"),
    [
        (4, "6", "weights of [6] and [6, 6] for the output gate"),
        (2, "6x4", "weights of [(6, 4), (6, 5)] for 6 units and 5 inputs"),
        (8, "6x3", "state 18 has shape [2, 6], [2, 3] is needed"),
        (9, "gone", "inputs [9, 10, 11] must be given together"),
        (11, "5", "input 11 has shape [5], [6] is needed"),
        (13, "7", "input 13 has shape [7], [6] is needed"),
        (19, "state", "state 19 has shape [2, 7], [2, 6] is needed"),
        (22, "gone", "inputs [20, 21, 22, 23] must be given together"),
        (16, "3x5", "for 6 units and 6 inputs"),
    ],
)
def test_cells_whose_operands_do_not_fit_are_refused(slot, change, text):
    with pytest.raises(ShapeError, match=re.escape(f"operator 0 LSTM: {text}" if slot != 16 else text)):
        Interpreter(model_content=_refused_lstm(slot, change)).allocate_tensors()
