"""Integer LSTMs in all their forms, bit for bit as LiteRT, over several runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import per_tensor
from tests.runtime.ops.recurrent.cells import Cell
from tests.runtime.ops.recurrent.runs import (
    BATCH,
    CELLS,
    INPUT,
    OUTPUTS,
    RUNS,
    TIME,
    check,
    check_on_gpu,
    lstm_options,
)

INTEGER_VARIANTS = {
    "full": {},
    "cifg": {"cifg": True},
    "peephole": {"peephole": True},
    "projection": {"projection": True},
    "projection_clipped": {"projection": True, "proj_clip": 0.4, "cell_clip": 0.3},
    "layer_norm": {"norm": True},
    "peephole_layer_norm": {"peephole": True, "norm": True},
    "peephole_projection": {"peephole": True, "projection": True},
    "cifg_everything": {"cifg": True, "peephole": True, "norm": True, "cell_clip": 1.5},
}

WIDE = {"cells": 300, "inputs": 70}
"""More cells than a group has work-items."""


def integer_cell(
    steps, cifg=False, peephole=False, projection=False, norm=False, cells=CELLS, inputs=INPUT
) -> tuple[Cell, Any, list[int]]:
    """int8 but for an int16 cell of scale 2^-11: (cell, quantisation of the output, intermediates)."""
    cell = Cell(rng=np.random.default_rng(7))
    outputs = OUTPUTS if projection else cells
    for gate in range(int(cifg), 4):
        cell.levels(1 + gate, np.int8, 0.01, cells, inputs)
        cell.levels(5 + gate, np.int8, 0.008, cells, outputs)
        cell.levels(12 + gate, np.int32, 2e-4, cells, most=3000)
    if peephole:
        for slot in range(9 + int(cifg), 12):
            cell.levels(slot, np.int16, 3e-5, cells)
    if projection:
        cell.levels(16, np.int8, 0.01, OUTPUTS, cells)
        cell.levels(17, np.int32, 1e-4, OUTPUTS, most=2000)
    out = per_tensor(0.02 if projection else 1 / 128, 4 if projection else -3)
    cell.state(18, BATCH, outputs, dtype=np.int8, quantization=out)
    cell.state(19, BATCH, cells, dtype=np.int16, quantization=per_tensor(2.0**-11))
    if norm:
        for slot in range(20 + int(cifg), 24):
            cell.levels(slot, np.int16, 3e-5, cells)
    cell.input(0, *steps, inputs, dtype=np.int8, quantization=per_tensor(0.02, 9))
    scales = [0.003, 0.004, 0.005, 0.006]
    made = [cell.builder.tensor(np.int16, (), per_tensor(s)) for s in scales]
    hidden = per_tensor(1 / 128, -3)
    return cell, out, [*made, cell.builder.tensor(np.int8, (), hidden)]


FORMS = {"step": (BATCH,), "time_major": (TIME, BATCH), "batch_major": (BATCH, TIME)}


def model(variant: dict[str, Any], form: str) -> tuple[bytes, list[list[np.ndarray]]]:
    """Return a model of one operator, and what is fed to it in several runs."""
    shape, options = lstm_options(variant)
    steps = FORMS[form]
    if form != "step":
        options["time_major"] = form == "time_major"
    cell, out, intermediates = integer_cell(steps, **shape)
    y = cell.builder.tensor(np.int8, (), out)
    opcode = Op.LSTM if form == "step" else Op.UNIDIRECTIONAL_SEQUENCE_LSTM
    file = cell.finish(opcode, 24, [y], options, 2, intermediates)
    size = (*steps, shape.get("inputs", INPUT))
    return file, [[cell.rng.integers(-128, 128, size).astype(np.int8)] for _ in range(RUNS)]


@pytest.mark.parametrize("variant", INTEGER_VARIANTS.values(), ids=INTEGER_VARIANTS)
@pytest.mark.parametrize("form", FORMS)
def test_integer_lstm_equals_litert(variant, form):
    check(*model(variant, form))


@pytest.mark.parametrize("form", FORMS)
def test_integer_lstms_on_the_gpu_equal_litert(form, gpu):
    wide = [INTEGER_VARIANTS[name] | WIDE for name in ("peephole_projection", "cifg_everything")]
    made = [model(variant, form) for variant in (*INTEGER_VARIANTS.values(), *wide)]
    check_on_gpu([file for file, _ in made], [fed for _, fed in made], gpu)
