"""CONV_3D_TRANSPOSE with constant weights: each output cell gathers the taps that reach it.

Inputs: output shape, filter [kd, kh, kw, Co, Ci], x [N, D, H, W, Ci], bias [Co].
"""

from math import prod

import numpy as np

from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div, round_up
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.shape import work_of
from runtime.delegates.gpu.lowering.matmul.transpose_conv import TRANSPOSED, activation_refusal
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding

_AXES = ("D", "H", "W")
_FILTER, _DATA, _BIAS = 1, 2, 3


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """Strides, dilations and what is cut off in front, each for depth, height and width.

    The cut is the padding of the convolution that would lead back from the output (`kernels/padding.h`).
    """
    options, inputs = facts.options, facts.operator.inputs
    strides = tuple(int(options[f"stride_{axis.lower()}"]) for axis in _AXES)
    dilations = tuple(int(options.get(f"dilation_{axis.lower()}_factor", 1)) for axis in _AXES)
    cuts = []
    for axis, (stride, dilation) in enumerate(zip(strides, dilations, strict=True)):
        out, reach = facts.output_shape()[axis + 1], (facts.shape(_FILTER)[axis] - 1) * dilation + 1
        same = Padding(options["padding"]) is Padding.SAME
        # VALID: (out - reach + 1) / stride, rounded up, as `ComputeOutSize` of `kernels/padding.h` has it.
        steps = ceil_div(out, stride) if same else (out + stride - reach) // stride
        cuts.append(max(0, (steps - 1) * stride + reach - out) // 2)
    bias = inputs[_BIAS] if facts.has_input(_BIAS) else -1
    attributes = {"strides": strides, "dilations": dilations, "cuts": tuple(cuts)}
    return spec.NodeSpec((inputs[_DATA], inputs[_FILTER], bias), attributes, spec.activation_of(facts))


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel; a unit is one output cell and 16 channels."""
    (source, filter_id, bias), (target,) = node.filtered, node.outputs
    before, after, weights = (context.value(v) for v in (source, target, filter_id))
    blocks, depth, taps = ceil_div(after.channels, LANES), before.channels, prod(weights.shape[:3])

    def pack() -> spec.Array:
        rows = context.constant(filter_id).reshape(taps, after.channels, depth)
        padded = np.zeros((taps, blocks * LANES, depth), np.float32)
        padded[:, : after.channels] = rows
        # [block][tap][input channel][16], so that a unit reads one contiguous run.
        return np.ascontiguousarray(padded.reshape(taps, blocks, LANES, depth).transpose(1, 0, 3, 2))

    def start() -> spec.Array:
        found = np.zeros(blocks * LANES, np.float32)
        if bias is not None:
            found[: after.channels] = context.constant(bias).reshape(-1)
        return found

    window: dict[str, int] = {}
    for axis, letter in enumerate(_AXES):
        window |= {
            f"IN_{letter}": before.shape[axis + 1],
            f"FILTER_{letter}": weights.shape[axis],
            f"DILATION_{letter}": node.attributes["dilations"][axis],
            f"PAD_{letter}": node.attributes["cuts"][axis],
            **divisor(f"STRIDE_{letter}", node.attributes["strides"][axis]),
        }
    _, _, height, width, _ = after.shape
    launch = context.launch(
        node,
        spec.function(
            "matmul/conv_3d_transpose.cl",
            "f32_conv_3d_transpose",
            {},
            K=depth,
            CHANNELS=after.channels,
            **context.strides(IN=source, OUT=target),
            **window,
            **divisor("UNIT_BLOCKS", blocks),
            **divisor("OUT_VOLUME", prod(after.shape[1:4])),
            **divisor("OUT_AREA", height * width),
            **divisor("OUT_W", width),
        ),
        (
            source,
            spec.PackedConstant(f"weights{target}", blocks * taps * depth * LANES, pack),
            spec.PackedConstant(f"bias{target}", round_up(after.channels), start),
            target,
        ),
        after.pixels * blocks,
        work_of("", before.pixels, before, weights, after),
    )
    return [spec.Candidate("cells", (launch,))]


FAMILY = spec.Family(
    operators=(Op.CONV_3D_TRANSPOSE,),
    read=_read,
    lower=lower,
    supports=activation_refusal,
    constants=TRANSPOSED,
    epilogue=True,
    parameters=(0,),
)
