"""Convolutions and matrix products of int8 by work-groups, for GPUs."""

from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import FEWEST_ITEMS, GROUP_ITEMS, LocalArray, WorkGroup
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.integer_gemm.product import (
    BYTES_OF_INT,
    Panels,
    Shape,
    constants_of,
)
from runtime.delegates.gpu.lowering.matmul.integer_gemm.stage import SIGN, Stage, bounds, stage_of
from runtime.model.schema import BuiltinOperator as Op

SIDE = 16
"""Work-items along each side of a group, which the kernel holds as well."""

_ROWS = (4, 2, 1)
"""Pixels of a work-item, the most first. Chosen: of larger tiles the networks with int8 have too few."""

_TILE_INTS = 16
"""Ints along the depth that are in local memory at a time, as many as a work-group has along each side."""


def product_in_groups(node: Node, context: spec.Context) -> spec.Candidate:
    """One kernel, with the bits of `product.product`; the outputs are one panel."""
    (source, weights, _), (target,), a = node.filtered, node.outputs, node.attributes
    s = Shape.of(node, context, source, weights)
    width, fours = round_up(s.outputs), ceil_div(s.channels, BYTES_OF_INT)
    rounding = stage_of(a["scales"], context, is_rounded_once=node.op == Op.FULLY_CONNECTED)
    # They have the same bits, and 64 bits of all lanes cost a GPU no more than those of every other one.
    rounding = Stage.SHIFTS if rounding is Stage.FACTORS else rounding
    across = ceil_div(width, SIDE * BYTES_OF_INT)
    items = {rows: across * ceil_div(s.pixels, SIDE * rows) * GROUP_ITEMS for rows in _ROWS}
    rows = next((rows for rows in _ROWS if items[rows] >= FEWEST_ITEMS), _ROWS[-1])
    sizes = {name: value for name, value in s.parameters.items() if name not in _UNUSED}
    arrays = (
        LocalArray("tile_left", "int4", SIDE * rows * _TILE_INTS // BYTES_OF_INT),
        LocalArray("tile_right", "int4", SIDE * _TILE_INTS),
    )
    launch = context.launch(
        node,
        spec.function(
            "matmul/integer_gemm/product_groups.cl",
            f"i8_groups_integer_gemm_product__m{SIDE * rows}n{SIDE * BYTES_OF_INT}",
            {"ROWS": rows, "STAGE": rounding.value},
            WorkGroup((SIDE, SIDE, 1), arrays),
            **bounds(a),
            **sizes,
            **divisor("DEPTH", fours),
            **divisor("FILTER_W", s.filter_w),
            **divisor("OUT_PIXELS", s.out_h * s.out_w),
            **divisor("OUT_W", s.out_w),
            K=s.taps * fours,
            CHANNELS=width,
            # The zero point in all four bytes of an int, made unsigned as the kernel does with the input.
            OUTSIDE=int.from_bytes(bytes([a["in_zero_point"] + SIGN] * BYTES_OF_INT), "little", signed=True),
            IN_STRIDE=context.layout(source).pixel_stride // BYTES_OF_INT,
            OUT_STRIDE=context.layout(target).pixel_stride,
        ),
        (
            source,
            *constants_of(node, context, s, Panels(width, width // LANES, rows, fours), rounding),
            target,
        ),
        (across, ceil_div(s.pixels, SIDE * rows), 1),
        spec.Work(s.label, s.flops, s.images * s.in_h * s.in_w * s.channels + s.pixels * s.outputs),
    )
    return spec.Candidate(f"groups_m{SIDE * rows}", (launch,))


_UNUSED = frozenset({"OUT_H", "OUT_W", "FILTER_H", "FILTER_W"})
"""Sizes that the kernel does not read, or reads as divisors."""
