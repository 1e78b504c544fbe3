"""RNN, its sequences and both directions, against LiteRT, over several runs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from runtime.model.schema import ActivationFunctionType as Activation
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.recurrent.cells import Cell
from tests.runtime.ops.recurrent.runs import (
    BATCH,
    CELLS,
    INPUT,
    TIME,
    check,
    check_on_gpu,
    rnn_cell,
    sequences,
)

ACTIVATIONS = [Activation.TANH, Activation.RELU, Activation.NONE]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: a.name)
@pytest.mark.parametrize("weights", ["float", "hybrid", "hybrid_asymmetric"])
@pytest.mark.parametrize("form", ["step", "time_major", "batch_major"])
def test_rnn_matches_litert(activation, weights, form):
    cell = rnn_cell(weights != "float")
    steps = {"step": (BATCH,), "time_major": (TIME, BATCH), "batch_major": (BATCH, TIME)}[form]
    cell.input(0, *steps, INPUT)
    options = {
        "fused_activation_function": activation,
        "asymmetric_quantize_inputs": weights.endswith("asymmetric"),
    }
    if form != "step":
        options["time_major"] = form == "time_major"
    opcode = Op.RNN if form == "step" else Op.UNIDIRECTIONAL_SEQUENCE_RNN
    check(cell.model(opcode, 5, options), sequences((*steps, INPUT)), loose=weights != "float")


def float_rnns() -> tuple[list[bytes], list[list[list[np.ndarray]]]]:
    """Return models of one operator, and what is fed to each in several runs."""
    models, fed = [], []
    forms = {"step": (BATCH,), "time_major": (TIME, BATCH), "batch_major": (BATCH, TIME)}
    sizes = ({}, {"cells": 20, "inputs": 90})
    for (form, steps), activation, size in product(forms.items(), ACTIVATIONS, sizes):
        if size and activation is not Activation.TANH:
            continue
        cell, shape = rnn_cell(False, **size), (*steps, size.get("inputs", INPUT))
        cell.input(0, *shape)
        opcode = Op.RNN if form == "step" else Op.UNIDIRECTIONAL_SEQUENCE_RNN
        options = {"fused_activation_function": activation}
        if form != "step":
            options["time_major"] = form == "time_major"
        models.append(cell.model(opcode, 5, options))
        fed.append(sequences(shape))
    return models, fed


def test_float_rnns_on_the_gpu_match_litert(gpu):
    check_on_gpu(*float_rnns(), gpu)


# LiteRT's hybrid form ends with a segmentation fault where time comes first and outputs are merged.
TWO_WAY_RNNS = [
    (weights, merge, time_major)
    for weights in ("float", "hybrid")
    for merge in (True, False)
    for time_major in (True, False)
    if not (weights == "hybrid" and merge and time_major)
]


@pytest.mark.parametrize("auxiliary", ["none", "joined", "apart"])
@pytest.mark.parametrize(("weights", "merge", "time_major"), TWO_WAY_RNNS)
def test_bidirectional_rnn_matches_litert(auxiliary, merge, weights, time_major):
    cell = Cell(weights != "float")
    for first, state, aux in ((1, 4, 10), (5, 8, 11)):
        cell.matrix(first, CELLS, INPUT)
        cell.matrix(first + 1, CELLS, CELLS)
        cell.vector(first + 2, CELLS)
        cell.state(state, BATCH, CELLS)
        if auxiliary == "joined":
            cell.matrix(aux, CELLS, INPUT)
    steps = (TIME, BATCH) if time_major else (BATCH, TIME)
    shapes = [(*steps, INPUT)]
    cell.input(0, *steps, INPUT)
    if auxiliary != "none":
        cell.input(9, *steps, INPUT)
        shapes *= 2
    options = {"fused_activation_function": Activation.TANH, "merge_outputs": merge, "time_major": time_major}
    model = cell.model(Op.BIDIRECTIONAL_SEQUENCE_RNN, 12, options, 1 if merge else 2)
    check(model, sequences(*shapes), loose=weights != "float")
