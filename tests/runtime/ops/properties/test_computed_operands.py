"""Earlier operators may compute what a file may hold as a constant: the rows' examples, run both ways.

Every numeric constant of an example becomes an input by turns, holds other values in a first run and its own
in a second one, which must give what the file with the constant gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.api.interpreter import Interpreter
from runtime.errors import FarmRuntimeError
from runtime.model.graph import Model
from runtime.model.reader import read_model
from runtime.model.schema import TensorType
from runtime.model.writer import write_model
from runtime.ops.support.registry import SPECS
from runtime.ops.support.value import constant_array
from tests.runtime.ops.properties.rows import Row, all_rows

NUMERIC = {TensorType[n] for n in ("FLOAT32", "FLOAT16", "INT8", "UINT8", "INT16", "INT32", "INT64")}
STATEFUL = {opcode for opcode, spec in SPECS.items() if spec.stateful}


def computed(model: Model) -> Iterator[tuple[bytes, np.ndarray]]:
    """Yield the model with one of its operator's constants as its last input, and the values that it had."""
    (subgraph,) = model.subgraphs
    for i in sorted({i for o in subgraph.operators for i in o.inputs if i >= 0}):
        tensor = subgraph.tensors[i]
        value = constant_array(tensor)
        if value is None or not value.size or tensor.type not in NUMERIC or tensor.sparsity is not None:
            continue
        tensors = tuple(replace(t, data=None) if t.index == i else t for t in subgraph.tensors)
        changed = replace(subgraph, tensors=tensors, inputs=(*subgraph.inputs, i))
        yield write_model(replace(model, subgraphs=(changed,))), value


def run_each(model: bytes, feeds: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
    """Return the outputs of the last run; the runs before may fail on values that the operator does not
    take.
    """
    interpreter = Interpreter(model_content=model)
    interpreter.allocate_tensors()
    for feed in feeds:
        for details, value in zip(interpreter.get_input_details(), feed, strict=True):
            interpreter.set_tensor(details["index"], value)
        with suppress(*([FarmRuntimeError] if feed is not feeds[-1] else [])):
            interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def check(row: Row, tensor_type: TensorType, data: st.DataObject) -> int:
    example = row.example(data.draw, tensor_type)
    model = read_model(example.model)
    if len(model.subgraphs) > 1 or STATEFUL & {o.opcode for o in model.subgraphs[0].operators}:
        return 0
    compared = 0
    for late, value in computed(model):
        expected = run_each(example.model, [example.inputs])
        other = np.roll(value.reshape(-1), 1).reshape(value.shape)
        found = run_each(late, [(*example.inputs, other), (*example.inputs, value)])
        for y, r in zip(found, expected, strict=True):
            assert y.shape == r.shape
            if r.dtype.kind in "fc":
                np.testing.assert_allclose(y, r, rtol=1e-4, atol=1e-4)
            else:
                np.testing.assert_array_equal(y, r)
        compared += 1
    return compared


@pytest.mark.parametrize("row", all_rows(), ids=str)
def test_computed_operands_give_what_constants_give(row):
    compared = 0

    @settings(
        max_examples=2,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        nonlocal compared
        for tensor_type in row.types:
            compared += check(row, tensor_type, data)

    run()
    if not compared:
        pytest.skip("no constants, several subgraphs, or an operator with a state")
