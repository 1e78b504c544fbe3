"""TRANSPOSE: a copy with the input's strides in another order, in blocks where the channels move."""

from dataclasses import dataclass, replace
from math import prod

from runtime.delegates.gpu.graph.graph import LANES, Node, Value, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import Digit as Place
from runtime.delegates.gpu.graph.parameters import Offset, divisor, offset
from runtime.delegates.gpu.graph.work_groups import QUAD, LocalArray, WorkGroup, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.movement.copies import Digit, copy_launch, source_strides
from runtime.model.schema import BuiltinOperator as Op

_TILE = 32
"""Side of a tile that goes through local memory, which the kernel holds too: 256 work-items move four floats
each."""


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    rank = len(facts.shape(0))
    perm = tuple(int(axis) % rank for axis in facts.known(1).reshape(-1))
    return spec.NodeSpec(facts.operator.inputs[:1], {"perm": perm})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One copy: of the axes in the order `perm`, or of the `places` that the pass `join_moves` found."""
    turned = _turned(node, context)
    if turned is not None:
        return [(_in_groups if suits_groups(context.device) else _in_blocks)(turned, context)]
    shape, strides = context.value(node.outputs[0]).shape, source_strides(node, context)
    if "places" in node.attributes:
        axes = [
            [Digit(place.extent, place.step * strides[place.axis]) for place in axis] or [Digit(1)]
            for axis in node.attributes["places"]
        ]
    else:
        perm = node.attributes["perm"]
        axes = [[Digit(extent, strides[axis])] for extent, axis in zip(shape, perm, strict=True)]
    return [spec.Candidate("rows", (copy_launch(node, context, axes),))]


@dataclass(frozen=True, slots=True)
class _Turned:
    """A transposition that moves the channels between padded values.

    `lines` are the input's channels, `columns` the output's; `others` are the counts of all other axes.
    `source` and `target` say where a count lies: in elements of the input, in pixels of the output.
    """

    node: Node
    after: Value
    lines: int
    columns: int
    others: int
    source: Offset
    target: Offset
    steps: dict[str, int]


def _turned(node: Node, context: spec.Context) -> _Turned | None:
    """Describe a copy that turns channels; None if they stay, or lie otherwise than padded."""
    source, target, perm = node.inputs[0], node.outputs[0], node.attributes.get("perm")
    if source is None or not perm or perm[-1] == len(perm) - 1:
        return None
    before, after = context.value(source), context.value(target)
    read, written = context.layout(source), context.layout(target)
    # In work-groups the tile in local memory is one of floats.
    words = ("float",) if suits_groups(context.device) else ("float", "uchar")
    if after.type.word not in words or not (read.padded and written.padded and read.channel_stride == 1):
        return None
    strides = source_strides(node, context)
    line, pixels = perm.index(len(perm) - 1), [1]
    for extent in reversed(after.shape[1:-1]):
        pixels.insert(0, pixels[0] * extent)
    others = [axis for axis in range(len(perm) - 1) if axis != line]
    return _Turned(
        node,
        after,
        before.channels,
        after.channels,
        prod(after.shape[i] for i in others),
        offset("SOURCE", [Place(after.shape[i], strides[perm[i]]) for i in others], "(z)"),
        offset("TARGET", [Place(after.shape[i], pixels[i]) for i in others], "(z)"),
        {"COLUMN_STEP": strides[perm[-1]], "LINE_STEP": pixels[line], "OUT_STRIDE": written.pixel_stride},
    )


def _in_blocks(turned: _Turned, context: spec.Context) -> spec.Candidate:
    blocks = ceil_div(turned.lines, LANES)
    values = {"LINES": turned.lines, "COLUMNS": turned.columns, **divisor("BLOCKS", blocks), **turned.steps}
    instance = _instance("copies_transposed", "copies_transposed", turned, values, T=turned.after.type.word)
    return spec.Candidate("blocks", (_launch(turned, context, instance, blocks * turned.others),))


def _in_groups(turned: _Turned, context: spec.Context) -> spec.Candidate:
    """Return the copy through tiles in local memory."""
    columns = round_up(turned.columns)
    values = {"LINES": turned.lines, "COLUMNS": turned.columns, "PADDED": columns, **turned.steps}
    # One float more in each line keeps the elements of a column in different banks.
    local = LocalArray("tile", "float", _TILE * (_TILE + 1))
    instance = replace(
        _instance("copies_transposed_groups", "groups_copies_transposed", turned, values),
        work_group=WorkGroup((_TILE // QUAD, _TILE, 1), (local,)),
    )
    groups = (ceil_div(columns, _TILE), ceil_div(turned.lines, _TILE), turned.others)
    return spec.Candidate("groups", (_launch(turned, context, instance, groups),))


def _instance(stem: str, name: str, turned: _Turned, values: dict[str, int], **given: str) -> spec.Instance:
    return spec.function(
        f"movement/{stem}.cl",
        f"f32_{name}",
        spec.joined(given, {"SOURCE(z)": turned.source.expression, "TARGET(z)": turned.target.expression}),
        **values,
        **turned.source.parameters,
        **turned.target.parameters,
    )


def _launch(
    turned: _Turned, context: spec.Context, instance: spec.Instance, units: int | tuple[int, ...]
) -> spec.Launch:
    pointers = (*turned.node.reads, turned.after.id)
    return context.launch(turned.node, instance, pointers, units, spec.Work(moved=2 * turned.after.bytes))


FAMILY = spec.Family(
    operators=(Op.TRANSPOSE,),
    read=_read,
    lower=lower,
    constants={1: "the permutation"},
    parameters=(1,),
    any_layout=True,
    types=spec.moving(Op.TRANSPOSE, inputs=spec.PARAMETRISED),
)
