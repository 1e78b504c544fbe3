"""Reads the numbers of one convolution node once, for all kernels that may run it."""

from dataclasses import dataclass

from runtime.delegates.gpu.graph.graph import Layout, Node, Value, ceil_div
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.weights import Floats, Weights, weights_of

_WINDOW = (
    "stride_h", "stride_w", "dilation_h", "dilation_w", "pad_top", "pad_left", "pad_bottom", "pad_right",
)  # fmt: skip
"""The attributes of a node that `window_attributes` gives."""


@dataclass(frozen=True, slots=True)
class ConvShape:
    """A convolution of [images, in_h, in_w, in_channels] by [out_channels, filter_h, filter_w, group_in].

    The result is [images, out_h, out_w, out_channels]. `weights` holds the filter in that order.
    """

    source: int
    target: int
    weights: Weights
    images: int
    in_h: int
    in_w: int
    in_channels: int
    out_h: int
    out_w: int
    out_channels: int
    filter_h: int
    filter_w: int
    group_in: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int
    pad_top: int
    pad_left: int
    pad_bottom: int
    pad_right: int
    in_layout: Layout
    out_layout: Layout

    @property
    def pixels(self) -> int:
        """Output pixels of all images."""
        return self.images * self.out_h * self.out_w

    @property
    def groups(self) -> int:
        """1 for an ordinary convolution."""
        return self.in_channels // self.group_in

    @property
    def group_out(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def is_padded(self) -> bool:
        """True where windows reach outside of the image."""
        return any((self.pad_top, self.pad_left, self.pad_bottom, self.pad_right))

    @property
    def is_pointwise(self) -> bool:
        """True where output pixel p depends on input pixel p alone."""
        extents = (self.filter_h, self.filter_w, self.stride_h, self.stride_w)
        return extents == (1, 1, 1, 1) and not self.is_padded

    @property
    def covers_input(self) -> bool:
        """True where the one window of an image is the whole image."""
        whole = (self.filter_h, self.filter_w) == (self.in_h, self.in_w)
        dilated = (self.dilation_h > 1 and self.filter_h > 1) or (self.dilation_w > 1 and self.filter_w > 1)
        return whole and (self.out_h, self.out_w) == (1, 1) and not self.is_padded and not dilated

    @property
    def flops(self) -> int:
        """Multiplications and additions with pixels of the image: what lies outside of it is zero."""
        s = self
        down = _reads(s.in_h, s.out_h, s.filter_h, s.stride_h, s.dilation_h, s.pad_top)
        across = _reads(s.in_w, s.out_w, s.filter_w, s.stride_w, s.dilation_w, s.pad_left)
        return 2 * s.images * down * across * s.out_channels * s.group_in

    @property
    def bytes(self) -> int:
        """Bytes that must be read and written at least once."""
        inputs = self.images * self.in_h * self.in_w * self.in_channels
        weights = self.out_channels * self.filter_h * self.filter_w * self.group_in
        return 4 * (inputs + weights + self.pixels * self.out_channels)

    @property
    def image(self) -> dict[str, int]:
        """Sizes and strides of input and output, as the kernels call them."""
        names = ("in_h", "in_w", "out_h", "out_w", "pad_top", "pad_left")
        strides = {"IN_STRIDE": self.in_layout.pixel_stride, "OUT_STRIDE": self.out_layout.pixel_stride}
        return {name.upper(): getattr(self, name) for name in names} | strides

    @property
    def taps(self) -> dict[str, int]:
        """The window and its steps, as the kernels call them."""
        names = ("filter_h", "filter_w", "stride_h", "stride_w", "dilation_h", "dilation_w")
        return {name.upper(): getattr(self, name) for name in names}

    @property
    def window(self) -> str:
        """Filter and stride, for names: `3x3s2`."""
        return f"{self.filter_h}x{self.filter_w}s{self.stride_h}"

    @property
    def label(self) -> str:
        """Window and sizes, for profiles."""
        return f"{self.window} {self.out_h}x{self.out_w}x{self.in_channels}x{self.out_channels}"


def _reads(extent: int, outputs: int, taps: int, stride: int, dilation: int, pad: int) -> int:
    """Count the pixels of an image line that all windows along it read, together."""
    first = [pad - tap * dilation for tap in range(taps)]
    # Output o reads pixel o * stride - f, which is inside for
    # ceil(f / stride) <= o < ceil((extent + f) / stride).
    return sum(
        max(0, min(outputs, ceil_div(extent + f, stride)) - max(0, ceil_div(f, stride))) for f in first
    )


def conv_shape(node: Node, context: spec.Context, *, depthwise: bool = False) -> ConvShape:
    """Read the numbers of a CONV_2D node; DEPTHWISE_CONV_2D counts as one with a group for each channel."""
    source, filter_id, bias = node.filtered
    (target,) = node.outputs
    images, in_h, in_w, in_channels = context.value(source).shape
    _, out_h, out_w, out_channels = context.value(target).shape
    _, filter_h, filter_w, filter_channels = context.value(filter_id).shape
    return ConvShape(
        source=source,
        target=target,
        weights=_weights(filter_id, bias, context, depthwise=depthwise),
        images=images,
        in_h=in_h,
        in_w=in_w,
        in_channels=in_channels,
        out_h=out_h,
        out_w=out_w,
        out_channels=out_channels,
        filter_h=filter_h,
        filter_w=filter_w,
        group_in=1 if depthwise else filter_channels,
        **{name: node.attributes[name] for name in _WINDOW},
        in_layout=context.layout(source),
        out_layout=context.layout(target),
    )


def _weights(value: int, bias: int | None, context: spec.Context, *, depthwise: bool) -> Weights:
    """Return the filter as [O, h, w, I / groups]; a depthwise one is [1, h, w, O] in the model."""
    found = weights_of(context.value(value), 3 if depthwise else 0, lambda: bias_of(bias, context))
    return found.arranged(lambda codes: codes.transpose(3, 1, 2, 0)) if depthwise else found


def work_of(note: str, pixels: int, before: Value, weights: Value, after: Value) -> spec.Work:
    """Return the operations of all weights on so many pixels, and bytes that are touched at least once."""
    touched = before.elements + weights.elements + after.elements
    return spec.Work(note, 2 * pixels * weights.elements, 4 * touched)


def bias_of(bias: int | None, context: spec.Context) -> Floats | None:
    """Return the bias vector, None if there is none."""
    return None if bias is None else context.constant(bias).reshape(-1)
