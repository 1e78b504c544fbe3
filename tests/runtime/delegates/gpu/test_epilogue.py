"""Every step of the table against LiteRT, and every way to read an operand against numpy, on the device."""

import math

import numpy as np
import pytest

from runtime.delegates.gpu.backends.base import recorded
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.epilogue import EXPRESSIONS, Operand, can_broadcast, join
from runtime.delegates.gpu.graph.graph import Graph, Layout, Node, Step, Value
from runtime.delegates.gpu.layout.memory import Stage
from runtime.delegates.gpu.layout.source import assemble
from runtime.delegates.gpu.lowering.elementwise.elementwise import lower
from runtime.delegates.gpu.lowering.elementwise.pointwise import family as pointwise
from runtime.delegates.gpu.lowering.spec import Context
from runtime.model.schema import ActivationFunctionType
from runtime.model.schema import BuiltinOperator as Op
from tests.oracle import run_litert
from tests.runtime.models import Builder, per_tensor
from tests.sweeps import rarely, sweep

_SPECIAL = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38, 100, -100, -1])
_WITHOUT_REFERENCE = frozenset({Op.CEIL, Op.ELU, Op.ROUND})
"""Operators that LiteRT has optimised kernels for only."""

_MODELS = {
    "LOAD": [(Op.MAXIMUM, "ww")],
    "SATURATE": [(Op.MUL, "v1")],
    "RELU": [(Op.RELU, "v")],
    "RELU_SATURATED": [(Op.MUL, "v1", {"fused_activation_function": ActivationFunctionType.RELU})],
    "SWISH": [(Op.LOGISTIC, "v"), (Op.MUL, "vr")],
    "GELU_APPROXIMATE": [(Op.GELU, "v", {"approximate": True})],
    "LEAKY_RELU": [(Op.LEAKY_RELU, "v", {"alpha": 0.25})],
    "PRELU": [(Op.PRELU, "vw")],
    "SUB": [(Op.SUB, "vw")],
    "REVERSE_SUB": [(Op.SUB, "wv")],
    "DIV": [(Op.DIV, "vw")],
    "REVERSE_DIV": [(Op.DIV, "wv")],
    "MAXIMUM": [(Op.MAXIMUM, "vw")],
    "REVERSE_MAXIMUM": [(Op.MAXIMUM, "wv")],
    "MINIMUM": [(Op.MINIMUM, "vw")],
    "REVERSE_MINIMUM": [(Op.MINIMUM, "wv")],
    "SQUARED_DIFFERENCE": [(Op.SQUARED_DIFFERENCE, "vw")],
    "POW": [(Op.POW, "vw")],
    "POW_ALONE": [(Op.POW, "vw")],
    "FLOOR_MOD": [(Op.FLOOR_MOD, "vw")],
    "ATAN2": [(Op.ATAN2, "vw")],
    "ADD": [(Op.ADD, "vw")],
    "MUL": [(Op.MUL, "vw")],
    "ADD_SCALAR": [(Op.ADD, "va")],
    "MUL_SCALAR": [(Op.MUL, "va")],
}
"""Step → the operators that it stands for. Operands: the running value v, the operand w, the parameter a, 1,
and the result r of the operator before. Every other step stands for the operator of its name, of v."""

_CLAMPED = frozenset(
    {"ADD", "SUB", "REVERSE_SUB", "MUL", "DIV", "REVERSE_DIV", "SWISH", "ADD_SCALAR", "MUL_SCALAR"}
)
"""Steps of operators whose results LiteRT clamps to the finite numbers: the step SATURATE follows them."""


def litert_of(op, v, w, a):
    """Compute the operators that a step stands for by LiteRT's kernels."""
    build = Builder()
    known = {"v": build.input(np.float32, v.shape), "w": build.input(np.float32, w.shape)}
    known |= {name: build.constant(np.float32([value])) for name, value in (("a", a), ("1", 1.0))}
    operators = [(*given, {})[:3] for given in _MODELS.get(op) or [(Op[op], "v")]]
    for opcode, operands, options in operators:
        result = build.tensor(np.float32)
        build.operator(opcode, [known[name] for name in operands], [result], options)
        known["r"] = result
    optimised = any(opcode in _WITHOUT_REFERENCE for opcode, *_ in operators)
    resolver = "BUILTIN_WITHOUT_DEFAULT_DELEGATES" if optimised else "BUILTIN_REF"
    return run_litert(build.write([known["r"]]), [v, w], resolver)[0]


