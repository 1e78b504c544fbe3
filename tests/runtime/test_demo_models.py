"""Every model of the demo on our CPU path, against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from tests.oracle import run_litert
from tests.runtime.demo_models import ENTRIES, demo_model


def inputs(interpreter: Interpreter) -> list[np.ndarray]:
    """Seeded: normal for float, all levels for int8."""
    rng = np.random.default_rng(20)
    values = []
    for details in interpreter.get_input_details():
        if details["dtype"] == np.float32:
            values.append(rng.standard_normal(details["shape"]).astype(np.float32))
        else:
            values.append(rng.integers(-128, 128, details["shape"]).astype(details["dtype"]))
    return values


@pytest.mark.parametrize("name", ENTRIES)
def test_demo_model_agrees_with_the_reference(name):
    data = demo_model(name)
    interpreter = Interpreter(model_content=data)
    interpreter.allocate_tensors()
    values = inputs(interpreter)
    for details, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(details["index"], value)
    for _ in range(2):
        interpreter.invoke()
    expected = run_litert(data, values)
    found = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
    assert len(found) == len(expected)
    for y, r in zip(found, expected, strict=True):
        assert (y.shape, y.dtype) == (r.shape, r.dtype)
        if r.dtype == np.int8:
            np.testing.assert_array_equal(y, r)
        else:
            difference = np.linalg.norm(y.astype(np.float64) - r)
            assert difference <= 1e-5 * np.linalg.norm(r) + 1e-6 * np.sqrt(r.size)
