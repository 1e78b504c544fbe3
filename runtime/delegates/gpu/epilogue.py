"""The table of fused element-wise steps, by name, and how steps are joined into one expression.

In an expression `{v}` is the running float16 vector, `{0}` the loaded operand, `{a}` the step's
parameter as a literal. Every expression uses `{v}` exactly once, so nesting steps repeats no work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.delegates.gpu.graph import Graph, Node, Step, Value, round_up

EXPRESSIONS = {
    "LOAD": "{0}",
    "SATURATE": "clamp16({v}, -FLT_MAX, FLT_MAX)",
    "RELU": "relu16({v})",
    "RELU_SATURATED": "clamp16({v}, 0.0f, FLT_MAX)",
    "RELU6": "clamp16({v}, 0.0f, 6.0f)",
    "RELU_N1_TO_1": "clamp16({v}, -1.0f, 1.0f)",
    "RELU_0_TO_1": "clamp16({v}, 0.0f, 1.0f)",
    "TANH": "tanh16({v})",
    "LOGISTIC": "logistic16({v})",
    "SWISH": "swish16({v})",
    "HARD_SWISH": "hard_swish16({v})",
    "GELU": "gelu16({v})",
    "GELU_APPROXIMATE": "gelu_approximate16({v})",
    "ELU": "elu16({v})",
    "LEAKY_RELU": "leaky_relu16({v}, {a})",
    "PRELU": "prelu16({v}, {0})",
    "ADD": "({v} + {0})",
    "SUB": "({v} - {0})",
    "REVERSE_SUB": "({0} - {v})",
    "MUL": "({v} * {0})",
    "DIV": "({v} / {0})",
    "REVERSE_DIV": "({0} / {v})",
    "MAXIMUM": "max16({v}, {0})",
    "REVERSE_MAXIMUM": "max16({0}, {v})",
    "MINIMUM": "min16({v}, {0})",
    "REVERSE_MINIMUM": "min16({0}, {v})",
    "SQUARED_DIFFERENCE": "square16({v} - {0})",
    "POW": "pow({v}, {0})",
    "POW_ALONE": "pow_alone16({v}, {0})",
    "FLOOR_DIV": "floor_div16({v}, {0})",
    "FLOOR_MOD": "floor_mod16({v}, {0})",
    "ATAN2": "atan2({v}, {0})",
    "ADD_SCALAR": "({v} + {a})",
    "MUL_SCALAR": "({v} * {a})",
    "ABS": "fabs({v})",
    "NEG": "(-{v})",
    "SQUARE": "square16({v})",
    "SQRT": "sqrt({v})",
    "RSQRT": "(1.0f / sqrt({v}))",
    "EXP": "exp({v})",
    "LOG": "log({v})",
    "SIN": "sin16({v})",
    "COS": "cos16({v})",
    "FLOOR": "floor({v})",
    "CEIL": "ceil({v})",
    "ROUND": "round16({v})",
    "SIGN": "sign16({v})",
}

_DIGITS = 4
"""Digits of a pixel index that `BROADCAST_INDEX` of `kernels/common.cl` takes apart. Neighbouring dimensions
share one where an operand has all of them or none, so that few operands of rank 6 need more; those stay on
the CPU."""

MAX_OPERANDS = 6
"""Most operands of one epilogue: `kernels/common.cl` has `EPILOGUE_PARAMS_n` up to this n. Chosen: chains of
networks have two or three, and a longer one continues in a launch of its own."""

FUSED_ACTIVATIONS = {"NONE": "SATURATE", "RELU": "RELU_SATURATED"}
"""Fused activation → its step, where that has another name. LiteRT's kernels with such an option clamp to the
range of finite numbers too, so that they never return an infinity."""

_UNSAFE_STEPS = frozenset({
    "DIV", "REVERSE_DIV", "SQRT", "RSQRT", "LOG", "POW", "POW_ALONE", "FLOOR_DIV", "FLOOR_MOD",
})  # fmt: skip
"""Steps that may produce Inf or NaN from the finite numbers in padded lanes."""

_SPLATS = frozenset({"SCALAR_OPERAND", "PIXEL_OPERAND", "BROADCAST_PIXEL_OPERAND"})
"""Accesses that put one number into all lanes, padded ones included; it may be Inf or NaN."""


def literal(value: float) -> str:
    """A float as OpenCL C text, exact in float32."""
    number = float(np.float32(value))
    if np.isnan(number):
        return "NAN"
    if np.isinf(number):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    return f"{number!r}f" if number >= 0 else f"({number!r}f)"


@dataclass(frozen=True, slots=True)
class Operand:
    """How a step's operand is read: `access` is a macro of `kernels/common.cl`, `defines` its parameters."""

    value: int
    access: str
    defines: tuple[tuple[str, int], ...] = ()


