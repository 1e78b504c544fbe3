"""The physical bound: below it a latency is a lie, and no honest one ever falls below it."""

from __future__ import annotations

import pytest

from runtime.judge.plausibility import Device, implausible, needed_operations, shortest_ms
from runtime.judge.rules import Arithmetic
from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType


def graph(opcode, filter_shape, output_shape, **options):
    tensors = (
        Tensor(0, "x", TensorType.FLOAT32, (1, 8, 8, 4)),
        Tensor(1, "w", TensorType.FLOAT32, filter_shape),
        Tensor(2, "y", TensorType.FLOAT32, output_shape),
    )
    return Subgraph(0, "main", tensors, (0,), (2,), (Operator(0, opcode, 1, (0, 1), (2,), options),))


@pytest.mark.parametrize(
    ("made", "operations"),
    [
        (graph(BuiltinOperator.CONV_2D, (16, 1, 1, 4), (1, 8, 8, 16), stride_h=1, stride_w=1), 2 * 1024 * 4),
        (graph(BuiltinOperator.CONV_2D, (16, 3, 3, 4), (1, 4, 4, 16), stride_h=2, stride_w=2), 2 * 256 * 36),
        (
            graph(BuiltinOperator.CONV_2D, (16, 3, 3, 4), (1, 8, 8, 16), stride_h=1, stride_w=1),
            2 * 1024 * 36 / 5,
        ),
        (graph(BuiltinOperator.DEPTHWISE_CONV_2D, (1, 3, 3, 4), (1, 8, 8, 4)), 2 * 256 * 9),
        (graph(BuiltinOperator.FULLY_CONNECTED, (10, 256), (1, 10)), 2 * 10 * 256),
        (graph(BuiltinOperator.ADD, (1, 8, 8, 4), (1, 8, 8, 4)), 0),
    ],
    ids=["1x1", "3x3_stride2", "3x3_winograd", "depthwise", "fully_connected", "add"],
)
def test_operations_are_counted_from_below(made, operations):
    assert needed_operations(made) == pytest.approx(operations)


def test_bound_depends_on_device_and_arithmetic():
    model = Model(3, "", (graph(BuiltinOperator.FULLY_CONNECTED, (1000, 1000), (1, 1000)),))
    one = shortest_ms(model, Device(1e9), Arithmetic.FLOAT, "fp32")
    assert one == pytest.approx(2.0)
    assert shortest_ms(model, Device(1e9), Arithmetic.INTEGER, "fp32") < one / 10
    assert shortest_ms(model, Device(1e9), Arithmetic.FLOAT, "fp16") < one / 10
    assert shortest_ms(model, Device.opencl_gpu(0, 1500), Arithmetic.FLOAT, "fp32") == 0.0
    assert Device.cpus(2).peak_flops == 2 * Device.cpus(1).peak_flops


def test_only_times_below_the_bound_are_refused():
    assert implausible(None, 1.0) is None
    assert implausible(0.81, 1.0) is None
    assert "before the work is done" in implausible(0.79, 1.0)
    assert implausible(0.001, 0.0) is None
