"""The stage from sums of products of levels to output levels: its reading from tensors, its constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.lowering.spec import Array, OperatorFacts, activation_of
from runtime.model.graph import Tensor
from runtime.model.schema import ActivationFunctionType, TensorType
from runtime.ops.support.quantization import activation_range, quantize_multipliers

_MOST_SUM = 1 << 30
"""Bound of every sum, with which none of the steps behind it leaves 32 bits. Larger ones overflow there."""

_LARGEST_LEVEL = 255
"""The largest byte that is multiplied: a level of int8 without its sign."""

_ACTIVATIONS = frozenset({"NONE", "RELU", "RELU6", "RELU_N1_TO_1"})


def tensor(facts: OperatorFacts, i: int) -> Tensor:
    """Input i."""
    return facts.graph.subgraph.tensors[facts.operator.inputs[i]]


def output(facts: OperatorFacts) -> Tensor:
    """Return the operator's output."""
    return facts.graph.subgraph.tensors[facts.operator.outputs[0]]


def stage_refusal(facts: OperatorFacts, channels: int, axis: int) -> Unsupported | None:
    """Return why the output stage of a filter with `channels` outputs along `axis` cannot be exact, or
    None.
    """
    weights, bias = facts.constant(1), facts.constant(2)
    if weights is None or (facts.has_input(2) and bias is None):
        return Unsupported("filter and bias of integers must be constant")
    if activation_of(facts) not in _ACTIVATIONS:
        return Unsupported(f"the fused activation {activation_of(facts)} has no kernel")
    q = tensor(facts, 1).quantization
    if levels_of(tensor(facts, 0)) is None or levels_of(output(facts)) is None or q is None:
        return Unsupported("input, filter and output of integers must have scales")
    if any(q.zero_points) or len(q.scales) not in (1, channels):
        return Unsupported(
            "a filter with a zero point, or with other scales than one for each output, has no kernel"
        )
    others = tuple(a for a in range(weights.ndim) if a != axis % weights.ndim)
    sizes = _LARGEST_LEVEL * np.abs(weights.astype(np.int64)).sum(axis=others)
    sizes += 0 if bias is None else np.abs(bias.reshape(-1).astype(np.int64))
    return Unsupported("sums of products could leave 30 bits") if sizes.max() >= _MOST_SUM // 2 else None


def stage_attributes(facts: OperatorFacts, channels: int) -> Mapping[str, Any]:
    """`scales`: in_scale * filter_scale / out_scale of each output; zero points; bounds of the output."""
    given, made = levels_of(tensor(facts, 0)), levels_of(output(facts))
    q = tensor(facts, 1).quantization
    if given is None or made is None or q is None:
        raise ValueError("an operator was accepted without scales")
    scales = [given.scale * scale / made.scale for scale in q.scales]
    kind = ActivationFunctionType[activation_of(facts)]
    low, high = activation_range(kind, made.scale, made.zero_point, TensorType.INT8)
    return {
        "scales": tuple(scales * channels if len(scales) == 1 else scales),
        "in_zero_point": given.zero_point,
        "zero_point": made.zero_point,
        "low": low,
        "high": high,
    }


def bounds(attributes: Mapping[str, Any]) -> dict[str, int]:
    """Return the output's parameters of the kernels."""
    return {"ZERO_POINT": attributes["zero_point"], "LOW": attributes["low"], "HIGH": attributes["high"]}


def fixed_point_rows(offsets: Array, scales: Sequence[float], width: int) -> Array:
    """Offsets, multipliers, left and right shifts, int32 [4, width], zeros behind the last output."""
    multipliers, shifts = quantize_multipliers(scales)
    rows = np.zeros((4, width), np.int32)
    for row, values in zip(
        rows, (offsets, multipliers, np.maximum(shifts, 0), np.maximum(-shifts, 0)), strict=True
    ):
        row[: len(values)] = values
    return rows


def double_rows(offsets: Array, scales: Sequence[float], width: int) -> Array:
    """Offsets, then the bits of scales in float64, int32 [3, width]; zeros behind the last output."""
    rows = np.zeros((3, width), np.int32)
    rows[0, : len(offsets)] = offsets
    rows[1:].reshape(-1).view(np.float64)[: len(scales)] = scales
    return rows
