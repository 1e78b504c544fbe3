"""Products of float rows and weights of levels: the rows become levels in every run, as LiteRT's do."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, LINE, Layout, Node, Value, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.weights import Stored, WeightType
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.integer_gemm.product import BYTES_OF_INT, Panels, Shape
from runtime.delegates.gpu.lowering.matmul.integer_gemm.stage import ROWS, Stage

_MOST_DEPTH = 65_000
"""Products in a sum, at most: 255 * 128 * 65,000 is below 2^31, also of levels of four bits, which the
kernel multiplies by 16. Longer rows are multiplied by widened weights."""

_FEWEST_CHANNELS = LANES
"""Input channels of a convolution whose images are quantised, at least. An image of fewer, the colours of a
network's input, has kernels of its own, which take less than the bytes in fours would."""

_CHUNK = 4096
"""Elements of a row that are worth a unit of their own. Chosen: a microsecond, as long as the barrier that
further launches of chunks add."""

_PAGE = 4096
"""Bytes after which addresses share a set of a first-level cache of 64 lines by 64 bytes a way."""

_CHUNKS_PER_WORKER = 4
"""Most chunks of a row for each worker. More even out workers of unlike speed; each reads the extremes of
all."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of floats that share a scale: each `lines` runs of `length` elements, and what becomes of them.

    Strides and `step`, from element to element, count floats; `line_bytes` and `row_bytes` the levels, of
    which the product reads `pixel_ints` ints for each of its pixels.
    """

    source: spec.Argument
    count: int
    lines: int
    length: int
    line_stride: int
    step: int
    row_stride: int
    line_bytes: int
    row_bytes: int
    pixel_ints: int

    @classmethod
    def of_pixels(
        cls, source: spec.Argument, count: int, pixels: int, channels: int, layout: Layout
    ) -> "Rows":
        """Return rows of `pixels` pixels each, whose levels lie without gaps."""
        stride, step = layout.pixel_stride, layout.channel_stride
        is_one_run = pixels == 1 or (stride == channels and step == 1)
        lines, length = (1, pixels * channels) if is_one_run else (pixels, channels)
        # Rows that lie a page apart would share the few places of one set of a first-level cache.
        size = round_up(pixels * channels, LINE)
        size += LINE * (size % _PAGE == 0)
        return cls(
            source,
            count,
            lines,
            length,
            line_stride=stride,
            step=step,
            row_stride=pixels * stride,
            line_bytes=channels,
            row_bytes=size,
            pixel_ints=size // BYTES_OF_INT,
        )

    @classmethod
    def of_images(cls, source: int, layout: Layout, shape: Shape, fours: int) -> "Rows":
        """Return the images, of whose pixels each takes `fours` ints."""
        size, stride = fours * BYTES_OF_INT, layout.pixel_stride
        lines, length = shape.in_h * shape.in_w, shape.channels
        row_stride, row_bytes = lines * stride, lines * size
        # If neither side has gaps between pixels, a whole line of them is one run.
        if layout.channel_stride == 1 and stride == length == size:
            lines = shape.in_h
            stride = size = length = shape.in_w * length
        return cls(
            source,
            shape.images,
            lines,
            length,
            line_stride=stride,
            step=layout.channel_stride,
            row_stride=row_stride,
            line_bytes=size,
            row_bytes=row_bytes,
            pixel_ints=fours,
        )

    def chunks(self, workers: int) -> int:
        """Return how many units find the extremes of a row: one, unless rows are long and few."""
        whole = self.lines * self.length // _CHUNK
        wanted = ceil_div(_CHUNKS_PER_WORKER * workers, self.count)
        return 1 if workers == 1 else max(1, min(self.lines, whole, wanted))


def dense_rows(
    node: Node, context: spec.Context, weights: Value, rows: Rows, bias: Callable[[], spec.Array | None]
) -> spec.Candidate | None:
    """Return the product of rows and a matrix [columns, depth]; None where the weights are not of levels."""
    columns, depth = weights.shape
    shape = Shape(rows.count, 1, 1, 1, 1, 1, 1, depth, columns)
    return _candidate(node, context, weights, shape, rows, bias)


def convolution(
    node: Node, context: spec.Context, filters: Value, bias: Callable[[], spec.Array | None]
) -> spec.Candidate | None:
    """Return the convolution of quantised images; None where they stay floats, as those of few channels."""
    source = node.first
    shape = Shape.of(node, context, source, filters.id)
    if context.value(source).channels != shape.channels or shape.channels < _FEWEST_CHANNELS:
        return None
    rows = Rows.of_images(
        source, context.layout(source), shape, _panels(context.device, filters, shape).fours
    )
    return _candidate(node, context, filters, shape, rows, bias)


def is_quantised(node: Node, context: spec.Context) -> bool:
    """Return True for a node whose rows shall become levels, on a device of unit functions."""
    return "quantises" in node.attributes and not context.device.works_in_groups


def _panels(device: Capabilities, weights: Value, shape: Shape) -> Panels:
    stored = weights.stored
    assert stored is not None
    blocks = 0 if stored.block is None else stored.codes.shape[1] // stored.block
    return Panels.of(device, shape.outputs, shape.pixels, shape.channels, stored.type.bits, blocks)


