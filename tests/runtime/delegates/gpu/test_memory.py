"""A delegate keeps nothing of models that are closed, dropped, or planned again for other shapes."""

import gc
from pathlib import Path

import numpy as np
import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder

WIDTH = 768
"""Columns and depth of the product: 2.25 MiB of weights, so that ten graphs that stay are seen at once."""

LIMIT = 8 << 20
"""Bytes by which a process may grow over any number of cycles: what a driver keeps of a few programs."""

WARM = 6
"""Cycles before the first measurement, in which allocators and drivers take what they keep."""


def dense() -> bytes:
    b = Builder()
    x, y, z = b.input(np.float32, (2, WIDTH)), b.tensor(np.float32), b.tensor(np.float32)
    weights = np.eye(WIDTH, dtype=np.float32)
    b.operator(Op.FULLY_CONNECTED, [x, b.constant(weights), -1], [y])
    b.operator(Op.SOFTMAX, [y], [z], {"beta": 1.0})
    return b.write([z])


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def resizes(delegate, model):
    interpreter = Interpreter(model_content=model, experimental_delegates=[delegate])
    step = 0
    while True:
        interpreter.resize_tensor_input(0, (2 + step % 3, WIDTH))
        interpreter.allocate_tensors()
        interpreter.invoke()
        step += 1
        yield


def created_and_closed(delegate, model):
    while True:
        interpreter = Interpreter(model_content=model, experimental_delegates=[delegate])
        interpreter.allocate_tensors()
        interpreter.invoke()
        interpreter.close()
        yield


def dropped(delegate, model):
    while True:
        Interpreter(model_content=model, experimental_delegates=[delegate]).allocate_tensors()
        yield


def growth(cycles, count):
    for _ in range(WARM):
        next(cycles)
    before = resident_bytes()
    for _ in range(count):
        next(cycles)
    return resident_bytes() - before


def delegate_of(tmp_path):
    return load_delegate("gpu", {"tuning": "none", "persistent": "off", "cache_dir": str(tmp_path)})


@pytest.mark.parametrize(("cycles", "count"), [(resizes, 8), (created_and_closed, 20), (dropped, 20)])
def test_a_few_cycles_leave_nothing_behind(cycles, count, tmp_path):
    assert growth(cycles(delegate_of(tmp_path), dense()), count) <= LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(("cycles", "count"), [(resizes, 500), (created_and_closed, 200)])
def test_many_cycles_leave_nothing_behind(cycles, count, tmp_path):
    assert growth(cycles(delegate_of(tmp_path), dense()), count) <= LIMIT
