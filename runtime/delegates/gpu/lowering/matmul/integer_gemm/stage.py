"""The stage from sums of products of levels to output levels: its reading from tensors, its constants."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.lowering import spec
from runtime.model.graph import Tensor
from runtime.model.schema import ActivationFunctionType, TensorType
from runtime.model.schema import BuiltinOperator as Op
from runtime.ops.support.quantization import activation_range, quantize_multipliers

_MOST_SUM = 1 << 30
"""Bound of every sum, with which none of the steps behind it leaves 32 bits. Larger ones overflow there."""

_LARGEST_LEVEL = 255
"""The largest byte that is multiplied: a level of int8 without its sign, or of uint8."""

SIGN = 128
"""What is added to an int8 so that it is a byte without a sign; levels of uint8 less so much are int8."""

_ACTIVATIONS = frozenset({"NONE", "RELU", "RELU6", "RELU_N1_TO_1"})


def tensor(facts: spec.OperatorFacts, i: int) -> Tensor:
    """Input i."""
    return facts.graph.subgraph.tensors[facts.operator.inputs[i]]


def output(facts: spec.OperatorFacts) -> Tensor:
    """Return the operator's output."""
    return facts.graph.subgraph.tensors[facts.operator.outputs[0]]


def stage_refusal(facts: spec.OperatorFacts, channels: int, axis: int) -> Unsupported | None:
    """Return why a filter's output stage, `channels` along `axis`, cannot be exact, or None."""
    weights, bias = facts.constant(1), facts.constant(2)
    if weights is None or (facts.has_input(2) and bias is None):
        return Unsupported("filter and bias of integers must be constant")
    if spec.activation_of(facts) not in _ACTIVATIONS:
        return Unsupported(f"the fused activation {spec.activation_of(facts)} has no kernel")
    q = tensor(facts, 1).quantization
    if levels_of(tensor(facts, 0)) is None or levels_of(output(facts)) is None or q is None:
        return Unsupported("input, filter and output of integers must have scales")
    is_signed = tensor(facts, 0).type is TensorType.INT8
    if (is_signed and any(q.zero_points)) or len(q.scales) not in ((1, channels) if is_signed else (1,)):
        return Unsupported(
            "a filter with a zero point, or with other scales than one for each output, has no kernel"
        )
    middle = 0 if is_signed else SIGN
    others = tuple(a for a in range(weights.ndim) if a != axis % weights.ndim)
    sizes = np.abs(weights.astype(np.int64) - middle) + abs(q.zero_points[0] - middle)
    # The worst case: the largest byte under every weight.
    sizes = _LARGEST_LEVEL * sizes.sum(axis=others)
    sizes += 0 if bias is None else np.abs(bias.reshape(-1).astype(np.int64))
    # Half of the bound, 2^29, which `_MOST_RIGHT` relies on.
    return Unsupported("sums of products could leave 30 bits") if sizes.max() >= _MOST_SUM // 2 else None


def stage_attributes(facts: spec.OperatorFacts, channels: int) -> Mapping[str, Any]:
    """`scales`: in * filter / out of each output, `single_scales` in float32; zero points; bounds.

    `sign` is what is added to output levels of uint8, whose bounds and zero point are less 128; else 0.
    """
    given, made = levels_of(tensor(facts, 0)), levels_of(output(facts))
    q = tensor(facts, 1).quantization
    if given is None or made is None or q is None:
        raise ValueError("an operator was accepted without scales")
    element = tensor(facts, 0).type
    products = np.float32(given.scale) * np.array(q.scales, np.float32)
    scales = [given.scale * scale / made.scale for scale in q.scales]
    if element is TensorType.UINT8 and facts.operator.opcode is not Op.FULLY_CONNECTED:
        # `GetQuantizedConvolutionMultipler` of LiteRT multiplies the two in single precision.
        scales = [float(product) / made.scale for product in products]
    kind = ActivationFunctionType[spec.activation_of(facts)]
    low, high = activation_range(kind, made.scale, made.zero_point, element)
    sign = SIGN if element is TensorType.UINT8 else 0
    return {
        "scales": tuple(scales * channels if len(scales) == 1 else scales),
        "single_scales": tuple(np.broadcast_to(products / np.float32(made.scale), channels).tolist()),
        "in_zero_point": given.zero_point,
        "filter_zero_point": q.zero_points[0],
        "zero_point": made.zero_point - sign,
        "low": low - sign,
        "high": high - sign,
        "sign": sign,
    }


