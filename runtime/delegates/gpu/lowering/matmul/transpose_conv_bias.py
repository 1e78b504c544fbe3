"""Custom operator Convolution2DTransposeBias: TRANSPOSE_CONV's kernel with another operator's form.

Inputs: x [N, H, W, Ci], filter [Co, kh, kw, Ci], bias [Co]. The options are the bytes of a C struct: padding,
stride_w, stride_h, int32 each. There is no fused activation, so nothing clamps the sums.
"""

import struct

from runtime.delegates.gpu.graph.graph import Custom
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.transpose_conv import lower

_STRIDES = struct.Struct("<4x2i")
"""The options behind the padding, whose effect the shape of the output already shows."""


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Half of what the whole extent has too many rows is cut off in front (`kernels/padding.h`)."""
    stride_w, stride_h = _STRIDES.unpack_from(facts.operator.custom_options)
    attributes: dict[str, int] = {}
    for axis, letter, stride in ((1, "h", stride_h), (2, "w", stride_w)):
        whole = (facts.shape(0)[axis] - 1) * stride + facts.shape(1)[axis]
        cut = max(0, whole - facts.output_shape()[axis]) // 2
        attributes |= {f"stride_{letter}": stride, f"cut_{letter}": cut}
    return spec.NodeSpec(facts.operator.inputs[:3], attributes)


FAMILY = spec.Family(
    operators=(Custom.CONVOLUTION_2D_TRANSPOSE_BIAS,),
    read=_read,
    lower=lower,
    constants={1: "the filter", 2: "the bias"},
    epilogue=True,
)
