"""The table of fused element-wise steps, by name, and how steps are joined into one expression.

In an expression `{v}` is the running vector, of `{lanes}` floats, `{0}` the loaded operand, `{a}` to `{d}`
the step's numbers, which the kernel gets as parameters. Every expression uses `{v}` exactly once, so nesting
steps repeats no work.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from runtime.delegates.gpu.graph.graph import LANES, Graph, Kind, Node, Step, Value, round_up
from runtime.delegates.gpu.graph.parameters import Digit, Parameters, offset, parameters
from runtime.model.schema import BuiltinOperator as Op

_CLAMP = "clamp{lanes}({v}, {a}, {b})"
_RESIDUAL = "OPERAND(0, p, c)"
_MAY_HAVE_RESIDUAL = (
    f"clamp16((E_ADDS ? clamp16((v), E_INNER_LOW, E_INNER_HIGH) + {_RESIDUAL} : (v)), E_LOW, E_HIGH)"
)
_LARGEST = float(np.finfo(np.float32).max)

EXPRESSIONS = {
    "LOAD": "{0}",
    "SATURATE": _CLAMP,
    "RELU": "relu{lanes}({v})",
    "RELU_SATURATED": _CLAMP,
    "RELU6": _CLAMP,
    "RELU_N1_TO_1": _CLAMP,
    "RELU_0_TO_1": _CLAMP,
    "TANH": "tanh{lanes}({v})",
    "LOGISTIC": "logistic{lanes}({v})",
    "SWISH": "swish{lanes}({v})",
    "HARD_SWISH": "hard_swish{lanes}({v})",
    "GELU": "gelu{lanes}({v})",
    "GELU_APPROXIMATE": "gelu_approximate{lanes}({v})",
    "ELU": "elu{lanes}({v})",
    "LEAKY_RELU": "leaky_relu{lanes}({v}, {a})",
    "PRELU": "prelu{lanes}({v}, {0})",
    "ADD": "({v} + {0})",
    "SUB": "({v} - {0})",
    "REVERSE_SUB": "({0} - {v})",
    "MUL": "({v} * {0})",
    "DIV": "({v} / {0})",
    "REVERSE_DIV": "({0} / {v})",
    "MAXIMUM": "max{lanes}({v}, {0})",
    "REVERSE_MAXIMUM": "max{lanes}({0}, {v})",
    "MINIMUM": "min{lanes}({v}, {0})",
    "REVERSE_MINIMUM": "min{lanes}({0}, {v})",
    "SQUARED_DIFFERENCE": "square{lanes}({v} - {0})",
    "POW": "pow({v}, {0})",
    "POW_ALONE": "pow_alone{lanes}({v}, {0})",
    "FLOOR_MOD": "floor_mod{lanes}({v}, {0})",
    "ATAN2": "atan2({v}, {0})",
    "ADD_SCALAR": "({v} + {a})",
    "MUL_SCALAR": "({v} * {a})",
    "ABS": "fabs({v})",
    "NEG": "(-{v})",
    "SQUARE": "square{lanes}({v})",
    "SQRT": "sqrt({v})",
    "RSQRT": "(1.0f / sqrt({v}))",
    "EXP": "exp({v})",
    "LOG": "log({v})",
    "SIN": "sin{lanes}({v})",
    "COS": "cos{lanes}({v})",
    "FLOOR": "floor({v})",
    "CEIL": "ceil({v})",
    "ROUND": "round{lanes}({v})",
    "SIGN": "sign{lanes}({v})",
    "SIMULATE": "simulate{lanes}({v}, {a}, {b}, {c}, {d})",
    "QUANTIZE": "quantize{lanes}({v}, {a}, {b}, {c}, {d})",
}

MAX_OPERANDS = 6
"""Most operands of one epilogue. Chosen: chains of networks have two or three, and a longer one continues in
a launch of its own; every operand is one more stream of memory beside the kernel's own."""

BOUNDS = {
    "SATURATE": (-_LARGEST, _LARGEST),
    "RELU_SATURATED": (0.0, _LARGEST),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}
