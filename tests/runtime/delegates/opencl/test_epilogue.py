"""Every step of the table, and every way to read an operand, against numpy on the device."""

import math

import numpy as np
import pytest

from runtime.delegates.opencl.epilogue import EXPRESSIONS, can_broadcast, join, literal
from runtime.delegates.opencl.graph import Graph, Layout, Node, Step, Value
from runtime.delegates.opencl.lowering.elementwise import lower
from runtime.delegates.opencl.lowering.spec import Context
from runtime.delegates.opencl.program import ProgramCache, assemble, build_program
from runtime.delegates.opencl.recording import Recording, Stage
from runtime.model.schema import BuiltinOperator

_ERF = np.vectorize(math.erf)
_REFERENCE = {
    "LOAD": lambda v, w, a, b: w,
    "RELU": lambda v, w, a, b: np.maximum(v, 0),
    "RELU6": lambda v, w, a, b: np.clip(v, 0, 6),
    "RELU_N1_TO_1": lambda v, w, a, b: np.clip(v, -1, 1),
    "RELU_0_TO_1": lambda v, w, a, b: np.clip(v, 0, 1),
    "TANH": lambda v, w, a, b: np.tanh(v),
    "LOGISTIC": lambda v, w, a, b: 1 / (1 + np.exp(-v)),
    "SWISH": lambda v, w, a, b: v / (1 + np.exp(-v)),
    "HARD_SWISH": lambda v, w, a, b: v * np.clip(v + 3, 0, 6) / 6,
    "GELU": lambda v, w, a, b: 0.5 * v * (1 + _ERF(v / np.sqrt(2))),
    "GELU_APPROXIMATE": lambda v, w, a, b: (
        0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))
    ),
    "ELU": lambda v, w, a, b: np.where(v < 0, np.expm1(v), v),
    "LEAKY_RELU": lambda v, w, a, b: np.where(v < 0, a * v, v),
    "PRELU": lambda v, w, a, b: np.where(v < 0, w * v, v),
    "ADD": lambda v, w, a, b: v + w,
    "SUB": lambda v, w, a, b: v - w,
    "REVERSE_SUB": lambda v, w, a, b: w - v,
    "MUL": lambda v, w, a, b: v * w,
    "DIV": lambda v, w, a, b: v / w,
    "REVERSE_DIV": lambda v, w, a, b: w / v,
    "MAXIMUM": lambda v, w, a, b: np.maximum(v, w),
    "MINIMUM": lambda v, w, a, b: np.minimum(v, w),
    "SQUARED_DIFFERENCE": lambda v, w, a, b: (v - w) ** 2,
    "ADD_SCALAR": lambda v, w, a, b: v + a,
    "MUL_SCALAR": lambda v, w, a, b: v * a,
    "CLAMP": lambda v, w, a, b: np.clip(v, a, b),
    "ABS": lambda v, w, a, b: np.abs(v),
    "NEG": lambda v, w, a, b: -v,
    "SQUARE": lambda v, w, a, b: v * v,
    "SQRT": lambda v, w, a, b: np.sqrt(np.maximum(v, 0)),
    "RSQRT": lambda v, w, a, b: 1 / np.sqrt(np.abs(v)),
    "EXP": lambda v, w, a, b: np.exp(v),
    "LOG": lambda v, w, a, b: np.log(np.abs(v)),
    "SIN": lambda v, w, a, b: np.sin(v),
    "COS": lambda v, w, a, b: np.cos(v),
    "FLOOR": lambda v, w, a, b: np.floor(v),
    "CEIL": lambda v, w, a, b: np.ceil(v),
    "ROUND": lambda v, w, a, b: np.rint(v),
    "SIGN": lambda v, w, a, b: np.sign(v),
}
_POSITIVE = {"RSQRT", "LOG"}


