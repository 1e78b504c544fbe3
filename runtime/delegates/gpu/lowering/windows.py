"""The windows of convolutions and pools: strides, dilations and explicit padding, as kernels take them."""

from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import Padding

MOST_REACH = 1 << 30
"""Pixels over which a window may reach. Kernels count them in 32 bits: with more, the place of a tap would
overflow and be taken for one inside the image. No image is so large."""


def window_attributes(facts: spec.OperatorFacts, filter_h: int, filter_w: int) -> dict[str, int]:
    """Strides, dilations and explicit padding of a window operator on input 0, [N, H, W, C].

    SAME padding puts the odd pixel behind the image, as LiteRT's `kernels/padding.h` does.
    """
    options = facts.options
    found: dict[str, int] = {}
    same = Padding(options["padding"]) is Padding.SAME
    axes = (("h", 1, filter_h, "top", "bottom"), ("w", 2, filter_w, "left", "right"))
    for letter, axis, extent, before, after in axes:
        stride, dilation = int(options[f"stride_{letter}"]), int(options.get(f"dilation_{letter}_factor", 1))
        reach = (extent - 1) * dilation + 1
        total = (facts.output_shape()[axis] - 1) * stride + reach - facts.shape(0)[axis] if same else 0
        found |= {f"stride_{letter}": stride, f"dilation_{letter}": dilation}
        found |= {f"pad_{before}": max(total, 0) // 2, f"pad_{after}": max(total, 0) - max(total, 0) // 2}
    return found
