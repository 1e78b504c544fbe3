"""Element-wise operators on 8-bit levels as tables, which the CPU path's own kernels fill.

There are 256 levels and 65536 pairs of them, so that every rule of LiteRT's reference kernels is exact by
construction. Real numbers go through the families `elementwise` and `pointwise`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.epilogue import broadcast_shape, can_broadcast
from runtime.delegates.gpu.graph.graph import Node, round_up
from runtime.delegates.gpu.graph.parameters import Digit, offset, parameters
from runtime.delegates.gpu.graph.work_groups import most_units
from runtime.delegates.gpu.lowering.movement.copies import element_strides
from runtime.delegates.gpu.lowering.spec import (
    Array,
    Candidate,
    Context,
    Family,
    Instance,
    Launch,
    NodeSpec,
    OperatorFacts,
    PackedConstant,
    Types,
    defines,
)
from runtime.errors import FarmRuntimeError
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support.evaluation import evaluate
from runtime.ops.support.value import Value

_UNARY = (
    Op.ABS, Op.ELU, Op.EXP, Op.GELU, Op.HARD_SWISH, Op.LEAKY_RELU, Op.LOG, Op.LOGISTIC, Op.NEG, Op.QUANTIZE,
    Op.RELU, Op.RELU6, Op.RELU_0_TO_1, Op.RELU_N1_TO_1, Op.RSQRT, Op.SQRT, Op.TANH,
)  # fmt: skip
_BINARY = (
    Op.ADD, Op.DIV, Op.MAXIMUM, Op.MINIMUM, Op.MUL, Op.PRELU, Op.SQUARED_DIFFERENCE, Op.SUB,
)  # fmt: skip

_LEVELS = 256
"""Levels of 8 bits, at the index that their bits have without a sign."""

_BYTES = (ElementType.I8, ElementType.U8)

_UNITS = 32
"""Most units, and so most work-groups, of a launch. Chosen: several for each thread of the usual CPU device;
a device with more compute units leaves some idle."""


def _table(facts: OperatorFacts) -> Array:
    """Return the operator's result for every level, or pair of them, as bytes: [256] or [256 * 256].

    Raises FarmRuntimeError where the CPU path has no kernel for such tensors.
    """
    tensors, operator = facts.graph.subgraph.tensors, facts.operator
    every = np.arange(_LEVELS, dtype=np.uint8)
    count = 2 if operator.opcode in _BINARY else 1
    shape = (_LEVELS,) * count
    grids = np.meshgrid(*[every] * count, indexing="ij")
    inputs = []
    for grid, index in zip(grids, operator.inputs, strict=False):
        known = tensors[index]
        levels = np.ascontiguousarray(grid).view(known.type.name.lower())
        inputs.append(Value(index, known.name, known.type, shape, known.quantization, constant=levels))
    made = tensors[operator.outputs[0]]
    (found,) = evaluate(operator, inputs, [Value(made.index, made.name, made.type, shape, made.quantization)])
    return found.view(np.uint8).reshape(-1)


def _supports(facts: OperatorFacts) -> Unsupported | None:
    output = facts.output_shape()
    for i in range(2 if facts.operator.opcode in _BINARY else 1):
        if not can_broadcast(facts.shape(i), output):
            return Unsupported(
                f"shape {list(facts.shape(i))} cannot be broadcast to {list(output)} by the kernel"
            )
    try:
        _table(facts)
    except FarmRuntimeError as error:
        return Unsupported(f"the CPU path has no such operator on levels: {error}")
    return None


def _read(facts: OperatorFacts) -> NodeSpec:
    count = 2 if facts.operator.opcode in _BINARY else 1
    return NodeSpec(facts.operator.inputs[:count], {"table": _table(facts).tobytes()})


def lower(node: Node, context: Context) -> Sequence[Candidate]:
    """One kernel over all pixels; operands are broadcast."""
    (target,) = node.outputs
    output = context.value(target)
    shape: dict[str, int] = {
        "PIXELS": output.pixels,
        "CHANNELS": round_up(output.channels),
        "OUT_STRIDE": context.layout(target).pixel_stride,
    }
    places = []
    for position, source in enumerate(node.inputs):
        if source is None:
            raise ValueError(f"{node.op.name} needs all of its operands")
        value, rank = context.value(source), max(1, len(output.shape))
        steps = element_strides(value, context.layout(source))
        steps = [*(0,) * (rank - len(steps)), *steps]
        extents = broadcast_shape(value.shape, rank)
        steps = [step if extent > 1 else 0 for step, extent in zip(steps, extents, strict=True)]
        leading = output.shape[:-1]
        digits = [Digit(extent, step) for extent, step in zip(leading, steps[:-1], strict=True)]
        row = offset(f"X{position}", digits, "p")
        shape |= row.parameters
        shape[f"STEP{position}"] = 1 if output.channels == 1 else steps[-1]
        places.append((f"ROW{position}(p)", row.expression))
    table = np.frombuffer(node.attributes["table"], np.uint8)
    pair = len(places) == 2
    launch = Launch(
        Instance(
            f"elementwise/level_functions{'_pair' if pair else ''}.cl",
            f"u8_level_functions_{'pair' if pair else 'one'}",
            defines(**dict(places)),
            parameters(**shape),
        ),
        (
            *(context.pointer(source) for source in node.inputs if source is not None),
            PackedConstant(
                f"table{target}", len(table), lambda: np.frombuffer(table, np.uint8), ElementType.U8
            ),
            target,
        ),
        units=max(1, min(most_units(context.device, _UNITS), output.pixels)),
        label=f"{node.op.name} int8 {'x'.join(map(str, output.shape))}",
        sources=node.sources,
        flops=output.elements,
        bytes=output.elements * (1 + len(places)),
    )
    return [Candidate("rows", (launch,))]


FAMILY = Family(
    operators=(*_UNARY, *_BINARY),
    read=_read,
    lower=lower,
    supports=_supports,
    types=dict.fromkeys((*_UNARY, *_BINARY), Types((_BYTES,), (_BYTES,))),
)
