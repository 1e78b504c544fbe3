"""CONV_2D: as a matrix product where it is one, else by the kernel that suits window and size."""

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.graph.work_groups import suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.direct import direct_candidates, direct_in_groups
from runtime.delegates.gpu.lowering.matmul.conv.gemm import Product, product_candidates
from runtime.delegates.gpu.lowering.matmul.conv.groups import (
    has_wide_members,
    product_in_groups,
    window_in_groups,
)
from runtime.delegates.gpu.lowering.matmul.conv.scale import scaled_candidates
from runtime.delegates.gpu.lowering.matmul.conv.shape import ConvShape, conv_shape
from runtime.delegates.gpu.lowering.matmul.conv.stem import stem_candidates
from runtime.delegates.gpu.lowering.matmul.conv.weights import filter_matrix
from runtime.delegates.gpu.lowering.matmul.conv.winograd import is_small_map, winograd_candidates
from runtime.delegates.gpu.lowering.matmul.integer_gemm.dynamic_range import convolution, is_quantised
from runtime.delegates.gpu.lowering.windows import MOST_REACH, window_attributes
from runtime.model.schema import BuiltinOperator as Op

_SCALE = 3
"""Position among a node's inputs of the scale per input channel that the pass `fold_scale` adds, after
input, filter and bias; the model's operator has no such input."""


def constants_refusal(facts: spec.OperatorFacts) -> Unsupported | None:
    """Return why filter or bias cannot be packed, or the window not be walked, or None."""
    if facts.constant(1) is None:
        return Unsupported("the filter must be constant")
    if facts.has_input(2) and facts.constant(2) is None:
        return Unsupported("the bias must be constant")
    if spec.activation_of(facts) == "SIGN_BIT":
        return Unsupported("the fused activation SIGN_BIT has no kernel")
    # The depth is CONV_3D's, which shares this test; CONV_2D has no such option.
    dilation = max(int(facts.options.get(f"dilation_{axis}_factor", 1)) for axis in "dhw")
    # Channels of the filter count as if they were a side: that refuses nothing that a model has.
    if dilation * max(facts.shape(1)) > MOST_REACH:
        return Unsupported(f"a window with a dilation of {dilation} has no kernel")
    return None


def read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Read input, filter [_, h, w, _] and bias, the window's attributes and the fused activation."""
    _, filter_h, filter_w, _ = facts.shape(1)
    attributes = window_attributes(facts, filter_h, filter_w)
    return spec.NodeSpec(facts.operator.inputs[:3], attributes, spec.activation_of(facts))


def product_of(shape: ConvShape) -> Product | None:
    """Return the convolution as a product of its input's rows, None if it is not one.

    A window of one pixel makes a row of each pixel. A window as large as the image makes one row of the whole
    image, whose padded lanes get rows of zero weights.
    """
    layout = shape.in_layout
    if shape.groups > 1:
        return None
    if shape.is_pointwise:
        rows, depth, row_stride, lanes = (
            shape.pixels,
            shape.in_channels,
            layout.pixel_stride,
            shape.in_channels,
        )
    elif shape.covers_input and layout.channel_stride == 1:
        lanes = layout.pixel_stride
        rows, row_stride = shape.images, shape.in_h * shape.in_w * lanes
        depth = row_stride
    else:
        return None
    return Product(
        rows=rows,
        depth=depth,
        columns=shape.out_channels,
        row_stride=row_stride,
        step=layout.channel_stride,
        weights=shape.weights.arranged(lambda codes: filter_matrix(codes, lanes)),
    )


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """Candidates, the best by the cost model first."""
    shape = conv_shape(node, context)
    scale = node.inputs[_SCALE] if len(node.inputs) > _SCALE else None
    if suits_groups(context.device):
        return _in_groups(node, context, shape, scale)
    filters = node.inputs[1]
    if filters is not None and is_quantised(node, context):
        quantised = convolution(node, context, context.value(filters), shape.weights.bias)
        if quantised is not None:
            return [quantised]
    found = window_candidates(node, context, shape)
    return found if scale is None else scaled_candidates(found, scale)


def _in_groups(
    node: Node, context: spec.Context, shape: ConvShape, scale: int | None = None
) -> list[spec.Candidate]:
    """Return the kernel of work-groups that suits the convolution."""
    if shape.groups > 1 and not has_wide_members(shape):
        return [direct_in_groups(node, context, shape)]
    product = product_of(shape)
    if product is not None:
        return product_in_groups(node, context, product, scale)
    return window_in_groups(node, context, shape)


def window_candidates(node: Node, context: spec.Context, shape: ConvShape) -> list[spec.Candidate]:
    """Return the candidates for a convolution: as a product, else by the most specialised kernel that fits.

    On small maps Winograd's transforms cost about as much as its products save, so the tuner gets both,
    except where narrow weights would be transformed in every run.
    """
    if suits_groups(context.device):
        return _in_groups(node, context, shape)
    product = product_of(shape)
    if product is not None:
        return product_candidates(node, context, product)
    stem = stem_candidates(node, context, shape)
    if stem:
        return stem
    winograd = [] if context.spares_memory else winograd_candidates(node, context, shape)
    if winograd and not is_small_map(shape):
        return winograd
    if shape.weights.is_narrow:
        return direct_candidates(node, context, shape)
    return [*winograd, *direct_candidates(node, context, shape)]


FAMILY = spec.Family(
    operators=(Op.CONV_2D,),
    read=read,
    lower=lower,
    supports=constants_refusal,
    weights=(1,),
    epilogue=True,
    reads_any_layout=lambda _node, _graph: True,
)
