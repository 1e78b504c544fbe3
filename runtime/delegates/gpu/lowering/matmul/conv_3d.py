"""CONV_3D with a constant filter: as CONV_2D where one of its windows is flat, else by a kernel of its own.

x [N, D, H, W, Ci], filter [kd, kh, kw, Ci, Co], bias [Co]. A filter of one frame is a CONV_2D of N * D
images; one of a single pixel in each frame is a CONV_2D of images that are D high and H * W wide.
"""

from math import prod

import numpy as np

from runtime.delegates.gpu.graph.graph import Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.work_groups import QUAD, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.family import constants_refusal, window_candidates
from runtime.delegates.gpu.lowering.matmul.conv.groups import tiled_product
from runtime.delegates.gpu.lowering.matmul.conv.left_side import GroupProduct, LeftSide
from runtime.delegates.gpu.lowering.matmul.conv.shape import ConvShape, bias_of, work_of
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile, best_tiles
from runtime.delegates.gpu.lowering.matmul.conv.weights import Weights, panels, weights_of
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding

_AXES = ("D", "H", "W")


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Strides, dilations and padding before and behind, each for depth, height and width."""
    options, inputs = facts.options, facts.operator.inputs
    same = Padding(options["padding"]) is Padding.SAME
    strides = tuple(int(options[f"stride_{axis.lower()}"]) for axis in _AXES)
    dilations = tuple(int(options.get(f"dilation_{axis.lower()}_factor", 1)) for axis in _AXES)
    before, behind = [], []
    for axis in range(3):
        reach = (facts.shape(1)[axis] - 1) * dilations[axis] + 1
        missing = (facts.output_shape()[axis + 1] - 1) * strides[axis] + reach - facts.shape(0)[axis + 1]
        total = max(missing, 0) if same else 0
        # An odd cell goes behind, as in LiteRT's `kernels/padding.h`.
        before.append(total // 2)
        behind.append(total - total // 2)
    bias = inputs[2] if facts.has_input(2) else -1
    attributes = {"strides": strides, "dilations": dilations, "before": before, "behind": behind}
    return spec.NodeSpec((*inputs[:2], bias), attributes, spec.activation_of(facts))


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """Return the candidates of CONV_2D for a flat window, else tiles over all taps."""
    flat = _flat_shape(node, context)
    if flat is not None:
        return window_candidates(node, context, flat)
    (_, filter_id, _), (target,) = node.filtered, node.outputs
    if suits_groups(context.device):
        return _in_groups(node, context)
    *taps, depth, _ = context.value(filter_id).shape
    after = context.value(target)
    tiles = best_tiles(after.pixels, after.channels, prod(taps) * depth, context.device)
    return [_direct(node, context, tile) for tile in tiles]


def _weights(node: Node, context: spec.Context) -> Weights:
    _, filter_id, bias = node.filtered
    return weights_of(context.value(filter_id), 4, lambda: bias_of(bias, context))


def _flat_shape(node: Node, context: spec.Context) -> ConvShape | None:
    """Return the convolution as one of two dimensions; None if all three take part."""
    (source, filter_id, _), (target,) = node.filtered, node.outputs
    images, *sizes, channels = context.value(source).shape
    _, *outs, out_channels = context.value(target).shape
    taps = context.value(filter_id).shape[:3]
    a = node.attributes
    # Axes along which an output reads its own place alone; a single tap has no dilation.
    trivial = [
        (taps[axis], a["strides"][axis], a["before"][axis], a["behind"][axis]) == (1, 1, 0, 0)
        for axis in range(3)
    ]
    if trivial[0]:
        images, first, second = images * sizes[0], 1, 2
        heights, widths = (sizes[1], outs[1]), (sizes[2], outs[2])
    elif trivial[1] and trivial[2]:
        first, second = 0, 1
        heights, widths = (sizes[0], outs[0]), (sizes[1] * sizes[2], outs[1] * outs[2])
    else:
        return None
    extents = (taps[first], taps[second])

    def flat(codes: spec.Array) -> spec.Array:
        return codes.transpose(4, 0, 1, 2, 3).reshape(out_channels, *extents, channels)

    return ConvShape(
        source=source,
        target=target,
        weights=_weights(node, context).arranged(flat),
        images=images,
        in_h=heights[0],
        in_w=widths[0],
        in_channels=channels,
        out_h=heights[1],
        out_w=widths[1],
        out_channels=out_channels,
        filter_h=extents[0],
        filter_w=extents[1],
        group_in=channels,
        stride_h=a["strides"][first],
        stride_w=a["strides"][second],
        dilation_h=a["dilations"][first],
        dilation_w=a["dilations"][second],
        pad_top=a["before"][first],
        pad_left=a["before"][second],
        pad_bottom=a["behind"][first],
        pad_right=a["behind"][second],
        in_layout=context.layout(source),
        out_layout=context.layout(target),
    )


def _direct(node: Node, context: spec.Context, tile: Tile) -> spec.Candidate:
    """One launch; cells outside of the volume are read from a row of zeros."""
    (source, filter_id, _), (target,) = node.filtered, node.outputs
    before, after, weights = (context.value(v) for v in (source, target, filter_id))
    taps, channels = weights.shape[:3], before.channels
    count = ceil_div(after.channels, tile.columns)
    rows = prod(taps) * channels

    def pack(codes: spec.Array) -> spec.Array:
        return panels(codes.reshape(rows, after.channels), tile.columns)

    found = _weights(node, context)
    packed_weights = found.panels(f"weights{target}", count, rows, tile.columns, pack)
    window: dict[str, int] = {}
    for axis, letter in enumerate(_AXES):
        window |= {
            f"IN_{letter}": before.shape[axis + 1],
            f"OUT_{letter}": after.shape[axis + 1],
            f"FILTER_{letter}": taps[axis],
            f"STRIDE_{letter}": node.attributes["strides"][axis],
            f"DILATION_{letter}": node.attributes["dilations"][axis],
            f"PAD_{letter}": node.attributes["before"][axis],
        }
    name = "x".join(map(str, taps))
    zeros = spec.PackedConstant("zeros", channels, lambda: np.zeros(channels, np.float32))
    launch = context.launch(
        node,
        spec.function(
            "matmul/conv_3d.cl",
            spec.instance_name("conv_3d", tile.name, found.type),
            {"TILE_M": tile.rows, "TILE_N": tile.columns, "WEIGHT": found.type.value},
            **window,
            **tile.order(after.pixels, after.channels, packed_weights.bytes),
            M=after.pixels,
            K=channels,
            CHANNELS=round_up(after.channels),
            **context.strides(IN=source, OUT=target),
        ),
        (source, packed_weights, zeros, target),
        tile.units(after.pixels, after.channels),
        work_of(f"{name} {after.extents}", after.pixels, before, weights, after),
    )
    return spec.Candidate(f"direct_{tile.name}", (launch,))


def _in_groups(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """Return the product of windows in work-groups, whose pixels and taps lie in frames."""
    (source, filter_id, _), (target,) = node.filtered, node.outputs
    before, after, weights = (context.value(v) for v in (source, target, filter_id))
    *taps, channels, columns = weights.shape
    width = round_up(channels, QUAD)
    rows = prod(taps) * width

    def matrix(codes: spec.Array) -> spec.Array:
        padded = np.pad(codes, ((0, 0), (0, 0), (0, 0), (0, width - channels), (0, 0)))
        return padded.reshape(rows, columns)

    a, layout = node.attributes, context.layout(source)
    values = {f"PAD_{name}": a["before"][axis] for axis, name in enumerate(("FRONT", "TOP", "LEFT"))}
    for axis, letter in enumerate(_AXES):
        values |= {f"IN_{letter}": before.shape[axis + 1]}
        values |= {f"STRIDE_{letter}": a["strides"][axis], f"DILATION_{letter}": a["dilations"][axis]}
    values |= {
        **divisor("OUT_D", after.shape[1]),
        **divisor("OUT_PIXELS", after.shape[2] * after.shape[3]),
        **divisor("OUT_W", after.shape[3]),
        **divisor("FILTER_H", taps[1]),
        **divisor("FILTER_W", taps[2]),
        **divisor("DEPTH", width),
    }
    aligned = layout.channel_stride == 1 and layout.pixel_stride % QUAD == 0 and width <= layout.pixel_stride
    left = LeftSide("volume", layout.pixel_stride, layout.channel_stride, channels, aligned, values=values)
    matrix_of_weights = _weights(node, context).arranged(matrix)
    work = work_of(f"{'x'.join(map(str, taps))} {after.extents}", after.pixels, before, weights, after)
    product = GroupProduct(left, matrix_of_weights, after.pixels, rows, columns, work)
    return tiled_product(node, context, product)


FAMILY = spec.Family(
    operators=(Op.CONV_3D,), read=_read, lower=lower, supports=constants_refusal, epilogue=True
)
