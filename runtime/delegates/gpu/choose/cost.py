"""Estimates from shapes the costs of operators, here and on the CPU path, and of a run of a partition.

A roofline without overlap: the fixed cost of an operator, its arithmetic and the bytes that it moves. The
figures decide only whether a small group of operators is worth a partition, where they differ by factors;
nothing is timed when a model is planned, so that one file always gives one report.

Measured once, with PoCL on two cores of a processor with AVX-512, as the shortest of many runs: chains of 1
and of 21 operators for what one costs, and inputs and outputs of 64 bytes and of 16 MB for the border. A
device with memory of its own pays more at the border; the choice then keeps some groups that hardly pay.
"""

from collections.abc import Sequence
from math import prod
from typing import Final

from runtime.delegates.base import GraphFacts
from runtime.model.arithmetic import operator_macs
from runtime.model.graph import Operator

CPU_CALL_NS: Final = 2000.0
"""Nanoseconds of a CPU kernel on very small tensors: 320 to 500 for movements, 1300 to 8100 for arithmetic.
Larger delegates more small operators."""
CPU_MACS_PER_NS: Final = 30.0
"""Multiply-accumulates of a CPU kernel in a nanosecond, of a convolution on 56 x 56 x 64; 23 to 41 were
measured. Larger leaves more convolutions to the CPU path."""
CPU_BYTES_PER_NS: Final = 8.0
"""Bytes that a CPU kernel reads and writes in a nanosecond, of 32 MB in a window operator. Larger leaves more
operators without arithmetic to the CPU path."""

LAYER_NS: Final = 2000.0
"""Nanoseconds of a layer on very small tensors, 1900 measured. Larger delegates fewer small operators."""
MACS_PER_NS: Final = 120.0
"""Multiply-accumulates of the kernels in a nanosecond, of the same convolution; 160 were measured with both
cores free. Larger delegates more convolutions."""
BYTES_PER_NS: Final = 16.0
"""Bytes that the kernels read and write in a nanosecond, of the same window operator; up to 29 were measured,
where a cache held a part. Larger delegates more operators without arithmetic."""

RUN_NS: Final = 20_000.0
"""Nanoseconds from the call to an invoke of one small layer and back, without that layer. Larger leaves more
small partitions to the CPU path."""
TRANSFER_NS: Final = 1600.0
"""Nanoseconds of each tensor that is copied in or out, besides its bytes: ten more of each cost 33 us. Larger
leaves more partitions with many borders to the CPU path."""
TRANSFER_BYTES_PER_NS: Final = 8.0
"""Bytes that are copied in or out in a nanosecond, of 32 MB. Larger delegates more operators whose tensors
are large and whose arithmetic is small."""


class OperatorCosts:
    """The estimates of one delegate; see `runtime.delegates.base.CostModel`."""

    def saved_ns(self, graph: GraphFacts, operator: Operator) -> float:
        """Nanoseconds that the kernels need less than the CPU path for an operator of known shapes."""
        macs = operator_macs(operator, graph.subgraph, graph.shapes)
        # A set: what an operator reads twice, as in x * x, comes from memory once.
        touched = {t for t in (*operator.inputs, *operator.outputs) if t >= 0}
        moved = sum(_bytes(graph, tensor) for tensor in touched)
        on_the_cpu = CPU_CALL_NS + macs / CPU_MACS_PER_NS + moved / CPU_BYTES_PER_NS
        return on_the_cpu - (LAYER_NS + macs / MACS_PER_NS + moved / BYTES_PER_NS)

    def entry_ns(self, graph: GraphFacts, inputs: Sequence[int], outputs: Sequence[int]) -> float:
        """Nanoseconds of a run of a partition besides its layers."""
        tensors = (*inputs, *outputs)
        moved = sum(_bytes(graph, tensor) for tensor in tensors)
        return RUN_NS + len(tensors) * TRANSFER_NS + moved / TRANSFER_BYTES_PER_NS


def _bytes(graph: GraphFacts, tensor: int) -> int:
    return prod(graph.shapes[tensor]) * graph.dtypes[tensor].itemsize
