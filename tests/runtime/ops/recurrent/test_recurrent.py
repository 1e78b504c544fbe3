"""Row 15: LSTM in all its forms, RNN and SVDF against LiteRT, over several runs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from runtime.errors import ShapeError, UnsupportedOperatorError
from runtime.interpreter import Interpreter
from runtime.model.schema import ActivationFunctionType as Activation
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import LSTMKernelType
from tests.oracle import call_in_litert
from tests.runtime.models import Builder, per_tensor
from tests.runtime.ops.cases import compare
from tests.runtime.ops.recurrent.cells import Cell

RUNS = 3
BATCH, TIME, INPUT, CELLS, OUTPUTS = 2, 4, 5, 6, 3


def run_several(interpreter, sequences):
    """Outputs of one invocation after another; states live on between them."""
    interpreter.allocate_tensors()
    found = []
    for values in sequences:
        for details, value in zip(interpreter.get_input_details(), values, strict=True):
            interpreter.set_tensor(details["index"], value)
        interpreter.invoke()
        found.append([interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()])
    return found


def run_in_litert(litert, model, sequences, resolver):
    interpreter = litert.Interpreter(
        model_content=model, experimental_op_resolver_type=litert.OpResolverType[resolver]
    )
    return run_several(interpreter, sequences)


def sequences(*shapes: tuple[int, ...]) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(99)
    return [[rng.normal(0, 1, s).astype(np.float32) for s in shapes] for _ in range(RUNS)]


def check(
    model: bytes, fed: list[list[np.ndarray]], resolver: str = "BUILTIN_REF", *, loose: bool = False
) -> None:
    expected = call_in_litert(
        "tests.runtime.ops.recurrent.test_recurrent:run_in_litert", model, fed, resolver
    )
    found = run_several(Interpreter(model_content=model), fed)
    for ours, theirs in zip(found, expected, strict=True):
        for y, r in zip(ours, theirs, strict=True):
            assert y.shape == r.shape
            assert y.dtype == r.dtype
            if loose:
                np.testing.assert_allclose(y, r, rtol=1e-3, atol=2e-4)
            else:
                compare(y, r)


def fill_gates(
    cell: Cell, first: int, recurrent: int, biases: int, outputs: int, cifg: bool, bias=True
) -> None:
    for gate in range(int(cifg), 4):
        cell.matrix(first + gate, CELLS, INPUT)
        cell.matrix(recurrent + gate, CELLS, outputs)
        if bias:
            cell.vector(biases + gate, CELLS)


VARIANTS = {
    "full": {},
    "cifg": {"cifg": True},
    "peephole": {"peephole": True},
    "cifg_peephole": {"cifg": True, "peephole": True},
    "projection": {"projection": True},
    "projection_clipped": {"projection": True, "proj_clip": 0.05, "cell_clip": 0.1},
    "layer_norm": {"norm": True},
    "everything": {"peephole": True, "projection": True, "norm": True, "cell_clip": 0.5},
    "cifg_everything": {"cifg": True, "peephole": True, "projection": True, "norm": True},
    "relu6": {"activation": Activation.RELU6},
}


def lstm_cell(hybrid: bool, cifg=False, peephole=False, projection=False, norm=False) -> Cell:
    cell = Cell(hybrid)
    outputs = OUTPUTS if projection else CELLS
    fill_gates(cell, 1, 5, 12, outputs, cifg)
    if peephole:
        for slot in range(9 + int(cifg), 12):
            cell.matrix(slot, CELLS)
    if projection:
        cell.matrix(16, OUTPUTS, CELLS)
        cell.vector(17, OUTPUTS)
    cell.state(18, BATCH, outputs)
    cell.state(19, BATCH, CELLS)
    if norm:
        for slot in range(20 + int(cifg), 24):
            cell.vector(slot, CELLS)
    return cell


def lstm_options(variant: dict[str, Any], **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    shape = dict(variant)
    options = {
        "fused_activation_function": shape.pop("activation", Activation.TANH),
        "cell_clip": shape.pop("cell_clip", 0.0),
        "proj_clip": shape.pop("proj_clip", 0.0),
        **more,
    }
    return shape, options


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("weights", ["float", "hybrid", "hybrid_asymmetric"])
def test_lstm_matches_litert(variant, weights):
    shape, options = lstm_options(variant, asymmetric_quantize_inputs=weights.endswith("asymmetric"))
    cell = lstm_cell(weights != "float", **shape)
    cell.input(0, BATCH, INPUT)
    model = cell.model(Op.LSTM, 24 if shape.get("norm") else 20, options)
    check(model, sequences((BATCH, INPUT)), loose=weights != "float")


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


def rnn_cell(hybrid: bool) -> Cell:
    cell = Cell(hybrid)
    cell.matrix(1, CELLS, INPUT)
    cell.matrix(2, CELLS, CELLS)
    cell.vector(3, CELLS)
    cell.state(4, BATCH, CELLS)
    return cell


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


def svdf_cell(hybrid: bool, rank: int, *, bias: bool) -> Cell:
    filters, memory = 2 * CELLS, 7
    cell = Cell(hybrid)
    cell.matrix(1, filters, INPUT)
    cell.matrix(2, filters, memory)
    if bias:
        cell.vector(3, filters // rank)
    cell.state(4, BATCH, filters * memory)
    return cell


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("weights", ["float", "hybrid", "hybrid_asymmetric"])
def test_svdf_matches_litert(bias, rank, weights):
    cell = svdf_cell(weights != "float", rank, bias=bias)
    cell.input(0, BATCH, INPUT)
    options = {
        "rank": rank,
        "fused_activation_function": Activation.RELU,
        "asymmetric_quantize_inputs": weights.endswith("asymmetric"),
    }
    check(cell.model(Op.SVDF, 5, options), sequences((BATCH, INPUT)), loose=weights != "float")


@pytest.mark.parametrize("rank", [1, 2])
def test_integer_svdf_equals_litert(rank):
    filters, memory = 2 * CELLS, 7
    rng, builder = np.random.default_rng(3), Builder()
    x = builder.input(np.int8, (BATCH, INPUT), per_tensor(0.02, 5))
    feature = builder.constant(rng.integers(-127, 128, (filters, INPUT)).astype(np.int8), per_tensor(0.01))
    time = builder.constant(
        rng.integers(-8000, 8001, (filters, memory)).astype(np.int16), per_tensor(1 / 32768)
    )
    bias = builder.constant(rng.integers(-20000, 20000, filters // rank).astype(np.int32), per_tensor(2e-8))
    state = builder.tensor(np.int16, (BATCH, filters * memory), per_tensor(1e-3), is_variable=True)
    y = builder.tensor(np.int8, (), per_tensor(0.05, -20))
    options = {"rank": rank, "fused_activation_function": Activation.RELU}
    builder.operator(Op.SVDF, [x, feature, time, bias, state], [y], options, 3)
    fed = [[rng.integers(-128, 128, (BATCH, INPUT)).astype(np.int8)] for _ in range(9)]
    check(builder.write([y]), fed)


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


def integer_cell(
    steps, cifg=False, peephole=False, projection=False, norm=False
) -> tuple[Cell, Any, list[int]]:
    """int8 but for an int16 cell of scale 2^-11: (cell, quantisation of the output, intermediates)."""
    cell = Cell(rng=np.random.default_rng(7))
    outputs = OUTPUTS if projection else CELLS
    for gate in range(int(cifg), 4):
        cell.levels(1 + gate, np.int8, 0.01, CELLS, INPUT)
        cell.levels(5 + gate, np.int8, 0.008, CELLS, outputs)
        cell.levels(12 + gate, np.int32, 2e-4, CELLS, most=3000)
    if peephole:
        for slot in range(9 + int(cifg), 12):
            cell.levels(slot, np.int16, 3e-5, CELLS)
    if projection:
        cell.levels(16, np.int8, 0.01, OUTPUTS, CELLS)
        cell.levels(17, np.int32, 1e-4, OUTPUTS, most=2000)
    out = per_tensor(0.02 if projection else 1 / 128, 4 if projection else -3)
    cell.state(18, BATCH, outputs, dtype=np.int8, quantization=out)
    cell.state(19, BATCH, CELLS, dtype=np.int16, quantization=per_tensor(2.0**-11))
    if norm:
        for slot in range(20 + int(cifg), 24):
            cell.levels(slot, np.int16, 3e-5, CELLS)
    cell.input(0, *steps, INPUT, dtype=np.int8, quantization=per_tensor(0.02, 9))
    scales = [0.003, 0.004, 0.005, 0.006]
    made = [cell.builder.tensor(np.int16, (), per_tensor(s)) for s in scales]
    hidden = per_tensor(1 / 128, -3)
    return cell, out, [*made, cell.builder.tensor(np.int8, (), hidden)]


@pytest.mark.parametrize("variant", INTEGER_VARIANTS.values(), ids=INTEGER_VARIANTS)
@pytest.mark.parametrize("form", ["step", "time_major", "batch_major"])
def test_integer_lstm_equals_litert(variant, form):
    shape, options = lstm_options(variant)
    steps = {"step": (BATCH,), "time_major": (TIME, BATCH), "batch_major": (BATCH, TIME)}[form]
    if form != "step":
        options["time_major"] = form == "time_major"
    cell, out, intermediates = integer_cell(steps, **shape)
    y = cell.builder.tensor(np.int8, (), out)
    opcode = Op.LSTM if form == "step" else Op.UNIDIRECTIONAL_SEQUENCE_LSTM
    model = cell.finish(opcode, 24, [y], options, 2, intermediates)
    fed = [[cell.rng.integers(-128, 128, (*steps, INPUT)).astype(np.int8)] for _ in range(RUNS)]
    check(model, fed)


BASIC = {"fused_activation_function": Activation.TANH, "kernel_type": LSTMKernelType.BASIC}


def test_basic_lstm_matches_litert():
    cell = Cell()
    cell.input(0, BATCH, INPUT)
    cell.state(1, BATCH, CELLS)
    cell.matrix(2, 4 * CELLS, INPUT + CELLS)
    cell.vector(3, 4 * CELLS)
    cell.state(4, BATCH, CELLS)
    check(cell.model(Op.LSTM, 5, BASIC, outputs=4), sequences((BATCH, INPUT)))


def test_basic_uint8_lstm_equals_litert():
    cell, q = Cell(rng=np.random.default_rng(11)), per_tensor(1 / 128, 128)
    state_scale, weight_scale = per_tensor(2.0**-11), 0.005
    weights = cell.rng.integers(0, 256, (4 * CELLS, INPUT + CELLS)).astype(np.uint8)
    bias = cell.rng.integers(-20000, 20000, 4 * CELLS).astype(np.int32)
    cell.input(0, BATCH, INPUT, dtype=np.uint8, quantization=q)
    cell.state(1, BATCH, CELLS, dtype=np.uint8, quantization=q)
    cell.slots[2] = cell.builder.constant(weights, per_tensor(weight_scale, 117))
    cell.slots[3] = cell.builder.constant(bias, per_tensor(weight_scale / 128))
    cell.state(4, BATCH, CELLS, dtype=np.int16, quantization=state_scale)
    outputs = [
        cell.builder.tensor(np.uint8, (), q),
        cell.builder.tensor(np.int16, (), state_scale),
        cell.builder.tensor(np.uint8, (), q),
        cell.builder.tensor(np.int16, (), per_tensor(2.0**-12)),
    ]
    model = cell.finish(Op.LSTM, 5, outputs, BASIC, 2)
    fed = [[cell.rng.integers(0, 256, (BATCH, INPUT)).astype(np.uint8)] for _ in range(RUNS)]
    check(model, fed)


# Slots of float operands, each with its shape, that earlier operators may compute.
GIVEN_AT_RUN_TIME = {
    "lstm": (Op.LSTM, {2: (CELLS, INPUT), 6: (CELLS, CELLS), 10: (CELLS,), 13: (CELLS,)}),
    "projected_lstm": (Op.LSTM, {7: (CELLS, OUTPUTS), 16: (OUTPUTS, CELLS), 17: (OUTPUTS,)}),
    "normalised_lstm": (Op.LSTM, {12: (CELLS,), 22: (CELLS,)}),
    "rnn": (Op.RNN, {1: (CELLS, INPUT), 2: (CELLS, CELLS), 3: (CELLS,)}),
    "svdf": (Op.SVDF, {1: (2 * CELLS, INPUT), 2: (2 * CELLS, 7), 3: (CELLS,)}),
}


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


def _refused_lstm(slot: int, change: str) -> bytes:
    """An LSTM with everything but projection, one of whose operands has another form."""
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


@pytest.mark.parametrize(
    ("count", "cell_scale", "text"),
    [
        (12, 2.0**-11, "12 intermediates; integer cells here have 5"),
        (5, 0.001, "a cell of scale 0.001"),
        (5, 2.0**-16, "a power of two from 2^-15 to 2^-9 is needed"),
    ],
)
def test_integer_cells_of_other_forms_are_refused(count, cell_scale, text):
    cell, out, intermediates = integer_cell((BATCH,))
    cell.state(19, BATCH, CELLS, dtype=np.int16, quantization=per_tensor(cell_scale))
    y = cell.builder.tensor(np.int8, (), out)
    made = [*intermediates, *intermediates, *intermediates][:count]
    model = cell.finish(Op.LSTM, 24, [y], lstm_options({})[1], 2, made)
    with pytest.raises(UnsupportedOperatorError, match=re.escape(text)):
        Interpreter(model_content=model).allocate_tensors()


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
