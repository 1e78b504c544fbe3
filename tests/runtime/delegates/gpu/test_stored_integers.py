"""Operators on stored integers among simulated ones: what lies between is converted, and nothing is lost."""

from __future__ import annotations

import numpy as np

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.model.schema import ActivationFunctionType as Activation
from runtime.model.schema import BuiltinOperator as Op
from tests.oracle import run_litert
from tests.runtime.models import Builder, per_tensor
from tests.runtime.ops.cases import compare_levels

WIDE = per_tensor(0.05, 3)


def mixed() -> bytes:
    """Build a graph in which operators of both kinds read an input, a sum, and what an SVDF makes of it."""
    b, rng = Builder(), np.random.default_rng(6)
    x, z = (b.input(np.int8, (1, 8), WIDE) for _ in range(2))
    total = b.tensor(np.int8, (1, 8), WIDE)
    b.operator(Op.ADD, [x, z], [total], {"fused_activation_function": Activation.NONE})
    feature = b.constant(rng.integers(-127, 128, (8, 8)).astype(np.int8), per_tensor(0.01))
    time = b.constant(rng.integers(-8000, 8001, (8, 4)).astype(np.int16), per_tensor(1 / 32768))
    filtered = []
    for source in (total, x):
        state = b.tensor(np.int16, (1, 32), per_tensor(1e-3), is_variable=True)
        filtered.append(b.tensor(np.int8, (1, 8), WIDE))
        options = {"rank": 1, "fused_activation_function": Activation.RELU}
        b.operator(Op.SVDF, [source, feature, time, -1, state], [filtered[-1]], options, 3)
    joined = b.tensor(np.int8, (1, 8), WIDE)
    words, real = b.tensor(np.int32, (1, 8)), b.tensor(np.float32, (1, 8))
    b.operator(Op.MUL, [filtered[0], total], [joined], {"fused_activation_function": Activation.NONE})
    b.operator(Op.CAST, [joined], [words])
    b.operator(Op.CAST, [filtered[1]], [real])
    return b.write([filtered[0], joined, words, real])


def test_a_mixed_graph_is_taken_whole_and_agrees(folder):
    rng = np.random.default_rng(1)
    feed = [rng.integers(-128, 128, (1, 8)).astype(np.int8) for _ in range(2)]
    delegate = load_delegate("gpu", {"precision": "fp32", "tuning": "none", "cache_dir": folder})
    interpreter = Interpreter(model_content=mixed(), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert not interpreter.delegation.fallbacks, str(interpreter.delegation)
    for details, value in zip(interpreter.get_input_details(), feed, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    found = [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
    for ours, theirs in zip(found, run_litert(mixed(), tuple(feed)), strict=True):
        assert ours.dtype == theirs.dtype
        compare_levels(ours, theirs)


def test_a_softmax_of_integers_stays_in_front_of_another_type(folder):
    """Its table of exponentials is none of levels, which QUANTIZE could be joined to: uint8 classifiers."""
    b = Builder()
    x, soft = (
        b.input(np.int8, (2, 10), per_tensor(0.3, 5)),
        b.tensor(np.int8, (2, 10), per_tensor(1 / 256, -128)),
    )
    y = b.tensor(np.uint8, (2, 10), per_tensor(1 / 256, 0))
    b.operator(Op.SOFTMAX, [x], [soft], {"beta": 1.0}, 2)
    b.operator(Op.QUANTIZE, [soft], [y])
    feed = np.random.default_rng(3).integers(-128, 128, (2, 10)).astype(np.int8)
    delegate = load_delegate("gpu", {"precision": "int8", "tuning": "none", "cache_dir": folder})
    interpreter = Interpreter(model_content=b.write([y]), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert not interpreter.delegation.fallbacks, str(interpreter.delegation)
    interpreter.set_tensor(x, feed)
    interpreter.invoke()
    np.testing.assert_array_equal(interpreter.get_tensor(y), run_litert(b.write([y]), (feed,))[0])