def run_steps(backend, steps, shape, operands):
    """Run LOAD x and `steps` over [*shape]; `operands` maps value ids (0 is x) to arrays."""
    values = {key: Value(key, array.shape) for key, array in operands.items()}
    out = max(values) + 1
    values[out] = Value(out, shape)
    layouts = {key: Layout(key, 0, -(-value.channels // 16) * 16) for key, value in values.items()}
    node = Node(0, Op.ADD, (), (out,), epilogue=(Step("LOAD", (0,)), *steps))
    return run_node(
        backend, Graph(values, (node,), tuple(operands), (out,), layouts=layouts), operands, lower
    )


def run_node(backend, graph, operands, lower):
    """Run a graph of one node, whose padded lanes must be finite; the result without them."""
    values, layouts, ((out,), (node,)) = graph.values, graph.layouts, (graph.outputs, graph.nodes)
    (candidate,) = lower(node, Context(graph, backend.capabilities))
    source = assemble(candidate.launches, backend.capabilities)
    program = backend.compile(source)
    recording = recorded(backend, graph, [Stage(0, candidate)], source, program)
    for key, array in operands.items():
        rows = array.reshape(values[key].pixels, values[key].channels)
        recording.write(key, np.pad(rows, ((0, 0), (0, layouts[key].pixel_stride - rows.shape[1]))))
    recording.run([recording.entry(0)])
    padded = np.empty((values[out].pixels, layouts[out].pixel_stride), np.float32)
    recording.read(out, padded)
    recording.close()
    assert np.isfinite(padded[:, values[out].channels :]).all(), "padded lanes must stay finite"
    return padded[:, : values[out].channels].reshape(values[out].shape)


FEW = ("ADD", "GELU", "LEAKY_RELU", "POW", "PRELU", "SWISH", "TANH")
"""Steps with an operand or without, with a number, of several operators, and those that need most numbers."""


@pytest.mark.parametrize("op", sweep(sorted(EXPRESSIONS.keys() - {"QUANTIZE", "SIMULATE"}), *FEW))
def test_step_matches_litert(op, backend):
    generator = np.random.default_rng(1)
    x = generator.uniform(-9, 9, (3, 5, 21)).astype(np.float32)
    w = generator.uniform(0.5, 2, x.shape).astype(np.float32)
    x.reshape(-1)[: _SPECIAL.size] = _SPECIAL
    w.reshape(-1)[_SPECIAL.size : 2 * _SPECIAL.size] = _SPECIAL
    if op == "POW_ALONE":
        w = np.float32([3])
    needs_operand = "{0}" in EXPRESSIONS[op]
    step = Step(op, (1,) if needs_operand else (), (0.25,) if "{a}" in EXPRESSIONS[op] else ())
    steps = [step, Step("SATURATE")] if op in _CLAMPED else [step]
    found = run_steps(backend, steps, x.shape, {0: x, 1: w} if needs_operand else {0: x})
    np.testing.assert_allclose(found, litert_of(op, x, w, 0.25), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("zero_point", [-7, *map(rarely, (0, 90))])
def test_steps_to_levels_match_litert(zero_point, backend):
    """QUANTIZE rounds every number as LiteRT does, SIMULATE those of usual size, ties to even."""
    generator, scale = np.random.default_rng(1), 0.25
    x = generator.uniform(-40, 40, (3, 5, 21)).astype(np.float32)
    x.reshape(-1)[: _SPECIAL.size] = _SPECIAL
    x.reshape(-1)[_SPECIAL.size : _SPECIAL.size + 8] = (np.arange(8) - 3.5) * scale
    build = Builder()
    levels, real = (
        build.tensor(t, x.shape, q) for t, q in ((np.int8, per_tensor(scale, zero_point)), (np.float32, None))
    )
    build.operator(Op.QUANTIZE, [build.input(np.float32, x.shape)], [levels])
    build.operator(Op.DEQUANTIZE, [levels], [real], version=2)
    (expected,) = run_litert(build.write([real]), [x])
    low, high = -128.0 - zero_point, 127.0 - zero_point
    beyond = low if zero_point >= 0 else high
    exact = run_steps(backend, [Step("QUANTIZE", (), (scale, low, high, beyond))], x.shape, {0: x})
    np.testing.assert_array_equal(exact, expected)
    fast = run_steps(backend, [Step("SIMULATE", (), (1 / scale, low, high, scale))], x.shape, {0: x})
    is_usual = np.abs(x) < 1e30
    multiples = np.where(is_usual, x, 0) / scale
    is_tie = np.mod(multiples, 1) == 0.5
    np.testing.assert_array_equal(fast[is_usual & ~is_tie], expected[is_usual & ~is_tie])
    np.testing.assert_array_equal(fast[is_tie], np.clip(np.rint(multiples[is_tie]), low, high) * scale)


@pytest.mark.parametrize(
    "shape",
    [
        (2, 3, 5, 19),
        (),
        (19,),
        (2, 1, 5, 1),
        (2, 1, 2, 3, 1, 2, 1, 19),
        *map(rarely, ((1,), (1, 1, 1, 19), (2, 3, 5, 1), (3, 1, 1), (5, 19), (2, 1, 1, 19))),
        rarely((2, 1, 2, 1, 2, 1, 2, 1)),
    ],
)
def test_operand_is_broadcast_as_numpy_does(shape, backend):
    generator = np.random.default_rng(2)
    x = generator.standard_normal((2, 3, 5, 19) if len(shape) < 5 else (2, 3, 2, 3, 2, 2, 2, 19))
    x = x.astype(np.float32)
    w = generator.standard_normal(shape).astype(np.float32)
    found = run_steps(backend, [Step("MUL", (1,))], x.shape, {0: x, 1: w})
    np.testing.assert_array_equal(found, x * w)


def test_steps_nest_in_order():
    steps = [Step("ADD", (7,)), Step("RELU"), Step("MUL_SCALAR", (), (0.5,))]
    joined = join(steps, [Operand(7, "load(p, c)", {"E0_STRIDE": 16})], 16)
    assert joined.expression == "(relu16(((v) + load(p, c))) * E_NUMBER2_A)"
    assert joined.parameters == (("E0_STRIDE", 16), ("E_NUMBER2_A", 0.5))


@pytest.mark.parametrize(
    ("step", "operands"),
    [
        (Step("RSQRT"), []),
        (Step("SQRT"), []),
        (Step("MUL", (1,)), [Operand(1, "load(p, c)", is_splat=True)]),
        (Step("ADD_SCALAR", (), (math.nan,)), []),
    ],
    ids=str,
)
def test_steps_that_may_make_infinities_or_nan_are_masked_behind_the_last_channel(step, operands):
    whole, ragged = join([step], operands, 16), join([step], operands, 17)
    assert "mask16" not in whole.expression
    assert ragged.expression == f"mask16({whole.expression}, c, E_CHANNELS)"
    assert ("E_CHANNELS", 17) in ragged.parameters


def test_other_steps_need_no_mask():
    operands = [Operand(1, "load(p, c)")]
    assert "mask16" not in join([Step("MUL", (1,)), Step("EXP")], operands, 17).expression


@pytest.mark.parametrize("value", [0.1, -3.5, 1e-30, 3.4e38, float("inf"), -float("inf"), -0.0, float("nan")])
def test_a_step_gets_every_bit_of_its_number(value, backend):
    """NaN by any of its bits: what the number is added to decides which."""
    x = np.float32([[-0.0, 1.0, 3.0]])
    found = run_steps(backend, [Step("ADD_SCALAR", (), (value,))], x.shape, {0: x})
    np.testing.assert_array_equal(found, x + np.float32(value))


def test_a_shape_that_does_not_broadcast_is_refused():
    assert can_broadcast((3, 1), (2, 3, 4))
    assert not can_broadcast((2, 3, 4), (3, 4))
    assert not can_broadcast((2,), (3,))


def test_an_infinity_for_all_elements_stays_out_of_the_padded_lanes_of_a_selection(backend):
    flags, x = np.ones((3, 5), np.bool_), np.arange(15, dtype=np.float32).reshape(3, 5)
    operands = {0: flags, 1: x, 2: np.float32(np.inf)}
    values = {
        0: Value(0, (3, 5), type=ElementType.BOOL),
        1: Value(1, (3, 5)),
        2: Value(2, ()),
        3: Value(3, (3, 5)),
    }
    node = Node(0, Op.SELECT_V2, (0, 1, 2), (3,), {"clamp": "NONE", "rows": False, "alone": False})
    graph = Graph(values, (node,), (0, 1, 2), (3,), layouts={key: Layout(key, 0, 16) for key in values})
    np.testing.assert_array_equal(run_node(backend, graph, operands, pointwise.lower), x)
