"""Element-wise operators on 8-bit levels as tables, which the CPU path's own kernels fill.

There are 256 levels and 65536 pairs of them, so that every rule of LiteRT's reference kernels is exact by
construction. Real numbers go through the families `elementwise` and `pointwise`.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.epilogue import broadcast_shape, can_broadcast
from runtime.delegates.gpu.graph.graph import Node, round_up
from runtime.delegates.gpu.graph.graph import Value as GraphValue
from runtime.delegates.gpu.graph.parameters import Digit, offset
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.graph.work_groups import most_units
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.movement.copies import element_strides
from runtime.errors import FarmRuntimeError
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support.evaluation import evaluate
from runtime.ops.support.quantization import quantize_multiplier
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

_EXCESSES = (0.0, 2.0**-21, -(2.0**-21), 2.0**-19, -(2.0**-19), 2.0**-17)
"""By how much more than its real factor a float32 factor is tried: LiteRT rounds ties away from zero, and
rounds twice."""

_MOST_JOINED = 64
"""Most pixels that are one to the kernel where rows follow one another without a gap: loops of few channels
are mostly overhead. Chosen."""

_LEAST_ROWS = 8
"""Fewest rows that joining leaves, so that threads can share them. Chosen."""

_BYTES = (ElementType.I8, ElementType.U8)

_UNITS = 32
"""Most units, and so most work-groups, of a launch. Chosen: several for each thread of the usual CPU device;
a device with more compute units leaves some idle."""


def _table(facts: spec.OperatorFacts, levels: int = _LEVELS) -> spec.Array:
    """Return the operator's result for the first levels, or pairs of them, as bytes: of all, [256] or [256
    * 256].

    Raises FarmRuntimeError where the CPU path has no kernel for such tensors.
    """
    tensors, operator = facts.graph.subgraph.tensors, facts.operator
    every = np.arange(levels, dtype=np.uint8)
    count = 2 if operator.opcode in _BINARY else 1
    shape = (levels,) * count
    grids = np.meshgrid(*[every] * count, indexing="ij")
    inputs = []
    for grid, index in zip(grids, operator.inputs, strict=False):
        known = tensors[index]
        stored = np.ascontiguousarray(grid).view(known.type.name.lower())
        inputs.append(Value(index, known.name, known.type, shape, known.quantization, constant=stored))
    made = tensors[operator.outputs[0]]
    (found,) = evaluate(operator, inputs, [Value(made.index, made.name, made.type, shape, made.quantization)])
    return found.view(np.uint8).reshape(-1)


@dataclass(frozen=True, slots=True)
class Linear:
    """(x - zeros[0]) * factors[0] plus or times the same of z, rounded to the even neighbour, as float32.

    Of a product the first factor alone counts. `more` is added to its size before it is rounded, `zero_point`
    behind that, and the bounds applied.
    """

    is_product: bool
    zeros: tuple[float, float]
    factors: tuple[float, float]
    more: float
    zero_point: int
    low: int
    high: int

    def levels(self, x: spec.Array, z: spec.Array) -> spec.Array:
        """Return the result, int32, of operands that broadcast: bit for bit what the kernel makes of them."""
        u = x.astype(np.float32) - np.float32(self.zeros[0])
        v = z.astype(np.float32) - np.float32(self.zeros[1])
        first, second = np.float32(self.factors[0]), np.float32(self.factors[1])
        y = u * v * first if self.is_product else u * first + v * second
        y = y + np.copysign(np.float32(self.more), y)
        # Clipped first, because converting a float that is beyond int32 is undefined.
        levels: spec.Array = np.rint(y.clip(-1e6, 1e6)).astype(np.int32) + self.zero_point
        return levels.clip(self.low, self.high)


def _linear(facts: spec.OperatorFacts, table: spec.Array) -> Linear | None:
    """Return the sum or product with exactly the table's results for all pairs of levels, or None."""
    tensors, operator = facts.graph.subgraph.tensors, facts.operator
    if operator.opcode not in (Op.ADD, Op.SUB, Op.MUL):
        return None
    x, z, made = (tensors[i] for i in (*operator.inputs[:2], operator.outputs[0]))
    given, other, target = levels_of(x), levels_of(z), levels_of(made)
    if given is None or other is None or target is None:
        return None
    every = [np.arange(_LEVELS, dtype=np.uint8).view(t.type.name.lower()) for t in (x, z)]
    wanted = table.view(made.type.name.lower()).reshape(_LEVELS, _LEVELS).astype(np.int32)
    is_product = operator.opcode == Op.MUL
    scales = (
        (given.scale * other.scale / target.scale, 0.0)
        if is_product
        else (
            given.scale / target.scale,
            other.scale / target.scale * (-1 if operator.opcode == Op.SUB else 1),
        )
    )
    # The first of two roundings, to an integer of so many more bits, moves what is rounded up behind it.
    right = max(0, -quantize_multiplier(scales[0])[1])
    halves = (2.0 ** -(right + 1), 2.0 ** -(right + 1) * (1 - 2.0**-9), 0.0) if is_product else (0.0,)
    for excess, more in product(_EXCESSES, halves):
        first, second = (float(np.float32(scale * (1 + excess))) for scale in scales)
        found = Linear(
            is_product,
            (float(given.zero_point), float(other.zero_point)),
            (first, second),
            more,
            target.zero_point,
            # The bounds of the fused activation, as far as any pair of levels reaches them.
            int(wanted.min()),
            int(wanted.max()),
        )
        if np.array_equal(found.levels(every[0][:, None], every[1][None, :]), wanted):
            return found
    return None


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    output = facts.output_shape()
    for i in range(2 if facts.operator.opcode in _BINARY else 1):
        if not can_broadcast(facts.shape(i), output):
            return Unsupported(
                f"shape {list(facts.shape(i))} cannot be broadcast to {list(output)} by the kernel"
            )
    try:
        # Whether there is such an operator does not depend on how many levels it is asked for.
        _table(facts, 1)
    except FarmRuntimeError as error:
        return Unsupported(f"the CPU path has no such operator on levels: {error}")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    count = 2 if facts.operator.opcode in _BINARY else 1
    table = _table(facts)
    linear = {"linear": _linear(facts, table)} if count > 1 else {}
    return spec.NodeSpec(facts.operator.inputs[:count], {"table": table.tobytes(), **linear})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel over all pixels; operands are broadcast."""
    (target,) = node.outputs
    output = context.value(target)
    shape: dict[str, int] = {
        "PIXELS": output.pixels,
        "CHANNELS": round_up(output.channels),
        "OUT_STRIDE": context.layout(target).pixel_stride,
    }
    joined = _joined(node, context, output)
    shape |= {name: shape[name] * joined for name in ("CHANNELS", "OUT_STRIDE")}
    shape["PIXELS"] //= joined
    places = []
    for position, source in enumerate(node.required):
        value, rank = context.value(source), max(1, len(output.shape))
        steps = element_strides(value, context.layout(source))
        steps = [*(0,) * (rank - len(steps)), *steps]
        extents = broadcast_shape(value.shape, rank)
        steps = [step if extent > 1 else 0 for step, extent in zip(steps, extents, strict=True)]
        leading = output.shape[:-1]
        digits = [Digit(extent, step) for extent, step in zip(leading, steps[:-1], strict=True)]
        if joined > 1:
            digits = [Digit(shape["PIXELS"], shape["CHANNELS"])]
        row = offset(f"X{position}", digits, "p")
        shape |= row.parameters
        # Along a single channel the step has no effect, and 1 allows for whole vectors.
        shape[f"STEP{position}"] = 1 if output.channels == 1 else steps[-1]
        places.append((f"ROW{position}(p)", row.expression))
    table = np.frombuffer(node.attributes["table"], np.uint8)
    linear = node.attributes.get("linear")
    # That kernel loads either whole vectors or a single byte for all channels.
    if linear is not None and any(shape[f"STEP{position}"] not in (0, 1) for position in (0, 1)):
        linear = None
    sources = tuple(map(context.pointer, node.required))
    picking = None
    if len(places) > 1 and linear is None:
        # The operand that has one byte for all channels of a pixel.
        picking = next((position for position in (1, 0) if shape[f"STEP{position}"] == 0), None)
    # The byte that picks a table is the higher digit of the index into all of them.
    if picking == 1:
        table = np.ascontiguousarray(table.reshape(_LEVELS, _LEVELS).T).reshape(-1)
    elif picking == 0:
        sources, shape["STEP0"] = sources[::-1], shape["STEP1"]
        places = [("ROW0(p)", places[1][1]), ("ROW1(p)", places[0][1])]
    packed = spec.PackedConstant(
        f"table{target}", len(table), lambda: np.frombuffer(table, np.uint8), ElementType.U8
    )
    if linear is not None:
        kinds = [context.value(each).type.opencl for each in (*node.required, target)]
        instance = spec.function(
            "elementwise/level_functions_linear.cl",
            f"i8_level_functions_{'product' if linear.is_product else 'sum'}",
            spec.joined(
                dict(places),
                dict(zip(("T0", "T1", "T"), kinds, strict=True)),
                {"IS_PRODUCT": linear.is_product},
            ),
            **shape,
            ZERO0=linear.zeros[0],
            ZERO1=linear.zeros[1],
            FACTOR0=linear.factors[0],
            FACTOR1=linear.factors[1],
            MORE=linear.more,
            ZERO_POINT=linear.zero_point,
            # The kernel clamps before it adds the zero point.
            LOW=float(linear.low - linear.zero_point),
            HIGH=float(linear.high - linear.zero_point),
        )
    elif picking is not None:
        instance = spec.function(
            "elementwise/level_functions.cl",
            "u8_level_functions_picked",
            spec.joined(dict(places), {"PERMUTES": context.device.permutes_bytes, "PICKS": 1}),
            **shape,
        )
    elif len(places) > 1:
        instance = spec.function(
            "elementwise/level_functions_pair.cl", "u8_level_functions_pair", dict(places), **shape
        )
    else:
        instance = spec.function(
            "elementwise/level_functions.cl",
            "u8_level_functions_one",
            spec.joined(dict(places), {"PERMUTES": context.device.permutes_bytes, "PICKS": 0}),
            **shape,
        )
    launch = context.launch(
        node,
        instance,
        (*sources, target) if linear is not None else (*sources, packed, target),
        max(1, min(most_units(context.device, _UNITS), shape["PIXELS"])),
        spec.Work(f"int8 {output.extents}", output.elements, output.elements * (1 + len(places))),
    )
    return [spec.Candidate("rows", (launch,))]


def _joined(node: Node, context: spec.Context, output: GraphValue) -> int:
    """Return the number of pixels without a gap, in all operands and the result, for each row."""
    lanes = round_up(output.channels)
    for each in (*node.required, node.outputs[0]):
        if context.value(each).shape != output.shape:
            return 1
        layout = context.layout(each)
        if layout.pixel_stride != lanes or layout.channel_stride != 1:
            return 1
    most = min(_MOST_JOINED, output.pixels // _LEAST_ROWS)
    return next((count for count in range(most, 1, -1) if output.pixels % count == 0), 1)


FAMILY = spec.Family(
    operators=(*_UNARY, *_BINARY),
    read=_read,
    lower=lower,
    supports=_supports,
    types=dict.fromkeys((*_UNARY, *_BINARY), spec.Types((_BYTES,), (_BYTES,))),
)