def bounds(attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return the output's parameters of the kernels."""
    return {"ZERO_POINT": attributes["zero_point"], "LOW": attributes["low"], "HIGH": attributes["high"]}


def border_bytes(level: int, pixels: int) -> spec.Array:
    """Return so many bytes of a level, int8 or uint8, as int8."""
    return np.full(pixels, level).astype(np.uint8).view(np.int8)


class Stage(Enum):
    """From sums to levels in a kernel, or with REALS to reals; values are its define in `integer_gemm`."""

    DOUBLES = 0
    SHIFTS = 1
    FACTORS = 2
    REALS = 3
    FLOATS = 4


ROWS = {Stage.DOUBLES: 3, Stage.SHIFTS: 4, Stage.FACTORS: 5, Stage.REALS: 3, Stage.FLOATS: 2}
"""Ints of an output among the rows of a stage."""

_MOST_RIGHT = 22
"""Largest shift to the right of `Stage.FACTORS`: with it a sum below 2^29, half of the rounding and the zero
point together stay below 2^31."""

_UNUSED_SCALE = 0.25
"""The scale of lanes behind the last output, whose levels nobody reads: one that every stage takes."""


def stage_of(scales: Sequence[float], context: spec.Context, *, is_rounded_once: bool = False) -> Stage:
    """Return the fastest stage that has the bits of the reference, or of XNNPACK where these are wanted.

    The reference rounds twice, but the sums of a fully connected layer once.
    """
    if context.rounding == "xnnpack":
        return Stage.FLOATS
    return Stage.DOUBLES if is_rounded_once else reference_stage(scales)


def reference_stage(scales: Sequence[float]) -> Stage:
    """Return the fastest stage with the bits of the reference that rounds twice."""
    _, shifts = quantize_multipliers(scales)
    return Stage.FACTORS if shifts.min() >= -_MOST_RIGHT and shifts.max() < 0 else Stage.SHIFTS


def stage_rows(
    stage: Stage, offsets: spec.Array, attributes: Mapping[str, Any], lanes: spec.Array
) -> spec.Array:
    """Return the rows of a stage for the outputs in `lanes`, int32, the offsets in front; flat.

    Lanes may go on behind the last output, and come in pairs of an even one and the next.
    """
    missing = max(0, int(lanes.max()) + 1 - len(offsets))
    offsets = np.pad(offsets, (0, missing))[lanes]
    scales = np.pad(attributes["scales"], (0, missing), constant_values=_UNUSED_SCALE)[lanes]
    if stage is Stage.FLOATS:
        singles = np.pad(attributes["single_scales"], (0, missing))[lanes]
        return np.concatenate([offsets.astype(np.int32), singles.astype(np.float32).view(np.int32)])
    if stage is Stage.DOUBLES:
        return np.concatenate([offsets.astype(np.int32), scales.view(np.int32)])
    multipliers, shifts = quantize_multipliers(scales.tolist())
    if stage is Stage.SHIFTS:
        rows = (offsets, multipliers, np.maximum(shifts, 0), np.maximum(-shifts, 0))
        return np.concatenate(rows).astype(np.int32)
    return _factor_rows(offsets, multipliers, -shifts, attributes["zero_point"])


def _factor_rows(
    offsets: spec.Array, multipliers: spec.Array, right: spec.Array, zero_point: int
) -> spec.Array:
    """Offsets that leave no sum a sign; twice the multipliers; what is added to products; shifts.

    A product is (sum + 2^31) * 2 multiplier, of 64 bits: 2^32 multiplier too many, which its high half shows.
    """
    # Half of the second rounding, and the zero point; -1 for ties of negative sums, which the kernel undoes
    # for others by their sign; minus the multiplier, which is what the added 2^31 leaves in the high half.
    high = (1 << (right - 1)) + (zero_point << right) - 1 - multipliers
    # Modulo 2^64, as the device adds.
    added = (high << 32) + (1 << 31)
    rows = (offsets + (1 << 31), 2 * multipliers, right)
    biased, doubled, shifts = (row.astype(np.uint32).view(np.int32) for row in rows)
    # Products of 64 bits are formed from the even lanes of a vector of ints, then from the odd ones.
    even, odd = (np.ascontiguousarray(added[first::2]).view(np.int32) for first in (0, 1))
    return np.concatenate([biased, doubled, even, odd, shifts])
