"""TRANSPOSE_CONV with a constant filter: each output pixel gathers the taps that reach it, by phase.

Output pixels whose positions have equal remainders by the strides form a phase. Its pixels read neighbouring
inputs through the same taps: together they are a convolution with stride 1.
"""

from dataclasses import dataclass

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node, Value, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import QUAD, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.groups import tiled_product
from runtime.delegates.gpu.lowering.matmul.conv.left_side import GroupProduct, LeftSide
from runtime.delegates.gpu.lowering.matmul.conv.shape import bias_of, work_of
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile, best_tiles
from runtime.delegates.gpu.lowering.matmul.conv.weights import filter_matrix, panels, weights_of
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding


@dataclass(frozen=True, slots=True)
class _Axis:
    """One spatial dimension: `cut` rows of the whole extent are cut off in front of the `out` rows."""

    size: int
    taps: int
    stride: int
    out: int
    cut: int

    @property
    def phases(self) -> int:
        """Remainders of output positions; fewer than the stride where the output is shorter."""
        return min(self.stride, self.out)

    @property
    def steps(self) -> int:
        """Output positions of the longest phase."""
        return ceil_div(self.out, self.stride)

    @property
    def most_taps(self) -> int:
        """Taps of the phase that has most."""
        return ceil_div(self.taps, self.stride)

    def parameters(self, letter: str) -> dict[str, int]:
        """Return the numbers as the kernel calls them."""
        return {
            f"IN_{letter}": self.size,
            f"OUT_{letter}": self.out,
            f"FILTER_{letter}": self.taps,
            f"CUT_{letter}": self.cut,
            **divisor(f"STRIDE_{letter}", self.stride),
            **divisor(f"PHASES_{letter}", self.phases),
            f"STEPS_{letter}": self.steps,
        }


TRANSPOSED = {0: "the output shape", 1: "the filter", 3: "the bias"}
"""`Family.constants` of transposed convolutions."""


