"""The copy shared by the operators that only move elements: each output axis says where its elements lie.

An output index, in row-major order, is a number with one or more digits for each axis. Each digit adds its
share to the offset in the input, so that one kernel runs every such operator on tensors of any rank.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import prod

import numpy as np

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Layout, Node, Value, round_up
from runtime.delegates.gpu.graph.parameters import Digit as Affine
from runtime.delegates.gpu.graph.parameters import divisor, offset, reciprocal
from runtime.delegates.gpu.graph.work_groups import QUAD, most_units, strided, suits_groups
from runtime.delegates.gpu.lowering import spec

_UNITS = 16
"""Most units, and so most work-groups, of a copy. Chosen: copies are short and bound by memory, which few
threads saturate; a device with more compute units leaves some idle."""

_WORD_BYTES = 4
"""Bytes of a parameter: a narrower element is filled up with zeros to one."""

_SHORT_RUN = 4
"""Longest run of elements whose length the code holds: a loop over so few takes two to three times as long.
Larger, and more copies have functions of their own."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """A border that repeats the input backwards: `before` counts of it in front of `size` counts.

    `skipped` is 1 where the edge itself is not repeated, else 0.
    """

    before: int
    size: int
    skipped: int


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of an output index: it counts to `extent`, and each count moves `step` elements in the input.

    The first and the last counts of `border` lie outside of the input, and the counts between them are those
    of the input; with a `mirror` all lie inside.
    """

    extent: int
    step: int = 0
    border: tuple[int, int] = (0, 0)
    mirror: Mirror | None = None

    @property
    def is_affine(self) -> bool:
        """True where the offset is the count times `step`."""
        return self.mirror is None and self.border == (0, 0)


def element_strides(value: Value, layout: Layout) -> list[int]:
    """Distance in elements between neighbours along each dimension."""
    strides = [layout.channel_stride]
    step = layout.pixel_stride
    for extent in reversed(value.shape[:-1]):
        strides.append(step)
        step *= extent
    return strides[::-1] if value.shape else []


def source_strides(node: Node, context: spec.Context) -> list[int]:
    """`element_strides` of the node's first input."""
    return element_strides(context.value(node.first), context.layout(node.first))


def copy_launch(
    node: Node, context: spec.Context, axes: Sequence[Sequence[Digit]], base: int = 0, fill: float = 0
) -> spec.Launch:
    """Return the launch that fills the node's output from its first input.

    Args:
        node: any node with one input that is copied and one output.
        context: its graph.
        axes: for each axis of the output its digits, the most significant first; their extents multiply to
            the axis' length. A border on the last axis must be its only digit.
        base: where the element of index 0 lies, in elements of the input.
        fill: what stands outside of the input, a number that the type has.
    """
    source, (target,) = node.first, node.outputs
    value, layout = context.value(target), context.layout(target)
    pixels = _merged([digit for axis in axes[:-1] for digit in axis])
    *runs, run = _merged(list(axes[-1]) if axes else []) or [Digit(1)]
    # A mirrored axis has no single step, so each of its elements is a run of its own.
    if not (run.is_affine or run.border != (0, 0)):
        runs, run = [*runs, run], Digit(1)
    before, after = run.border
    length = run.extent - before - after
    # A single element has no step; 1 allows for the dense copy.
    step = run.step if length > 1 else 1
    is_whole = not runs and step == 1 and length == value.channels
    lanes = vector_lanes(context.value(source), context.layout(source), value, layout) if is_whole else 0
    place, place_of_run = _place("SOURCE", pixels, "(p)"), _place("RUN", runs, "(r)")
    copy = _Copy(
        value,
        layout,
        row={"BEFORE": before, "AFTER": after, "RUNS": prod(digit.extent for digit in runs), "RUN": length},
        step=step,
        lanes=lanes,
        steps=(base, *(digit.step for digit in pixels)),
        expressions={
            "SOURCE(p)": f"SOURCE_BASE + {place.offset}",
            "RUN_SOURCE(r)": place_of_run.offset,
            "INSIDE(p)": place.inside,
        },
        values={
            # Count `border[0]` of a digit, the first inside, is element 0 of the input.
            "SOURCE_BASE": base - sum(digit.border[0] * digit.step for digit in pixels),
            **place.parameters,
            **place_of_run.parameters,
            **_bits(fill, value.type),
        },
    )
    units: int | tuple[int, ...]
    if suits_groups(context.device) and value.type.word == "float":
        instance, units = _in_groups(copy)
    else:
        instance, units = _in_units(copy), min(most_units(context.device, _UNITS), value.pixels)
    return context.launch(node, instance, (source, target), units, spec.Work(moved=2 * value.bytes))


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy as its kernels see it.

    `row` says what stands in a row: elements outside of the input before and after, runs, elements of a run,
    which are `step` apart. `lanes` are those of a row that is copied as whole vectors, else 0, and `steps`
    what offsets of pixels are sums of multiples of.
    """

    value: Value
    layout: Layout
    row: dict[str, int]
    step: int
    lanes: int
    steps: tuple[int, ...]
    expressions: dict[str, str]
    values: dict[str, int]

    @property
    def tail(self) -> int:
        """Padded lanes of a row."""
        channels = self.value.channels
        return round_up(channels) - channels if self.layout.padded else 0


def _in_units(copy: _Copy) -> spec.Instance:
    """Return the unit function, whose units are ranges of pixels."""
    value = copy.value
    constant = {name: count for name, count in copy.row.items() if _is_constant(name, count)}
    return spec.function(
        "movement/copies.cl",
        "f32_copies",
        spec.joined(
            constant,
            copy.expressions,
            {
                "T": value.type.word,
                "VALUE": _FILLS[value.type.size],
                "VECTORS": copy.lanes > 0,
                "DENSE": copy.step == 1,
            },
        ),
        PIXELS=value.pixels,
        CHANNELS=value.channels,
        OUT_STRIDE=copy.layout.pixel_stride,
        TAIL=copy.tail,
        **{name: count for name, count in copy.row.items() if name not in constant},
        STEP=copy.step,
        LANES=copy.lanes,
        **copy.values,
    )


def _in_groups(copy: _Copy) -> tuple[spec.Instance, tuple[int, ...]]:
    """Return the kernel of work-groups for elements of 32 bits, and its groups."""
    value, row = copy.value, copy.row
    has_vectors = copy.lanes > 0 and not any(step % QUAD for step in (*copy.steps, copy.layout.pixel_stride))
    width = copy.lanes // QUAD if has_vectors else value.channels + copy.tail
    group, groups = strided(value.pixels * width)
    instance = spec.function(
        "movement/copies_groups.cl",
        "f32_groups_copies",
        spec.joined(copy.expressions, {"VECTORS": has_vectors}),
        group,
        TOTAL=value.pixels * width,
        CHANNELS=value.channels,
        OUT_STRIDE=copy.layout.pixel_stride,
        BEFORE=row["BEFORE"],
        LENGTH=value.channels - row["BEFORE"] - row["AFTER"],
        STEP=copy.step,
        **divisor("ROW", width),
        **divisor("RUN", row["RUN"]),
        **copy.values,
    )
    return instance, groups


def _is_constant(name: str, count: int) -> bool:
    """Return True for counts that the code holds: in short rows, loops would cost too much."""
    return count <= _SHORT_RUN if name == "RUN" else count == (1 if name == "RUNS" else 0)


def _merged(digits: Sequence[Digit]) -> list[Digit]:
    """Return the fewest digits with the same offsets: joins neighbours that count on, drops extents of 1."""
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


@dataclass(frozen=True, slots=True)
class _Place:
    """The offset of an index's element from the first, whether it is inside, and the parameters of both."""

    offset: str
    inside: str
    parameters: dict[str, int]


