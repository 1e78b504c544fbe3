"""Finds latencies below what the device's peak rate allows: such a call returned too early."""

import math
from dataclasses import dataclass

from runtime.judge.rules import Arithmetic
from runtime.model.graph import Model, Operator, Subgraph
from runtime.model.schema import BuiltinOperator

MARGIN = 0.8
"""Latencies below this share of the bound are refused: clocks and counts are not known exactly."""

_FLOPS_PER_CPU = 64 * 6.2e9
"""Two 512-bit fused multiply-adds per cycle at a clock no CPU exceeds: fp32, one logical CPU."""

_FLOPS_PER_UNIT_CYCLE = 256
"""The widest OpenCL compute units in use: 128 fp32 lanes with fused multiply-add."""

_NARROW_SPEEDUP = 32.0
"""What matrix units may gain over fp32 on 8- and 16-bit numbers."""

_WINOGRAD_SPEEDUP = 5.0
"""What a 3x3 convolution of stride 1 may save at most (F(6x6, 3x3) with its 64 products for 36 outputs)."""


@dataclass(frozen=True, slots=True)
class Device:
    """Peak fp32 rate in operations per second; None where it is not known."""

    peak_flops: float | None

    @classmethod
    def cpus(cls, count: int) -> "Device":
        """`count` logical CPUs of any make."""
        return cls(count * _FLOPS_PER_CPU)

    @classmethod
    def opencl_gpu(cls, compute_units: int, clock_mhz: int) -> "Device":
        """Describe a GPU by its OpenCL properties."""
        flops = compute_units * clock_mhz * 1e6 * _FLOPS_PER_UNIT_CYCLE
        return cls(flops if flops > 0 else None)


def shortest_ms(model: Model, device: Device, arithmetic: Arithmetic, precision: str) -> float:
    """Return the shortest possible time of one inference in ms; 0 where the device's peak is not known."""
    if device.peak_flops is None:
        return 0.0
    narrow = arithmetic is not Arithmetic.FLOAT or precision != "fp32"
    peak = device.peak_flops * (_NARROW_SPEEDUP if narrow else 1.0)
    # Only the first subgraph: how often the others run is not known,
    # and a lower bound may leave their work out.
    return needed_operations(model.subgraphs[0]) / peak * 1e3


def implausible(p50_ms: float | None, bound_ms: float) -> str | None:
    """Return why a median cannot be true, or None."""
    if p50_ms is None or p50_ms >= MARGIN * bound_ms:
        return None
    return (
        f"p50 of {p50_ms:.4g} ms is shorter than the {bound_ms:.4g} ms that the device's peak rate allows: "
        "the call returns before the work is done"
    )


def needed_operations(graph: Subgraph) -> float:
    """Return the operations of convolutions and matrix products by the cheapest known algorithm."""
    return math.fsum(_operations(graph, operator) for operator in graph.operators)


def _operations(graph: Subgraph, operator: Operator) -> float:
    """Return a lower bound for one operator; 0 for kinds that do not dominate. Filters: OHWI, 1HWC or OI."""
    if operator.opcode not in _PRODUCTS or len(operator.inputs) < 2 or min(operator.inputs[:2]) < 0:
        return 0.0
    filter_shape = graph.tensors[operator.inputs[1]].shape
    output_shape = graph.tensors[operator.outputs[0]].shape
    if not filter_shape or min((*filter_shape, *output_shape), default=0) < 1:
        return 0.0
    if operator.opcode == BuiltinOperator.DEPTHWISE_CONV_2D:
        products = math.prod(filter_shape[1:3])
    else:
        products = math.prod(filter_shape[1:])
    flops = 2.0 * math.prod(output_shape) * products
    return flops / _WINOGRAD_SPEEDUP if _suits_winograd(operator, filter_shape) else flops


_PRODUCTS = (BuiltinOperator.CONV_2D, BuiltinOperator.DEPTHWISE_CONV_2D, BuiltinOperator.FULLY_CONNECTED)


def _suits_winograd(operator: Operator, filter_shape: tuple[int, ...]) -> bool:
    strides = (operator.options.get("stride_h", 1), operator.options.get("stride_w", 1))
    return operator.opcode == BuiltinOperator.CONV_2D and filter_shape[1:3] == (3, 3) and strides == (1, 1)
