"""Products and convolutions by work-items that are lanes of a processor's vectors."""

import numpy as np

from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import LANE_ITEMS, QUAD, WorkGroup
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.left_side import GroupProduct, LeftSide

_PIXELS = (1, 2, 4, 8, 16)
"""Pixels that a work-item may have, each of which uses a weight that was loaded once. More make long kernels,
whose sums no registers hold."""

_WEIGHTS, _PIXEL = 16, 1.7
"""What four k cost a work-item, in loads of a vector of four: those of 16 columns of weights, and for each of
its pixels one and the sums. Of a profile on Mesa's lavapipe, which loads lane by lane."""


def suits_lanes(left: LeftSide) -> bool:
    """Return True if the kernel knows this form of the left side."""
    return left.kind in ("rows", "window") and left.members == 1 and left.scale is None


def in_lanes(node: Node, context: spec.Context, product: GroupProduct) -> spec.Candidate:
    """Return a product of one launch."""
    left, weights, rows, columns = product.left, product.weights, product.rows, product.columns
    target, channels = node.outputs[0], round_up(columns)
    # The kernel takes four k at a time, so rows of zeros follow the last.
    padded = round_up(product.depth, QUAD)
    matrix = weights.arranged(lambda codes: np.pad(codes, ((0, padded - len(codes)), (0, 0))))
    right = matrix.rows(f"weights{target}", padded, columns)
    pixels = _pixels(rows, channels // LANES, context.device.compute_units)
    launch = context.launch(
        node,
        spec.function(
            "matmul/conv/gemm_lanes.cl",
            spec.instance_name("lanes_gemm", f"p{pixels}", weights.type),
            {
                "PIXELS": pixels,
                "ITEMS": LANE_ITEMS,
                "VECTOR_LOADS": left.is_aligned,
                "TAIL": left.channels % QUAD > 0,
                "WEIGHT": weights.type.value,
            },
            WorkGroup((LANE_ITEMS, 1)),
            M=rows,
            N=columns,
            K=padded,
            CHANNELS=channels,
            IN_CHANNELS=left.channels,
            LEFT_ROW=left.row,
            LEFT_STEP=left.step,
            OUT_STRIDE=context.layout(target).pixel_stride,
            **(left.values or _one_line(rows, padded)),
        ),
        (node.first, right, target),
        (channels // LANES, ceil_div(rows, pixels * LANE_ITEMS)),
        product.work,
    )
    return spec.Candidate(f"lanes_p{pixels}", (launch,))


def _pixels(rows: int, blocks: int, workers: int) -> int:
    """Return the pixels of a work-item that cost least, of those that leave no worker idle."""
    groups = {count: ceil_div(rows, count * LANE_ITEMS) for count in _PIXELS}
    # Where even single pixels leave workers idle, these leave the fewest.
    busy = [count for count in _PIXELS if blocks * groups[count] >= workers] or [_PIXELS[0]]
    return min(busy, key=lambda count: groups[count] * (_WEIGHTS + _PIXEL * count))


def _one_line(rows: int, depth: int) -> dict[str, int]:
    """Return the parameters of a window of 1 x 1 for rows as pixels of one line."""
    return {
        "IN_H": 1,
        "IN_W": rows,
        **dict.fromkeys(("STRIDE_H", "STRIDE_W", "DILATION_H", "DILATION_W"), 1),
        **dict.fromkeys(("PAD_TOP", "PAD_LEFT"), 0),
        **divisor("OUT_PIXELS", rows),
        **divisor("OUT_W", rows),
        **divisor("FILTER_W", 1),
        **divisor("DEPTH", depth),
    }
