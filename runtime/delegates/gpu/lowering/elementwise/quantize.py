"""QUANTIZE and DEQUANTIZE, between float32 and the integers of 8 and 16 bits.

Where quantised tensors hold real numbers, QUANTIZE is a chain of epilogue steps, and DEQUANTIZE changes
nothing, which `passes/canonicalise.py` knows. What is left are nodes with one input, at the border of the
graph or of what is computed in integers, which convert.
"""

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.epilogue import quantized
from runtime.delegates.gpu.graph.graph import Graph, Node, Step
from runtime.delegates.gpu.graph.simulation import is_quantized, levels_of
from runtime.delegates.gpu.graph.work_groups import most_units
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.elementwise import elementwise
from runtime.model.schema import BuiltinOperator as Op

_NUMBERS = (ElementType.F32, ElementType.I8, ElementType.U8, ElementType.I16)
"""Real numbers, and the integers that stand for them."""

_UNITS = 16
"""Most units, and so most work-groups, of a conversion. Chosen: conversions are short and bound by memory,
which few threads saturate; a device with more compute units leaves some idle."""


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    operator, tensors = facts.operator, facts.graph.subgraph.tensors
    stored = operator.inputs[0] if operator.opcode == Op.DEQUANTIZE else operator.outputs[0]
    if facts.types.get(stored) is not ElementType.F32:
        levels = levels_of(tensors[stored])
        if levels is None:
            raise ValueError(f"{operator.name} was accepted without a scale")
        return spec.NodeSpec(operator.inputs[:1], {"scale": levels.scale, "zero_point": levels.zero_point})
    if operator.opcode == Op.DEQUANTIZE:
        return spec.NodeSpec(operator.inputs[:1])
    steps = (Step("LOAD", (operator.inputs[0],)),)
    levels = levels_of(tensors[operator.outputs[0]])
    if levels is None:
        raise ValueError("QUANTIZE was accepted without a scale")
    # From one scale to another the graph's builder rounds, as behind any operator.
    return spec.NodeSpec(
        (), steps=steps if is_quantized(tensors[operator.inputs[0]]) else (*steps, quantized(levels))
    )


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    for tensor in (facts.operator.inputs[0], facts.operator.outputs[0]):
        has_scale = levels_of(facts.graph.subgraph.tensors[tensor]) is not None
        if facts.types.get(tensor) is not ElementType.F32 and not has_scale:
            kind = facts.graph.subgraph.tensors[tensor].type.name.lower()
            return Unsupported(
                f"tensor {tensor} is {kind}, but has not one positive scale for all of its elements"
            )
    return None


def _converts(node: Node, graph: Graph) -> bool:
    """Return True for a node that reads or writes integers."""
    (target,) = node.outputs
    return any(graph.values[value].type is not ElementType.F32 for value in (*node.reads, target))


def _writes_integers(node: Node, graph: Graph) -> bool:
    return graph.values[node.outputs[0]].type is not ElementType.F32


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel over all pixels."""
    (target,) = node.outputs
    if not _converts(node, context.graph):
        return elementwise.lower(node, context)
    (source,) = node.required
    before, after = context.value(source), context.value(target)
    read, write = context.layout(source), context.layout(target)
    to_levels = _writes_integers(node, context.graph)
    stored = after if to_levels else before
    limits = np.iinfo(stored.type.dtype)
    bounds = {"LOW": float(limits.min), "HIGH": float(limits.max)} if to_levels else {}
    launch = context.launch(
        node,
        spec.function(
            f"elementwise/quantize_{'store' if to_levels else 'load'}.cl",
            f"f32_{node.op.name.lower()}_{stored.type.value}",
            {"T": stored.type.opencl},
            **bounds,
            PIXELS=after.pixels,
            CHANNELS=after.channels,
            IN_STRIDE=read.pixel_stride,
            IN_CHANNEL_STRIDE=read.channel_stride,
            OUT_STRIDE=write.pixel_stride,
            SCALE=float(node.attributes["scale"]),
            ZERO_POINT=float(node.attributes["zero_point"]),
        ),
        (source, target),
        max(1, min(most_units(context.device, _UNITS), after.pixels)),
        spec.Work(flops=3 * after.elements),
    )
    return [spec.Candidate("rows", (launch,))]


FAMILY = spec.Family(
    operators=(Op.QUANTIZE, Op.DEQUANTIZE),
    read=_read,
    lower=lower,
    supports=_supports,
    epilogue=True,
    reads_any_layout=_converts,
    writes_dense=_writes_integers,
    types={
        Op.QUANTIZE: spec.Types(((ElementType.F32,),), (_NUMBERS,)),
        Op.DEQUANTIZE: spec.Types((_NUMBERS,), ((ElementType.F32,),)),
    },
)
