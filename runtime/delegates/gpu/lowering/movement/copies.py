"""The copy shared by the operators that only move elements: each output axis says where its elements lie.

An output index, in row-major order, is a number with one or more digits for each axis. Each digit adds its
share to the offset in the input, so that one kernel runs every such operator on tensors of any rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.delegates.gpu.graph import LANES, Graph, Layout, Node, Value, round_up
from runtime.delegates.gpu.lowering.spec import Context, Instance, Launch, defines, instance_name

_UNITS = 16
"""Most units, and so most work-groups, of a copy. Chosen: copies are short and bound by memory, which few
threads saturate; a device with more compute units leaves some idle."""

_ITSELF = "{i}"


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of an output index: it counts to `extent`, and each count moves `step` elements in the input.

    The first and the last counts of `border` lie outside of the input, and the counts between them are those
    of the input. `source` is the input's count as an expression in the output's, `{i}`, where they differ.
    """

    extent: int
    step: int = 0
    border: tuple[int, int] = (0, 0)
    source: str = _ITSELF

    @property
    def is_affine(self) -> bool:
        """True where the offset is the count times `step`."""
        return self.source == _ITSELF and self.border == (0, 0)

    def offset(self, count: str) -> str:
        """The digit's share of the offset, for the count with this expression."""
        shifted = f"({count} - {self.border[0]})" if self.border[0] else count
        return f"{self.source.format(i=shifted)} * {self.step}"

    def inside(self, count: str) -> str:
        """The condition under which the count is one of the input."""
        return f"{count} >= {self.border[0]} && {count} < {self.extent - self.border[1]}"


def any_layout(node: Node, graph: Graph) -> bool:  # noqa: ARG001 - the protocol's signature
    """Copies read and write any strides: the answer of their families to the layout pass."""
    return True


def element_strides(value: Value, layout: Layout) -> list[int]:
    """Distance in elements between neighbours along each dimension."""
    strides = [layout.channel_stride]
    step = layout.pixel_stride
    for extent in reversed(value.shape[:-1]):
        strides.append(step)
        step *= extent
    return strides[::-1] if value.shape else []


def source_strides(node: Node, context: Context) -> list[int]:
    """`element_strides` of the node's first input."""
    source = source_of(node)
    return element_strides(context.value(source), context.layout(source))


def copy_launch(
    node: Node, context: Context, axes: Sequence[Sequence[Digit]], base: int = 0, fill: float = 0.0
) -> Launch:
    """The launch that fills the node's output from its first input.

    Args:
        node: any node with one input that is copied and one output.
        context: its graph.
        axes: for each axis of the output its digits, the most significant first; their extents multiply to
            the axis' length. A border on the last axis must be its only digit.
        base: where the element of index 0 lies, in elements of the input.
        fill: what stands outside of the input.
    """
    source, (target,) = source_of(node), node.outputs
    value, layout = context.value(target), context.layout(target)
    pixels = _merged([digit for axis in axes[:-1] for digit in axis])
    *runs, run = _merged(list(axes[-1]) if axes else []) or [Digit(1)]
    if not (run.is_affine or run.border != (0, 0)):
        runs, run = [*runs, run], Digit(1)
    before, after = run.border
    length = run.extent - before - after
    step = run.step if length > 1 else 1
    is_whole = not runs and step == 1 and length == value.channels
    vectors = vector_lanes(context.value(source), context.layout(source), value, layout) if is_whole else 0
    launch_defines = defines(
        PIXELS=value.pixels,
        CHANNELS=value.channels,
        OUT_STRIDE=layout.pixel_stride,
        TAIL=round_up(value.channels) - value.channels if layout.padded else 0,
        BEFORE=before,
        AFTER=after,
        VALUE=_bits(fill),
        T=value.type.word,
        RUNS=_count(runs),
        RUN=length,
        STEP=step,
        VECTORS=vectors,
        **{
            "SOURCE(p)": " + ".join([str(base), *_offsets(pixels, "(p)")]),
            "RUN_SOURCE(r)": " + ".join(["0", *_offsets(runs, "(r)")]),
            "INSIDE(p)": _inside(pixels, "(p)"),
        },
    )
    return Launch(
        Instance("movement/copies.cl", instance_name(f"copies_{node.op.name.lower()}"), launch_defines),
        (source, target),
        units=min(_UNITS, value.pixels),
        label=f"{node.op.name} {'x'.join(map(str, value.shape))}",
        sources=node.sources,
        bytes=2 * value.type.size * value.elements,
    )


def source_of(node: Node) -> int:
    """The value that a node copies. Raises ValueError where its first input is absent."""
    source = node.inputs[0]
    if source is None:
        raise ValueError(f"{node.op.name} needs its first input")
    return source


def _merged(digits: Sequence[Digit]) -> list[Digit]:
    """The fewest digits with the same offsets: neighbours that count on are joined, those of extent 1 go."""
    found: list[Digit] = []
    for digit in digits:
        if digit.extent == 1 and digit.is_affine:
            continue
        last = found[-1] if found else None
        if last and last.is_affine and digit.is_affine and last.step == digit.extent * digit.step:
            found[-1] = Digit(last.extent * digit.extent, digit.step)
        else:
            found.append(digit)
    return found


def _count(digits: Sequence[Digit]) -> int:
    return int(np.prod([digit.extent for digit in digits], dtype=np.int64))


def _counts(digits: Sequence[Digit], index: str) -> list[str]:
    """For each digit the expression that takes it from `index`."""
    found = []
    for position, digit in enumerate(digits):
        quotient = _count(digits[position + 1 :])
        count = f"({index} / {quotient})" if quotient > 1 else index
        found.append(f"({count} % {digit.extent})" if position else count)
    return found


def _offsets(digits: Sequence[Digit], index: str) -> list[str]:
    return [
        digit.offset(count) for digit, count in zip(digits, _counts(digits, index), strict=True) if digit.step
    ]


def _inside(digits: Sequence[Digit], index: str) -> str:
    counts = zip(digits, _counts(digits, index), strict=True)
    conditions = [digit.inside(count) for digit, count in counts if digit.border != (0, 0)]
    return " && ".join(conditions) or "1"


def vector_lanes(source: Value, read: Layout, target: Value, write: Layout) -> int:
    """Lanes of a row that whole vectors, which are of floats, may copy, or 0.

    Behind the channels both sides must have padding.
    """
    if target.type.word != "float":
        return 0
    if target.channels % LANES == 0:
        return target.channels
    padded = read.padded and write.padded and source.channels == target.channels
    return round_up(target.channels) if padded else 0


def _bits(value: float) -> str:
    """A float as OpenCL C text with its very bits, which the literal of a NaN does not have."""
    return f"as_float(0x{int(np.float32(value).view(np.uint32)):08x}u)"
