"""`farm model skeleton`: what is stripped, what comes back, and that activations stay in range."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator
from runtime.tools.skeleton import calibrated, strip
from tests.runtime.models import Builder, per_tensor
from tests.services.forks import run


def network(layers: int = 12) -> bytes:
    """Matrix products, their large weights where the activations are zero: random weights explode."""
    b = Builder()
    value = b.input(np.float32, (1, 64))
    rng = np.random.default_rng(3)
    for _ in range(layers):
        weights = (rng.standard_normal((64, 64)) * 1e-4).astype(np.float32)
        bias = (rng.standard_normal(64) * 1e-4).astype(np.float32)
        weights[:32, :32] = np.linalg.qr(rng.standard_normal((32, 32)))[0]
        weights[:32, 32:] = rng.standard_normal((32, 32)) * 5
        out = b.tensor(np.float32, (1, 64))
        operands = [value, b.constant(weights), b.constant(bias)]
        b.operator(BuiltinOperator.FULLY_CONNECTED, operands, [out])
        value = out
    return b.write([value])


def output(data: bytes | bytearray) -> np.ndarray:
    interpreter = Interpreter(model_content=bytes(data))
    interpreter.allocate_tensors()
    (x,) = interpreter.get_input_details()
    values = np.random.default_rng(1).standard_normal(x["shape"]).astype(np.float32)
    interpreter.set_tensor(x["index"], values)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def test_the_restored_file_differs_in_weights_alone():
    data = network()
    stripped = strip(data)
    assert len(stripped.skeleton()) < len(data) / 10
    restored = stripped.restored()
    assert len(restored) == len(data)
    inside = np.zeros(len(data), bool)
    for hole in stripped.holes:
        inside[hole.offset : hole.offset + hole.size] = True
    before, after = np.frombuffer(data, np.uint8), np.frombuffer(restored, np.uint8)
    assert inside[before != after].all()
    assert (before != after).any()
    assert len(read_model(bytes(restored)).subgraphs[0].operators) == 12


def test_calibration_keeps_the_outputs_of_the_original_size():
    data = network()
    wanted = np.sqrt(np.mean(output(data) ** 2))
    plain = np.sqrt(np.mean(output(strip(data).restored()) ** 2))
    scaled = np.sqrt(np.mean(output(calibrated(strip(data)).restored()) ** 2))
    assert plain / wanted > 100
    assert 0.2 < scaled / wanted < 5


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32], ids=lambda t: t.__name__)
def test_scaled_integers_stay_within_their_type(dtype):
    most, rng = np.iinfo(dtype).max, np.random.default_rng(3)
    b = Builder()
    x, y = b.input(np.float32, (1, 64)), b.tensor(np.float32, (1, 64))
    weights = rng.integers(most // 4, most // 2, (64, 64)).astype(dtype)
    b.operator(BuiltinOperator.FULLY_CONNECTED, [x, b.constant(weights, per_tensor(0.1)), -1], [y])
    stripped = strip(b.write([y]))
    (hole,) = stripped.holes
    hole.scale(5.0)
    restored = np.frombuffer(stripped.restored(), dtype, hole.count, hole.offset)
    assert restored.min() > most // 4, "none has wrapped"
    assert restored.max() > most * 0.99


def test_the_largest_integers_of_32_bits_are_clipped_to_what_the_generator_can_write():
    extremes = np.iinfo(np.int32)
    b = Builder()
    x, y = b.input(np.float32, (1, 64)), b.tensor(np.float32, (1, 64))
    weights = np.random.default_rng(3).integers(extremes.min, extremes.max, (64, 64), np.int32)
    weights[0, :2] = extremes.min, extremes.max
    b.operator(BuiltinOperator.FULLY_CONNECTED, [x, b.constant(weights, per_tensor(0.1)), -1], [y])
    stripped = strip(b.write([y]))
    (hole,) = stripped.holes
    restored = np.frombuffer(stripped.restored(), np.int32, hole.count, hole.offset)
    # The float32 next to 2^31, which itself is beyond int32, is 128 less.
    assert (restored.min(), restored.max()) == (-(2**31 - 128), 2**31 - 128)


def test_indices_masks_and_special_values_are_kept():
    b = Builder()
    x = b.input(np.float32, (1, 512))
    mask = np.tile(np.array([0.0, 1.0], np.float32), 256)
    infinite = np.full(512, -np.inf, np.float32)
    lowest = np.random.default_rng(3).standard_normal(512).astype(np.float32)
    lowest[7] = np.finfo(np.float32).min
    for operator, values in (
        (BuiltinOperator.MUL, mask),
        (BuiltinOperator.MAXIMUM, infinite),
        (BuiltinOperator.ADD, lowest),
    ):
        y = b.tensor(np.float32, (1, 512))
        b.operator(operator, [x, b.constant(values)], [y])
        x = y
    data = b.write([x])
    assert strip(data).holes == []
    assert bytes(strip(data).restored()) == data


def farm(*arguments):
    return run("farm", "model", "skeleton", *arguments, cwd=Path.cwd(), env=os.environ)


def test_the_commands_strip_and_restore(tmp_path):
    model, skel, back = tmp_path / "a.tflite", tmp_path / "a.skel", tmp_path / "b.tflite"
    model.write_bytes(network())
    runs = [farm("strip", model, skel, "--calibrate"), farm("restore", skel, back)]
    assert [ran.returncode for ran in runs] == [0, 0], [ran.stderr for ran in runs]
    again = farm("restore", skel, model)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == f"error: {model} exists; --force replaces it\n"
    first, second = (line.rsplit(" ", 1)[1] for ran in runs for line in ran.stdout.splitlines())
    assert first == second
    assert back.stat().st_size == model.stat().st_size


def test_a_damaged_skeleton_ends_with_2_and_one_line(tmp_path):
    skel = tmp_path / "a.skel"
    skel.write_bytes(strip(network()).skeleton()[:200])
    ran = farm("restore", skel, tmp_path / "b")
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith(f"error: {skel}: ")
    assert not (tmp_path / "b").exists()