def _place(name: str, digits: Sequence[Digit], index: str) -> _Place:
    # A mirrored digit adds its share below.
    affine = offset(
        name, [Affine(digit.extent, 0 if digit.mirror else digit.step) for digit in digits], index
    )
    offsets, conditions, values = [affine.expression], [], dict(affine.parameters)
    others = (position for position, digit in enumerate(digits) if not digit.is_affine)
    for number, position in enumerate(others):
        digit, axis = digits[position], f"{name}_AXIS{number}"
        count, divisors = _count(axis, digits, position, index)
        values |= divisors
        if digit.mirror:
            offsets.append(f"mirrored({count}, {axis}_BEFORE, {axis}_SIZE, {axis}_SKIPPED) * {axis}_STEP")
            values |= {f"{axis}_{key.upper()}": value for key, value in asdict(digit.mirror).items()}
            values[f"{axis}_STEP"] = digit.step
        else:
            # One comparison for both ends: without a sign, counts in front of the input are huge.
            conditions.append(f"(uint)({count} - {axis}_BEFORE) < (uint){axis}_SIZE")
            values |= {f"{axis}_BEFORE": digit.border[0], f"{axis}_SIZE": digit.extent - sum(digit.border)}
    return _Place(" + ".join(offsets), " && ".join(conditions) or "1", values)


def _count(axis: str, digits: Sequence[Digit], position: int, index: str) -> tuple[str, dict[str, int]]:
    """One digit's count as an expression, and its parameters, whose names begin with `axis`."""
    values: dict[str, int] = {}
    behind, count = prod(digit.extent for digit in digits[position + 1 :]), index
    if behind > 1:
        count, values = f"QUOTIENT({index}, {axis}_BEHIND)", reciprocal(f"{axis}_BEHIND", behind)
    if position:
        extent = digits[position].extent
        count = f"({count} - QUOTIENT({index}, {axis}_WHOLE) * {axis}_EXTENT)"
        values |= {f"{axis}_EXTENT": extent, **reciprocal(f"{axis}_WHOLE", extent * behind)}
    return count, values


_FILLS = {
    1: "(uchar)FILL",
    2: "(ushort)FILL",
    4: "as_float(FILL)",
    8: "((ulong)(uint)FILL_HIGH << 32 | (uint)FILL)",
}
"""Bytes of an element → the expression of what stands outside of the input."""


def _bits(fill: float, element: ElementType) -> dict[str, int]:
    """Return the parameters with the bits of `fill`: as a number, a NaN would lose some."""
    words = np.frombuffer(np.array(fill, element.dtype).tobytes().ljust(_WORD_BYTES, b"\0"), np.int32)
    return dict(zip(("FILL", "FILL_HIGH"), map(int, words), strict=False))


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
