"""GATHER, GATHER_ND and EMBEDDING_LOOKUP: rows or elements of a tensor at the positions of index vectors.

All three read a tensor [outer, extents..., inner], where each index vector is a position in the extents.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import INDICES, MOVABLE, ElementType
from runtime.delegates.gpu.graph.graph import LANES, Layout, Node, Value, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.weights import WeightType, pairs_of_levels
from runtime.delegates.gpu.graph.work_groups import strided_vectors, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.movement.copies import vector_lanes
from runtime.model.schema import BuiltinOperator as Op

_MATRIX_RANK = 2
"""Dimensions of a table whose rows are one pixel each."""

_BLOCK = 256
"""Lanes of a unit, a multiple of 16. Chosen: larger and a long row is one thread's work; smaller and the
position of the row is computed more often than its elements are worth."""


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of a gather: `outer` positions, `shared` of which in a row use the same vectors; `inner` axes
    behind the extents, by their shape.
    """

    outer: int
    shared: int
    extents: tuple[int, ...]
    inner: tuple[int, ...]


def _places(facts: spec.OperatorFacts) -> tuple[int, int]:
    """Return the positions of the tensor that is gathered from, and of the indices."""
    return (1, 0) if facts.operator.opcode is Op.EMBEDDING_LOOKUP else (0, 1)


def _form(facts: spec.OperatorFacts) -> _Form:
    table, chooser = _places(facts)
    shape, indices = facts.shape(table), facts.shape(chooser)
    if facts.operator.opcode is Op.GATHER_ND:
        depth = indices[-1]
        return _Form(1, 1, shape[:depth], shape[depth:])
    if facts.operator.opcode is Op.EMBEDDING_LOOKUP:
        return _Form(1, 1, shape[:1], shape[1:])
    axis = int(facts.options["axis"]) % len(shape)
    batch = int(facts.options.get("batch_dims", 0))
    batch += len(indices) if batch < 0 else 0
    return _Form(prod(shape[:axis]), prod(shape[batch:axis]), shape[axis : axis + 1], shape[axis + 1 :])


