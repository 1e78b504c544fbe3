"""DYNAMIC_UPDATE_SLICE: a tensor with another one written over a box of it, the way key-value caches grow."""

from runtime.delegates.gpu.graph.element_type import INDICES, MOVABLE
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.movement.copies import vector_lanes
from runtime.model.schema import BuiltinOperator as Op


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    return spec.NodeSpec(facts.operator.inputs)


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel; a unit is one output pixel."""
    (source, update, starts), (target,) = node.required, node.outputs
    before, box, after = (context.value(v) for v in (source, update, target))
    read, write = context.layout(source), context.layout(target)
    rank = len(after.shape)
    launch = context.launch(
        node,
        spec.function(
            "movement/slice/update.cl",
            "f32_slice_update",
            {
                "T": after.type.word,
                "INDEX": context.value(starts).type.opencl,
                "RANK": rank,
                "SIZES": ", ".join(f"SIZE{a}" for a in range(rank)),
                "WINDOWS": ", ".join(f"WINDOW{a}" for a in range(rank)),
                "VECTORS": read.channel_stride == 1 and vector_lanes(before, read, after, write) > 0,
            },
            CHANNELS=after.channels,
            IN_STRIDE=read.pixel_stride,
            IN_CHANNEL_STRIDE=read.channel_stride,
            **context.strides(UPDATE=update),
            OUT_STRIDE=write.pixel_stride,
            TAIL=context.tail(target),
            **{f"SIZE{a}": extent for a, extent in enumerate(after.shape)},
            **{f"WINDOW{a}": extent for a, extent in enumerate(box.shape)},
        ),
        (context.pointer(source), context.pointer(update), context.pointer(starts), target),
        after.pixels,
        spec.Work(moved=after.type.size * (2 * after.elements + box.elements)),
    )
    return [spec.Candidate("rows", (launch,))]


FAMILY = spec.Family(
    operators=(Op.DYNAMIC_UPDATE_SLICE,),
    read=_read,
    lower=lower,
    any_layout=True,
    types={Op.DYNAMIC_UPDATE_SLICE: spec.Types((MOVABLE, MOVABLE, INDICES), (MOVABLE,), alike=True)},
)