def activation_refusal(facts: spec.OperatorFacts) -> Unsupported | None:
    """Return why a fused activation cannot be a step, or None."""
    if spec.activation_of(facts) == "SIGN_BIT":
        return Unsupported("the fused activation SIGN_BIT has no kernel")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Read the node; the cut is as if the output were convolved to the input (`kernels/padding.h`)."""
    _, *sizes, _ = facts.output_shape()
    attributes: dict[str, int] = {}
    for letter, out, taps in zip("hw", sizes, facts.shape(1)[1:3], strict=True):
        stride = int(facts.options[f"stride_{letter}"])
        same = Padding(facts.options["padding"]) is Padding.SAME
        # VALID: (out - taps + 1) / stride, rounded up, as `ComputeOutSize` of `kernels/padding.h` has it.
        steps = ceil_div(out, stride) if same else (out + stride - taps) // stride
        cut = max(0, (steps - 1) * stride + taps - out) // 2
        attributes |= {f"stride_{letter}": stride, f"cut_{letter}": cut}
    inputs = facts.operator.inputs
    bias = inputs[3] if facts.has_input(3) else -1
    return spec.NodeSpec((inputs[2], inputs[1], bias), attributes, spec.activation_of(facts))


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """Return the cheapest tile of a phase, and one of another width if the cost model sees no difference.

    The node's inputs are the image [N, H, W, I], the filter [O, h, w, I] and the bias [O] or None.
    """
    source, filter_id, _ = node.filtered
    before, after = context.value(source), context.value(node.outputs[0])
    _, *taps, channels = context.value(filter_id).shape
    rows, columns = (
        _Axis(
            before.shape[axis],
            taps[axis - 1],
            node.attributes[f"stride_{letter}"],
            after.shape[axis],
            node.attributes[f"cut_{letter}"],
        )
        for axis, letter in ((1, "h"), (2, "w"))
    )
    if suits_groups(context.device):
        return _in_groups(node, context, rows, columns)
    pixels = before.shape[0] * rows.steps * columns.steps
    depth = rows.most_taps * columns.most_taps * channels
    tiles = best_tiles(pixels, after.channels, depth, context.device)
    return [_gather(node, context, rows, columns, tile) for tile in tiles]


def _gather(node: Node, context: spec.Context, rows: _Axis, columns: _Axis, tile: Tile) -> spec.Candidate:
    """One launch for all phases. Inputs outside of the image are read from a row of zeros."""
    (source, filter_id, bias), (target,) = node.filtered, node.outputs
    before, after, weights = (context.value(v) for v in (source, target, filter_id))
    channels, taps = before.channels, rows.taps * columns.taps
    pixels = before.shape[0] * rows.steps * columns.steps
    count, phases = tile.panels(after.channels), rows.phases * columns.phases

    def pack(codes: spec.Array) -> spec.Array:
        return panels(filter_matrix(codes, channels), tile.columns)

    found = weights_of(weights, 0, lambda: bias_of(bias, context))
    packed_weights = found.panels(f"weights{target}", count, taps * channels, tile.columns, pack)
    zeros = spec.PackedConstant("zeros", channels, lambda: np.zeros(channels, np.float32))
    launch = context.launch(
        node,
        spec.function(
            "matmul/transpose_conv.cl",
            spec.instance_name("transpose_conv", tile.name, found.type),
            {"TILE_M": tile.rows, "TILE_N": tile.columns, "WEIGHT": found.type.value},
            **rows.parameters("H"),
            **columns.parameters("W"),
            **divisor("PHASES", phases),
            **tile.order(pixels, after.channels, packed_weights.bytes, phases),
            M=pixels,
            K=channels,
            CHANNELS=round_up(after.channels),
            **context.strides(IN=source, OUT=target),
        ),
        (source, packed_weights, zeros, target),
        phases * tile.units(pixels, after.channels),
        work_of(_note(rows, columns, after), before.pixels, before, weights, after),
    )
    return spec.Candidate(f"phases_{tile.name}", (launch,))


def _in_groups(node: Node, context: spec.Context, rows: _Axis, columns: _Axis) -> list[spec.Candidate]:
    """Return a product in work-groups for each phase, whose left side are the inputs under its taps."""
    (source, filter_id, bias), (target,) = node.filtered, node.outputs
    before, after, weights = (context.value(v) for v in (source, target, filter_id))
    layout, channels, width = context.layout(source), before.channels, round_up(before.channels, QUAD)
    phases = rows.phases * columns.phases
    pixels = before.shape[0] * rows.steps * columns.steps
    depth = rows.most_taps * columns.most_taps * width

    def matrix(codes: spec.Array) -> spec.Array:
        found = np.zeros(
            (rows.phases, columns.phases, rows.most_taps, columns.most_taps, width, after.channels),
            codes.dtype,
        )
        for y, x in np.ndindex(rows.phases, columns.phases):
            # Output y is row y + cut of the whole extent, and only taps of the same remainder reach it.
            first_y, first_x = (y + rows.cut) % rows.stride, (x + columns.cut) % columns.stride
            taps = codes[:, first_y :: rows.stride, first_x :: columns.stride].transpose(1, 2, 3, 0)
            found[y, x, : taps.shape[0], : taps.shape[1], :channels] = taps
        return found.reshape(-1, after.channels)

    left = LeftSide(
        "phases",
        layout.pixel_stride,
        layout.channel_stride,
        channels,
        layout.channel_stride == 1 and layout.pixel_stride % QUAD == 0 and width <= layout.pixel_stride,
        phases=phases,
        pixels=after.pixels,
        values={
            "IN_H": rows.size,
            "IN_W": columns.size,
            "OUT_H": rows.out,
            "WIDTH": columns.out,
            "TAPS_H": rows.taps,
            "TAPS_W": columns.taps,
            "CUT_H": rows.cut,
            "CUT_W": columns.cut,
            **divisor("STRIDE_H", rows.stride),
            **divisor("STRIDE_W", columns.stride),
            **divisor("PHASES_W", columns.phases),
            **divisor("OUT_PIXELS", rows.steps * columns.steps),
            **divisor("OUT_W", columns.steps),
            **divisor("FILTER_W", columns.most_taps),
            **divisor("DEPTH", width),
        },
    )
    found = weights_of(weights, 0, lambda: bias_of(bias, context)).arranged(matrix)
    work = work_of(_note(rows, columns, after), before.pixels, before, weights, after)
    product = GroupProduct(left, found, pixels, depth, after.channels, work)
    return tiled_product(node, context, product)


def _note(rows: _Axis, columns: _Axis, after: Value) -> str:
    return f"{rows.taps}x{columns.taps}s{rows.stride} {after.extents}"


FAMILY = spec.Family(
    operators=(Op.TRANSPOSE_CONV,),
    read=_read,
    lower=lower,
    supports=activation_refusal,
    constants=TRANSPOSED,
    epilogue=True,
    parameters=(0,),
)
