"""Recurrent operators over several runs, against LiteRT: the runs, and the cells that tests share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.api.interpreter import Interpreter
from runtime.model.schema import ActivationFunctionType as Activation
from tests.oracle import call_in_litert
from tests.runtime.ops.cases import Backend, compare
from tests.runtime.ops.families import together
from tests.runtime.ops.recurrent.cells import Cell

RUNS = 3
BATCH, TIME, INPUT, CELLS, OUTPUTS = 2, 4, 5, 6, 3


def run_several(interpreter, sequences):
    """Return the outputs of one invocation after another; states live on between them."""
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
    expected = call_in_litert("tests.runtime.ops.recurrent.runs:run_in_litert", model, fed, resolver)
    found = run_several(Interpreter(model_content=model), fed)
    for ours, theirs in zip(found, expected, strict=True):
        for y, r in zip(ours, theirs, strict=True):
            assert y.shape == r.shape
            assert y.dtype == r.dtype
            if loose:
                np.testing.assert_allclose(y, r, rtol=1e-3, atol=2e-4)
            else:
                compare(y, r)


def check_on_gpu(models: Sequence[bytes], fed: Sequence[list[list[np.ndarray]]], gpu: Backend) -> None:
    """Several models as one, which the delegate takes whole: a driver is slow to compile each by itself."""
    model, _ = together(models)
    runs = [[array for one in fed for array in one[run]] for run in range(len(fed[0]))]
    expected = call_in_litert("tests.runtime.ops.recurrent.runs:run_in_litert", model, runs, "BUILTIN_REF")
    interpreter = Interpreter(model_content=model, experimental_delegates=[gpu.delegate])
    found = run_several(interpreter, runs)
    assert interpreter.delegation is not None
    assert not interpreter.delegation.fallbacks, str(interpreter.delegation)
    for ours, theirs in zip(found, expected, strict=True):
        for y, r in zip(ours, theirs, strict=True):
            assert (y.shape, y.dtype) == (r.shape, r.dtype)
            compare(y, r)


def fill_gates(
    cell: Cell, first: int, recurrent: int, biases: int, outputs: int, cifg: bool, cells=CELLS, inputs=INPUT
) -> None:
    for gate in range(int(cifg), 4):
        cell.matrix(first + gate, cells, inputs)
        cell.matrix(recurrent + gate, cells, outputs)
        cell.vector(biases + gate, cells)


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


def lstm_cell(
    hybrid: bool, cifg=False, peephole=False, projection=False, norm=False, cells=CELLS, inputs=INPUT
) -> Cell:
    cell = Cell(hybrid)
    outputs = OUTPUTS if projection else cells
    fill_gates(cell, 1, 5, 12, outputs, cifg, cells, inputs)
    if peephole:
        for slot in range(9 + int(cifg), 12):
            cell.matrix(slot, cells)
    if projection:
        cell.matrix(16, OUTPUTS, cells)
        cell.vector(17, OUTPUTS)
    cell.state(18, BATCH, outputs)
    cell.state(19, BATCH, cells)
    if norm:
        for slot in range(20 + int(cifg), 24):
            cell.vector(slot, cells)
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


def rnn_cell(hybrid: bool, cells=CELLS, inputs=INPUT) -> Cell:
    cell = Cell(hybrid)
    cell.matrix(1, cells, inputs)
    cell.matrix(2, cells, cells)
    cell.vector(3, cells)
    cell.state(4, BATCH, cells)
    return cell


def svdf_cell(hybrid: bool, rank: int, *, bias: bool, inputs=INPUT, memory=7) -> Cell:
    filters = 2 * CELLS
    cell = Cell(hybrid)
    cell.matrix(1, filters, inputs)
    cell.matrix(2, filters, memory)
    if bias:
        cell.vector(3, filters // rank)
    cell.state(4, BATCH, filters * memory)
    return cell