def broadcast_shape(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """`shape` with leading ones up to `rank`."""
    return (1,) * (rank - len(shape)) + tuple(shape)


def can_broadcast(shape: Sequence[int], output: Sequence[int]) -> bool:
    """True where a tensor of `shape` can be an operand of a step whose output has the shape `output`."""
    if tuple(shape) == tuple(output):
        return True
    if len(shape) > len(output):
        return False
    fits = all(a in (1, b) for a, b in zip(broadcast_shape(shape, len(output)), output, strict=True))
    return fits and len(_digits(shape, output)) <= _DIGITS


def _digits(shape: Sequence[int], output: Sequence[int]) -> list[tuple[int, bool]]:
    """The leading dimensions of `output`, merged: extent, and whether an operand of `shape` has them too."""
    found: list[tuple[int, bool]] = []
    for length, extent in zip(broadcast_shape(shape, len(output))[:-1], output[:-1], strict=True):
        if extent == 1:
            continue
        if found and found[-1][1] == (length > 1):
            found[-1] = (found[-1][0] * extent, length > 1)
        else:
            found.append((extent, length > 1))
    return found


def operand_of(operand: Value, output: Value, pixel_stride: int, position: int) -> Operand:
    """The cheapest access that reads `operand` (its own pixel stride given) broadcast over `output`."""
    prefix = f"E{position}_"
    if operand.shape == output.shape:
        return Operand(operand.id, "OPERAND", ((f"{prefix}STRIDE", pixel_stride),))
    if operand.elements == 1:
        return Operand(operand.id, "SCALAR_OPERAND")
    if operand.pixels == 1 and operand.channels == output.channels:
        return Operand(operand.id, "CHANNEL_OPERAND")
    if operand.pixels == output.pixels and operand.channels == 1:
        return Operand(operand.id, "PIXEL_OPERAND", ((f"{prefix}STRIDE", pixel_stride),))
    return Operand(operand.id, *_general_access(operand, output, pixel_stride, prefix))


def _general_access(
    operand: Value, output: Value, pixel_stride: int, prefix: str
) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Pixel p of the output → pixel of the operand: four digits of p, each with a stride (0: broadcast)."""
    digits = _digits(operand.shape, output.shape)
    digits = [(1, False)] * (_DIGITS - len(digits)) + digits
    found: list[tuple[str, int]] = []
    quotient, stride = 1, pixel_stride
    for axis in reversed(range(_DIGITS)):
        extent, is_own = digits[axis]
        found += [
            (f"{prefix}QUOTIENT{axis}", quotient),
            (f"{prefix}EXTENT{axis}", extent),
            (f"{prefix}STRIDE{axis}", stride if is_own else 0),
        ]
        quotient *= extent
        stride *= extent if is_own else 1
    splat = operand.channels == 1 and output.channels > 1
    return ("BROADCAST_PIXEL_OPERAND" if splat else "BROADCAST_OPERAND"), tuple(found)


def join(steps: Iterable[Step], accesses: Sequence[str], channels: int) -> str:
    """One expression over `v`, `p`, `c` for all steps; `accesses` names each operand's access, in order."""
    text, position, unsafe = "(v)", 0, False
    for step in steps:
        loads = []
        for _ in step.operands:
            loads.append(f"{accesses[position]}({position}, p, c)")
            unsafe |= accesses[position] in _SPLATS
            position += 1
        parameters = dict(zip("a", map(literal, step.parameters), strict=False))
        text = EXPRESSIONS[step.op].format(*loads, v=text, **parameters)
        unsafe |= step.op in _UNSAFE_STEPS or not np.isfinite(step.parameters).all()
    # One Inf or NaN in a padded lane would spread over real channels in the next product: 0 * Inf is NaN.
    if unsafe and channels != round_up(channels):
        text = f"mask16({text}, c, {channels})"
    return text


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