"""Step → the numbers between which it clamps. Layers that differ in them alone share their function."""

FUSED_ACTIVATIONS = {"NONE": "SATURATE", "RELU": "RELU_SATURATED"}
"""Fused activation → its step, where that has another name. LiteRT's kernels with such an option clamp to the
range of finite numbers too, so that they never return an infinity."""

_MAY_ADD: frozenset[Kind] = frozenset({Op.CONV_2D, Op.FULLY_CONNECTED})
"""Operators of which networks have layers with a residual and without one, by the same tiles. Both share
functions, which ask for each vector that they store whether there is a residual."""

_UNSAFE_STEPS = frozenset({
    "DIV", "REVERSE_DIV", "SQRT", "RSQRT", "LOG", "POW", "POW_ALONE", "FLOOR_MOD",
})  # fmt: skip
"""Steps that may produce Inf or NaN from the finite numbers in padded lanes."""


@dataclass(frozen=True, slots=True)
class Operand:
    """The access to a step's operand: `access` is an expression over p and c, with its `parameters`.

    `is_splat`: it puts one number, which may be Inf or NaN, into all lanes, padded ones included.
    """

    value: int
    access: str
    parameters: dict[str, int] = field(default_factory=dict)
    is_splat: bool = False


def broadcast_shape(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """`shape` with leading ones up to `rank`."""
    return (1,) * (rank - len(shape)) + tuple(shape)


def can_broadcast(shape: Sequence[int], output: Sequence[int]) -> bool:
    """Return True if a tensor of `shape` can be an operand of a step whose output has the shape `output`."""
    if len(shape) > len(output):
        return False
    return all(a in (1, b) for a, b in zip(broadcast_shape(shape, len(output)), output, strict=True))


def operand_of(operand: Value, output: Value, pixel_stride: int, position: int) -> Operand:
    """Return the cheapest access to `operand` (its own pixel stride given) broadcast over `output`."""
    stride = {f"E{position}_STRIDE": pixel_stride}
    if operand.shape == output.shape:
        return Operand(operand.id, f"OPERAND({position}, p, c)", stride)
    if operand.elements == 1:
        return Operand(operand.id, f"SCALAR_OPERAND({position}, p, c)", is_splat=True)
    if operand.pixels == 1 and operand.channels == output.channels:
        return Operand(operand.id, f"CHANNEL_OPERAND({position}, p, c)")
    if operand.pixels == output.pixels and operand.channels == 1:
        return Operand(operand.id, f"PIXEL_OPERAND({position}, p, c)", stride, is_splat=True)
    where = offset(f"E{position}", _pixel_digits(operand, output, pixel_stride), "p")
    is_splat = operand.channels == 1 and output.channels > 1
    macro = "BROADCAST_PIXEL_OPERAND" if is_splat else "BROADCAST_OPERAND"
    return Operand(operand.id, f"{macro}({position}, {where.expression}, c)", where.parameters, is_splat)


def _pixel_digits(operand: Value, output: Value, pixel_stride: int) -> list[Digit]:
    """Return the digits of an output's pixel; one that the operand does not have moves nothing."""
    digits: list[Digit] = []
    step = pixel_stride
    lengths = broadcast_shape(operand.shape, len(output.shape))[:-1]
    for length, extent in zip(reversed(lengths), reversed(output.shape[:-1]), strict=True):
        digits.insert(0, Digit(extent, step if length > 1 else 0))
        step *= length
    return digits


@dataclass(frozen=True, slots=True)
class Joined:
    """All steps of an epilogue: one expression over v, p and c, and its parameters."""

    expression: str
    parameters: Parameters


def join(steps: Iterable[Step], operands: Sequence[Operand], channels: int, lanes: int = LANES) -> Joined:
    """One expression for all steps, which read `operands` in order, of an output of so many channels.

    `lanes` is the size of the vectors, whose functions have it at the end of their names.
    """
    text, unsafe = "(v)", False
    values: dict[str, int | float] = {}
    unread = iter(operands)
    for position, step in enumerate(steps):
        read = [next(unread) for _ in step.operands]
        for operand in read:
            values |= operand.parameters
        numbers = BOUNDS.get(step.op, step.parameters)
        names = {key: f"E_NUMBER{position}_{key.upper()}" for key in "abcd"[: len(numbers)]}
        values |= dict(zip(names.values(), numbers, strict=True))
        text = EXPRESSIONS[step.op].format(
            *(operand.access for operand in read), v=text, lanes=lanes, **names
        )
        unsafe |= any(operand.is_splat for operand in read)
        unsafe |= step.op in _UNSAFE_STEPS or not np.isfinite(step.parameters).all()
    # One Inf or NaN in a padded lane would spread over real channels in the next product: 0 * Inf is NaN.
    if unsafe and channels != round_up(channels):
        text, values["E_CHANNELS"] = f"mask{lanes}({text}, c, E_CHANNELS)", channels
    return Joined(text, parameters(**values))


def join_residual(node: Node, operands: Sequence[Operand]) -> Joined | None:
    """Return the expression, on vectors of 16, of a layer that may have a residual, or None.

    It reads one operand if the parameter E_ADDS says so; without it the operand may be any value.
    """
    steps = node.epilogue
    if node.op not in _MAY_ADD or not steps or not {steps[0].op, steps[-1].op} <= BOUNDS.keys():
        return None
    has_one = [step.op for step in steps[1:-1]] == ["ADD"] and operands[0].access == _RESIDUAL
    if not has_one and len(steps) > 1:
        return None
    (inner_low, inner_high), (low, high) = BOUNDS[steps[0].op], BOUNDS[steps[-1].op]
    bounds = {"E_INNER_LOW": inner_low, "E_INNER_HIGH": inner_high, "E_LOW": low, "E_HIGH": high}
    stride = operands[0].parameters if has_one else {"E0_STRIDE": 0}
    return Joined(_MAY_HAVE_RESIDUAL, parameters(E_ADDS=has_one, **stride, **bounds))


def operands_of(node: Node, graph: Graph) -> list[Operand]:
    """Every operand of a node's epilogue, in order, with its access."""
    output = graph.values[node.outputs[0]]
    found: list[Operand] = []
    for step in node.epilogue:
        for operand in step.operands:
            value = graph.values[operand]
            stride = round_up(value.channels) if value.is_constant else graph.layouts[operand].pixel_stride
            found.append(operand_of(value, output, stride, len(found)))
    return found


_BOUNDS: Mapping[str, tuple[float | None, float | None]] = {
    "SATURATE": (None, None),
    "RELU": (0.0, None),
    "RELU_SATURATED": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}
"""Steps that only bound a number: the range of levels takes their place."""


@dataclass(frozen=True, slots=True)
class Levels:
    """One scale for a whole tensor; `low` and `high` are the bounds of levels less the zero point."""

    scale: float
    zero_point: int
    low: int
    high: int


def rounded(steps: tuple[Step, ...], levels: Levels) -> tuple[Step, ...]:
    """Append the step that rounds to levels; a preceding bound becomes part of it.

    As in LiteRT's kernels, the bounds of a fused activation are rounded to levels themselves.
    """
    low, high = levels.low, levels.high
    if steps and steps[-1].op in _BOUNDS:
        least, most = _BOUNDS[steps[-1].op]
        steps = steps[:-1]
        low = low if least is None else max(low, round(least / levels.scale))
        high = high if most is None else min(high, round(most / levels.scale))
    with np.errstate(over="ignore"):  # a file may have a scale whose inverse is beyond float32: infinity
        inverse = float(np.float32(1) / np.float32(levels.scale))
    return (*steps, Step("SIMULATE", (), (inverse, float(low), float(high), levels.scale)))


def quantized(levels: Levels) -> Step:
    """Return the step of the operator QUANTIZE, which rounds as LiteRT's does."""
    # LiteRT's own int32 sum wraps around where the zero point is negative: the greatest level, not the least.
    beyond = levels.high if levels.zero_point < 0 else levels.low
    return Step("QUANTIZE", (), (levels.scale, float(levels.low), float(levels.high), float(beyond)))