def run_steps(opened, steps, shape, operands):
    """Run LOAD x and `steps` over [*shape]; `operands` maps value ids (0 is x) to arrays."""
    values = {key: Value(key, array.shape) for key, array in operands.items()}
    out = max(values) + 1
    values[out] = Value(out, shape)
    layouts = {key: Layout(key, 0, -(-value.channels // 16) * 16) for key, value in values.items()}
    node = Node(0, BuiltinOperator.ADD, (), (out,), epilogue=(Step("LOAD", (0,)), *steps))
    graph = Graph(values, (node,), tuple(operands), (out,), layouts)
    (candidate,) = lower(node, Context(graph, opened.capabilities))
    source = assemble(candidate.launches, opened.capabilities)
    program = build_program(opened.context, opened.capabilities, source.text, ProgramCache(None))
    recording = Recording(opened, graph, [Stage(0, candidate)], source, program)
    for key, array in operands.items():
        rows = array.reshape(values[key].pixels, values[key].channels)
        recording.write(key, np.pad(rows, ((0, 0), (0, layouts[key].pixel_stride - rows.shape[1]))))
    recording.run([recording.entry(0)])
    padded = np.empty((values[out].pixels, layouts[out].pixel_stride), np.float32)
    recording.read(out, padded)
    recording.close()
    assert np.isfinite(padded).all(), "padded lanes must stay finite"
    return padded[:, : values[out].channels].reshape(shape)


def test_the_table_has_a_reference_for_every_step():
    assert set(_REFERENCE) == set(EXPRESSIONS)


@pytest.mark.parametrize("op", sorted(EXPRESSIONS))
def test_step_matches_numpy(op, opened):
    generator = np.random.default_rng(1)
    x = generator.uniform(-9, 9, (3, 5, 21)).astype(np.float32)
    w = generator.uniform(0.5, 2, x.shape).astype(np.float32)
    x = np.abs(x) + np.float32(0.1) if op in _POSITIVE else x
    needs_operand = "{0}" in EXPRESSIONS[op]
    step = Step(op, (1,) if needs_operand else (), (0.25, 1.5) if "{a}" in EXPRESSIONS[op] else ())
    found = run_steps(opened, [step], x.shape, {0: x, 1: w} if needs_operand else {0: x})
    wide = [array.astype(np.float64) for array in (x, w)]
    expected = _REFERENCE[op](*wide, 0.25, 1.5)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(
    "shape",
    [
        (2, 3, 5, 19),
        (),
        (1,),
        (19,),
        (1, 1, 1, 19),
        (2, 3, 5, 1),
        (3, 1, 1),
        (5, 19),
        (2, 1, 5, 1),
        (2, 1, 1, 19),
    ],
)
def test_operand_is_broadcast_as_numpy_does(shape, opened):
    generator = np.random.default_rng(2)
    x = generator.standard_normal((2, 3, 5, 19)).astype(np.float32)
    w = generator.standard_normal(shape).astype(np.float32)
    found = run_steps(opened, [Step("MUL", (1,))], x.shape, {0: x, 1: w})
    np.testing.assert_array_equal(found, x * w)


def test_steps_nest_in_order():
    steps = [Step("ADD", (7,)), Step("RELU"), Step("MUL_SCALAR", (), (0.5,))]
    assert join(steps, ["OPERAND"], 16) == "(relu16(((v) + OPERAND(0, p, c))) * 0.5f)"


def test_steps_that_make_infinities_of_zeros_are_masked_behind_the_last_channel():
    assert join([Step("RSQRT")], [], 16).startswith("(1.0f")
    assert join([Step("RSQRT")], [], 17) == "mask16((1.0f / sqrt((v))), c, 17)"


@pytest.mark.parametrize("value", [0.1, -3.5, 1e-30, 3.4e38, float("inf"), -float("inf"), 6.0])
def test_literals_keep_every_bit(value):
    text = literal(value)
    if math.isinf(value):
        assert text.strip("()") == ("INFINITY" if value > 0 else "-INFINITY")
    else:
        assert np.float32(text.strip("()").removesuffix("f")) == np.float32(value)


def test_a_shape_that_does_not_broadcast_is_refused():
    assert can_broadcast((3, 1), (2, 3, 4))
    assert not can_broadcast((2, 3, 4), (3, 4))
    assert not can_broadcast((2,), (3,))
    assert not can_broadcast((1,), (1, 1, 1, 1, 1, 1))
