"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED of 8 bits, bit for bit as LiteRT's reference kernels."""

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Node
from runtime.delegates.gpu.graph.work_groups import suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.integer_gemm.depthwise import depthwise
from runtime.delegates.gpu.lowering.matmul.integer_gemm.groups import product_in_groups
from runtime.delegates.gpu.lowering.matmul.integer_gemm.product import product
from runtime.delegates.gpu.lowering.matmul.integer_gemm.stage import stage_attributes, stage_refusal
from runtime.delegates.gpu.lowering.windows import window_attributes
from runtime.model.schema import BuiltinOperator as Op

_BYTES = (ElementType.I8, ElementType.U8)
_TYPES = spec.Types((_BYTES, _BYTES, (ElementType.I32, ElementType.I64)), (_BYTES,), alike=True)


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    op = facts.operator.opcode
    refused = stage_refusal(facts, _channels(facts), -1 if op == Op.DEPTHWISE_CONV_2D else 0)
    if refused is not None:
        return refused
    channels = facts.shape(0)[-1] if facts.shape(0) else 1
    if op == Op.FULLY_CONNECTED:
        if facts.options.get("weights_format", 0):
            return Unsupported("shuffled weights have no kernel")
        whole = facts.shape(1)[1] % channels == 0
        return None if whole else Unsupported("rows of other than whole pixels have no kernel of integers")
    if op == Op.CONV_2D and channels != facts.shape(1)[3]:
        return Unsupported("groups have no kernel of integers")
    return None


def _channels(facts: spec.OperatorFacts) -> int:
    return facts.shape(1)[3 if facts.operator.opcode == Op.DEPTHWISE_CONV_2D else 0]


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    attributes = dict(stage_attributes(facts, _channels(facts)))
    if facts.operator.opcode != Op.FULLY_CONNECTED:
        _, filter_h, filter_w, _ = facts.shape(1)
        attributes |= window_attributes(facts, filter_h, filter_w)
    return spec.NodeSpec(facts.operator.inputs[:3], attributes)


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel. That of work-groups is of int8 alone, and not in the portable subset: it has 64 bits."""
    source = node.inputs[0]
    is_of_one = source is not None and context.value(source).channels == 1
    if node.op == Op.DEPTHWISE_CONV_2D and not is_of_one:
        return [depthwise(node, context)]
    device, is_signed = context.device, node.attributes["sign"] == 0
    in_groups = is_signed and suits_groups(device) and device.runs_units
    return [product_in_groups(node, context) if in_groups else product(node, context)]


FAMILY = spec.Family(
    operators=(Op.CONV_2D, Op.DEPTHWISE_CONV_2D, Op.FULLY_CONNECTED),
    read=_read,
    lower=lower,
    supports=_supports,
    types=dict.fromkeys((Op.CONV_2D, Op.DEPTHWISE_CONV_2D, Op.FULLY_CONNECTED), _TYPES),
)
