"""LiteRT's times of a model's nodes, and which operators of the file they are of."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from runtime.common.profile.model import OperatorTime

_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "product": ("CONV_2D", "FULLY_CONNECTED"),
    "DWConv": ("DEPTHWISE_CONV_2D",),
    "Deconvolution": ("TRANSPOSE_CONV",),
    "Batch Matrix Multiply": ("BATCH_MATMUL",),
    "Average Pooling": ("AVERAGE_POOL_2D",),
    "Max Pooling": ("MAX_POOL_2D",),
    "Softmax": ("SOFTMAX",),
    "Resize Bilinear": ("RESIZE_BILINEAR",),
    "Add": ("ADD",),
    "Multiply": ("MUL",),
}
"""Operators by XNNPACK's kind of node. It runs a convolution of one pixel as a fully connected layer."""


@dataclass(frozen=True, slots=True)
class LiteRtNode:
    """A node that LiteRT ran. `operator`: its index in the file, None where a delegate ran it."""

    name: str
    operator: int | None
    time_ns: float


@dataclass(frozen=True, slots=True)
class LiteRtTimes:
    """Medians of LiteRT's own profiler, with XNNPACK on so many threads; whole microseconds."""

    version: str
    threads: int
    run_ns: float
    nodes: tuple[LiteRtNode, ...]

    def by_operator(self, operators: Iterable[OperatorTime]) -> Mapping[int, float]:
        """Return the ns of the operators whose node is known.

        XNNPACK tells no operator of the file, but keeps their order: the n-th node of a kind is the n-th
        operator of that kind, where there are as many of both. Where it fused or added some, none is.
        """
        found = {node.operator: node.time_ns for node in self.nodes if node.operator is not None}
        left = [one for one in operators if one.index not in found]
        for kind, names in _KINDS.items():
            nodes = [
                node.time_ns for node in self.nodes if node.operator is None and _kind(node.name) == kind
            ]
            same = [one.index for one in left if one.name in names]
            if len(nodes) == len(same):
                found |= dict(zip(same, nodes, strict=True))
        return found


def _kind(name: str) -> str:
    """Return the kind of `Convolution (NHWC, QS8) DWConv`, `Fully Connected (NC, F32) GEMM` or `Add (ND)`."""
    first = name.partition(" (")[0]
    if first in ("Convolution", "Fully Connected"):
        return "DWConv" if name.endswith("DWConv") else "product"
    return first