def _candidate(
    node: Node,
    context: spec.Context,
    weights: Value,
    shape: Shape,
    rows: Rows,
    bias: Callable[[], spec.Array | None],
) -> spec.Candidate | None:
    stored = weights.stored
    if stored is None or shape.taps * shape.channels > _MOST_DEPTH:
        return None
    panels = _panels(context.device, weights, shape)
    # A kernel reads whole ints, and of levels of four bits an even number of them.
    levels = spec.Scratch("levels", rows.count * rows.row_bytes + LINE, ElementType.U8)
    scales = spec.Scratch("scales", 2 * rows.count)
    is_padded = not shape.is_of_points
    border_bytes = round_up(panels.fours * BYTES_OF_INT) if is_padded else 0
    # Never empty, because the kernel takes the argument even where no window leaves the image.
    border = spec.Scratch("border", max(1, rows.count * border_bytes), ElementType.U8)
    quantising = _quantising(node, context, rows, (levels, scales, border), border_bytes)
    (target,) = node.outputs
    launch = context.launch(
        node,
        spec.function(
            "matmul/integer_gemm/product.cl",
            f"f32_integer_gemm_product_{stored.type.value.lower()}__m{panels.tile}n{panels.columns}",
            spec.joined(
                panels.defines,
                panels.reading(context.device, is_of_points=shape.is_of_points, has_sign=False),
                {
                    "STAGE": Stage.REALS.value,
                    "SIGN": 0,
                    "CENTRED": 0,
                },
            ),
            **shape.parameters,
            **panels.parameters(shape),
            **divisor("IMAGE", shape.out_h * shape.out_w),
            BORDER=border_bytes,
            **{"BLOCKS": panels.blocks} if panels.blocks else {},
            IN_STRIDE=rows.pixel_ints,
            OUT_STRIDE=context.layout(target).pixel_stride,
        ),
        (
            levels,
            _weights(f"weights{target}", stored, panels, shape),
            _head(f"stage{target}", stored, panels, shape, bias),
            border,
            scales,
            target,
        ),
        panels.units(shape.pixels),
        spec.Work(shape.label, shape.flops, rows.count * rows.row_bytes + 4 * shape.pixels * shape.outputs),
    )
    return spec.Candidate("quantised_rows", (*quantising, launch))


_SIZES = ("lines", "length", "line_stride", "row_stride", "line_bytes", "row_bytes")
"""Fields of `Rows` that the kernels have as parameters."""


def _quantising(
    node: Node,
    context: spec.Context,
    rows: Rows,
    made: tuple[spec.Scratch, spec.Scratch, spec.Scratch],
    border_bytes: int,
) -> tuple[spec.Launch, ...]:
    """Return the launches that write levels, scales and border; long rows take two, the extremes first."""
    chunks = rows.chunks(context.device.compute_units)
    extremes = spec.Scratch("extremes", 2 * rows.count * chunks)
    elements = rows.count * rows.lines * rows.length

    def launch(phase: int, args: tuple[spec.Argument, ...], moved: int) -> spec.Launch:
        note = f"levels of {rows.count} rows"
        return context.launch(
            node,
            spec.function(
                "matmul/integer_gemm/quantize_rows.cl",
                f"u8_quantize_rows_{phase}",
                {"PHASE": phase, "ASYMMETRIC": node.attributes["quantises"] == "asymmetric"},
                **{name.upper(): getattr(rows, name) for name in _SIZES},
                IN_STEP=rows.step,
                BORDER=border_bytes,
                CHUNKS=chunks,
            ),
            args,
            rows.count * chunks,
            spec.Work(note, moved=moved * elements),
        )

    # The last number is bytes per element: four for each time it is read, one for its level.
    if chunks == 1:
        return (launch(0, (rows.source, *made), 9),)
    return (launch(1, (rows.source, extremes), 4), launch(2, (rows.source, extremes, *made), 5))


def _weights(name: str, stored: Stored, panels: Panels, shape: Shape) -> spec.PackedConstant:
    def levels() -> spec.Array:
        return stored.codes.reshape(shape.outputs, shape.taps, shape.channels)

    return panels.weights(name, levels, shape.taps, None if stored.block is None else stored.scales)


def _head(
    name: str, stored: Stored, panels: Panels, shape: Shape, bias: Callable[[], spec.Array | None]
) -> spec.PackedConstant:
    """Return the rows of `Stage.REALS`: sums of weights, scales and the bias of each output."""

    def make() -> spec.Array:
        # The kernel multiplies levels of four bits in the high half of a byte.
        factor = 16 if stored.type is WeightType.I4 else 1
        rows = np.zeros((3, panels.width), np.float32)
        sums = stored.codes.reshape(shape.outputs, -1).sum(axis=1, dtype=np.int32) * factor
        # Integers, stored by their bits in a row of floats.
        rows[0, : shape.outputs] = sums.view(np.float32)
        given = stored.scales
        scales = None if given is None or stored.block is not None else stored.by_slice(given, 0)
        rows[1, : shape.outputs] = (np.float32(1) if scales is None else scales) / np.float32(factor)
        if (added := bias()) is not None:
            rows[2, : shape.outputs] = added
        return np.stack([rows[:, lanes] for lanes in panels.lanes()]).view(np.int32)

    return spec.PackedConstant(
        name, len(panels.starts) * panels.columns * ROWS[Stage.REALS], make, ElementType.I32
    )