def _outside(facts: spec.OperatorFacts) -> str:
    """Return the CPU path's error text for an index outside."""
    extents = _form(facts).extents
    if facts.operator.opcode is Op.EMBEDDING_LOOKUP:
        return f"a row outside the {extents[0]} of the table"
    where = list(extents) if facts.operator.opcode is Op.GATHER_ND else f"the axis of {extents[0]}"
    return f"an index is outside {where}"


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    extents = _form(facts).extents
    constant = facts.constant(_places(facts)[1])
    if constant is None:
        return None
    # Indices that a run computes are checked by the kernel, through a flag (`spec.Check`).
    vectors = constant.reshape(-1, len(extents))
    if ((vectors < 0) | (vectors >= np.array(extents))).any():
        return Unsupported(f"{_outside(facts)}, which the CPU path reports when it runs")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    inputs = tuple(facts.operator.inputs[place] for place in _places(facts))
    return spec.NodeSpec(inputs, {"form": _form(facts), "outside": _outside(facts)})


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel: whole rows where the channels are no extent, else single elements."""
    (source, chooser), (target,) = node.required, node.outputs
    table = narrow_table(context.value(source))
    write = context.layout(target)
    has_rows = node.op is Op.EMBEDDING_LOOKUP and write.padded and write.channel_stride == 1
    # Its kernel is one of units: where these do not run, the table is widened.
    if table is not None and has_rows and context.device.runs_units:
        return [_narrow(node, context, table)]
    form: _Form = node.attributes["form"]
    before, indices, after = (context.value(v) for v in (source, chooser, target))
    read = context.layout(source)
    rows = bool(form.inner)
    inner = prod(form.inner[:-1])
    # Index vectors that choose for one position in front of the extents.
    count = after.elements // (form.outer * prod(form.inner))
    blocks = ceil_div(after.channels, _BLOCK)
    flag = () if indices.is_constant else (spec.Check.of(node, node.attributes["outside"]),)
    names = [f"EXTENT{i}" for i in range(len(form.extents))]
    how: dict[str, int | str]
    units: int | tuple[int, ...]
    if in_groups := suits_groups(context.device) and _is_grouped(before, indices, write):
        group, units, places = strided_vectors(after)
        chosen = "".join(f"(k) == {i} ? {name} : " for i, name in enumerate(names[:-1]))
        how = {"WIDTH": before.type.size, "EXTENT(k)": f"({chosen}{names[-1]})"}
    else:
        group, units, places = None, after.pixels * blocks, divisor("BLOCKS", blocks)
        how = {
            "T": before.type.word,
            "INDEX": indices.type.opencl,
            "EXTENTS": ", ".join(names),
            "BLOCK": _BLOCK,
            "VECTORS": rows and read.channel_stride == 1 and vector_lanes(before, read, after, write) > 0,
        }
    launch = context.launch(
        node,
        spec.function(
            f"movement/{'gather_groups' if in_groups else 'gather'}.cl",
            f"f32_{'groups_' if in_groups else ''}gather_{'rows' if rows else 'elements'}",
            spec.joined(how, {"ROWS": rows, "CHECKED": not indices.is_constant, "DEPTH": len(form.extents)}),
            group,
            CHANNELS=after.channels,
            IN_STRIDE=read.pixel_stride,
            IN_CHANNEL_STRIDE=read.channel_stride,
            OUT_STRIDE=write.pixel_stride,
            TAIL=context.tail(target),
            **context.strides(INDEX=chooser),
            SPAN=prod(form.extents),
            **{f"EXTENT{i}": extent for i, extent in enumerate(form.extents)},
            **places,
            **divisor("IN_CHANNELS", before.channels),
            **divisor("INDEX_CHANNELS", indices.channels),
            **divisor("COUNT_INNER", count * inner),
            COUNT=count,
            **divisor("INNER", inner),
            **divisor("SHARED", form.shared),
        ),
        (context.pointer(source), context.pointer(chooser), target, *flag),
        units,
        spec.Work(moved=2 * after.type.size * after.elements),
    )
    return [spec.Candidate("groups" if in_groups else "positions", (launch,))]


def _is_grouped(before: Value, indices: Value, write: Layout) -> bool:
    """Whether the kernel of work-groups takes these types: of bytes it stores whole words."""
    has_words = before.type.word == "float" or (before.type.word == "uchar" and write.padded)
    return has_words and indices.type is ElementType.I32 and write.channel_stride == 1


def narrow_table(value: Value) -> spec.PackedConstant | None:
    """Return a matrix as `gather_narrow.cl` reads it; None for float32, or scales not of its rows."""
    stored = value.stored
    if stored is None or len(value.shape) != _MATRIX_RANK:
        return None
    rows, width = value.shape[0], round_up(value.channels)
    head: spec.Array = np.empty((rows, 0), np.uint8)
    if stored.scales is not None and stored.zeros is not None:
        scales, zeros = stored.by_slice(stored.scales, 0), stored.by_slice(stored.zeros, 0)
        if scales is None or zeros is None:
            return None
        head = np.stack([scales, zeros], axis=1).view(np.uint8)
    kind = stored.type

    def make() -> spec.Array:
        padded = np.pad(stored.codes, ((0, 0), (0, width - value.channels)))
        if kind is WeightType.I4:
            return np.concatenate([head, pairs_of_levels(padded, LANES)], axis=1)
        return np.concatenate([head, np.ascontiguousarray(padded).view(np.uint8)], axis=1)

    size = rows * (head.shape[1] + width * kind.bits // 8)
    return spec.PackedConstant(f"table{value.id}", size, make, ElementType.U8, kind)


def _narrow(node: Node, context: spec.Context, table: spec.PackedConstant) -> spec.Candidate:
    """Rows of a constant table that are widened on their way."""
    (source, chooser), (target,) = node.required, node.outputs
    before, indices, after = (context.value(v) for v in (source, chooser, target))
    stored, blocks = before.stored, ceil_div(after.channels, _BLOCK)
    if stored is None:
        raise ValueError(f"value {source} is float32")
    flag = () if indices.is_constant else (spec.Check.of(node, node.attributes["outside"]),)
    launch = context.launch(
        node,
        spec.function(
            "movement/gather_narrow.cl",
            spec.instance_name("gather", weights=stored.type),
            {
                "WEIGHT": stored.type.value,
                "INDEX": indices.type.opencl,
                "CHECKED": not indices.is_constant,
                "BLOCK": _BLOCK,
            },
            ROWS=before.shape[0],
            ROW_BYTES=table.bytes // before.shape[0],
            HEAD_BYTES=0 if stored.scales is None else 2 * ElementType.F32.size,
            CHANNELS=round_up(after.channels),
            **context.strides(OUT=target, INDEX=chooser),
            **divisor("BLOCKS", blocks),
            **divisor("INDEX_CHANNELS", indices.channels),
        ),
        (table, context.pointer(chooser), target, *flag),
        after.pixels * blocks,
        spec.Work(moved=(4 + before.type.size) * after.elements),
    )
    return spec.Candidate("narrow_rows", (launch,))


def _types(*inputs: tuple[ElementType, ...]) -> spec.Types:
    return spec.Types(inputs, (MOVABLE,), alike=True)


FAMILY = spec.Family(
    operators=(Op.GATHER, Op.GATHER_ND, Op.EMBEDDING_LOOKUP),
    read=_read,
    lower=lower,
    supports=_supports,
    any_layout=True,
    weights=(1,),
    types={
        Op.GATHER: _types(MOVABLE, INDICES),
        Op.GATHER_ND: _types(MOVABLE, INDICES),
        Op.EMBEDDING_LOOKUP: _types(INDICES[:1], MOVABLE),
    },
)
