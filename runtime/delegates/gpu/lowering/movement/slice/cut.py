"""SLICE and STRIDED_SLICE: a copy with strides from a starting point."""

from dataclasses import dataclass, field

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.movement.copies import Digit, copy_launch, source_strides
from runtime.model.schema import BuiltinOperator as Op


@dataclass(slots=True)
class _Spans:
    """First element and stride along each input axis, and the output's axes: None is one of length 1."""

    starts: list[int] = field(default_factory=list)
    strides: list[int] = field(default_factory=list)
    kept: list[int | None] = field(default_factory=list)

    def add(self, start: int, stride: int, *, is_kept: bool = True) -> None:
        if is_kept:
            self.kept.append(len(self.starts))
        self.starts.append(start)
        self.strides.append(stride)


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if any(facts.constant(i) is None for i in range(1, len(facts.operator.inputs))):
        return Unsupported("begin, end, size and strides must be constant")
    return None


def _integers(facts: spec.OperatorFacts, i: int) -> list[int]:
    data = facts.constant(i)
    return [] if data is None else [int(number) for number in data.reshape(-1)]


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Start and stride of each input axis; `kept`: the input axis of each output axis, None for a new one."""
    shape, spans = facts.shape(0), _Spans()
    if facts.operator.opcode == Op.SLICE:
        for start in _integers(facts, 1):
            spans.add(start, 1)
    else:
        _add_entries(facts, spans)
    # Axes behind the last entry are taken whole.
    while len(spans.starts) < len(shape):
        spans.add(0, 1)
    attributes = {"starts": tuple(spans.starts), "strides": tuple(spans.strides), "kept": tuple(spans.kept)}
    return spec.NodeSpec(facts.operator.inputs[:1], attributes)


def _add_entries(facts: spec.OperatorFacts, spans: _Spans) -> None:
    """Of an entry's masks the ellipsis counts first, then the new axis, as in LiteRT's `strided_slice.cc`."""
    shape, entries = facts.shape(0), len(_integers(facts, 1))
    masks = {name: int(facts.options.get(f"{name}_mask", 0)) for name in ("ellipsis", "new_axis")}
    # Entries that stand for an axis of the input each; the ellipsis stands for all that remain.
    consumed = sum(1 for i in range(entries) if not (masks["ellipsis"] | masks["new_axis"]) >> i & 1)
    for i in range(entries):
        if masks["ellipsis"] >> i & 1:
            for _ in range(len(shape) - consumed):
                spans.add(0, 1)
        elif masks["new_axis"] >> i & 1:
            spans.kept.append(None)
        else:
            _add_entry(facts, spans, i, shape[len(spans.starts)])


def _add_entry(facts: spec.OperatorFacts, spans: _Spans, entry: int, extent: int) -> None:
    begin, end, stride = (_integers(facts, i)[entry] for i in (1, 2, 3))
    if facts.options.get("offset"):
        begin = begin + extent if begin < 0 else begin
        # With the option `offset`, `end` counts from `begin`.
        end += begin
    masked = {
        name: bool(facts.options.get(f"{name}_mask", 0) >> entry & 1)
        for name in ("begin", "end", "shrink_axis")
    }
    if masked["shrink_axis"]:
        spans.add(0 if masked["begin"] else begin % extent, 1, is_kept=False)
        return
    chosen = slice(None if masked["begin"] else begin, None if masked["end"] else end, stride)
    # The end is not needed: the output's shape, which is known, says how many elements follow.
    start, _, step = chosen.indices(extent)
    spans.add(start, step)


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One copy."""
    distances = source_strides(node, context)
    a = node.attributes
    base = sum(start * distance for start, distance in zip(a["starts"], distances, strict=True))
    shape = context.value(node.outputs[0]).shape
    axes = [
        [Digit(extent, 0 if axis is None else a["strides"][axis] * distances[axis])]
        for extent, axis in zip(shape, a["kept"], strict=True)
    ]
    return [spec.Candidate("rows", (copy_launch(node, context, axes, base),))]


FAMILY = spec.Family(
    operators=(Op.SLICE, Op.STRIDED_SLICE),
    read=_read,
    lower=lower,
    supports=_supports,
    parameters=(1, 2, 3),
    any_layout=True,
    types=spec.moving(Op.SLICE, Op.STRIDED_SLICE, inputs=spec.PARAMETRISED),
)
