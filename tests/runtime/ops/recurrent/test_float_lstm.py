"""One step of an LSTM in float and hybrid arithmetic, in all its forms, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.ops.cases import compare
from tests.runtime.ops.recurrent.runs import (
    BATCH,
    INPUT,
    VARIANTS,
    check,
    check_on_gpu,
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


def steps_model(variant) -> bytes:
    shape, options = lstm_options(variant)
    cell = lstm_cell(False, **shape)
    cell.input(0, BATCH, INPUT)
    return cell.model(Op.LSTM, 24 if shape.get("norm") else 20, options)


def test_float_steps_on_the_gpu_match_litert(gpu):
    models = [steps_model(variant) for variant in VARIANTS.values()]
    check_on_gpu(models, [sequences((BATCH, INPUT))] * len(models), gpu)


def test_states_that_the_gpu_updates_are_read_written_and_reset_as_on_the_cpu_path(gpu):
    model, fed = steps_model({"projection": True}), sequences((BATCH, INPUT))
    states = [t.index for t in read_model(model).subgraphs[0].tensors if t.is_variable]
    found = []
    for delegates in ([], [gpu.delegate]):
        interpreter = Interpreter(model_content=model, experimental_delegates=delegates)
        results = run_several(interpreter, fed)
        results += [[interpreter.get_tensor(i) for i in states]]
        interpreter.set_tensor(states[0], interpreter.get_tensor(states[0]) + 1)
        results += run_several(interpreter, fed)
        interpreter.reset_all_variables()
        results += run_several(interpreter, fed[:1])
        found.append(results)
    for on_cpu, on_gpu in zip(*found, strict=True):
        for y, r in zip(on_gpu, on_cpu, strict=True):
            compare(y, r)
    np.testing.assert_array_equal(found[1][0][0], found[1][-1][0])


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
