"""One step of an LSTM in float and hybrid arithmetic, in all its forms, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.recurrent.runs import (
    BATCH,
    INPUT,
    VARIANTS,
    check,
    lstm_cell,
    lstm_options,
    run_several,
    sequences,
)


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("weights", ["float", "hybrid", "hybrid_asymmetric"])
def test_lstm_matches_litert(variant, weights):
    shape, options = lstm_options(variant, asymmetric_quantize_inputs=weights.endswith("asymmetric"))
    cell = lstm_cell(weights != "float", **shape)
    cell.input(0, BATCH, INPUT)
    model = cell.model(Op.LSTM, 24 if shape.get("norm") else 20, options)
    check(model, sequences((BATCH, INPUT)), loose=weights != "float")


def test_reset_all_variables_starts_a_sequence_anew():
    cell = lstm_cell(hybrid=False)
    cell.input(0, BATCH, INPUT)
    interpreter = Interpreter(model_content=cell.model(Op.LSTM, 20, lstm_options({})[1]))
    fed = sequences((BATCH, INPUT))[:1]
    (first,), (second,) = run_several(interpreter, fed), run_several(interpreter, fed)
    interpreter.reset_all_variables()
    (again,) = run_several(interpreter, fed)
    assert not np.array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[0], again[0])
