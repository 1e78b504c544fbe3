"""Convolutions with groups, each output of few input channels, by a kernel of work-groups."""

from __future__ import annotations

from runtime.delegates.gpu.graph.graph import Node, round_up
from runtime.delegates.gpu.graph.parameters import divisor, parameters
from runtime.delegates.gpu.graph.work_groups import QUAD, strided
from runtime.delegates.gpu.lowering.matmul.conv.packing import filter_matrix
from runtime.delegates.gpu.lowering.matmul.conv.shape import ConvShape
from runtime.delegates.gpu.lowering.spec import (
    Candidate,
    Context,
    Instance,
    defines,
    instance_name,
)


def direct_in_groups(node: Node, context: Context, shape: ConvShape) -> Candidate:
    """One launch, a work-item for four outputs of a pixel."""
    s = shape
    channels, depth = round_up(s.out_channels), s.filter_h * s.filter_w * s.group_in
    vectors = channels // QUAD
    group, groups = strided(s.pixels * vectors)
    matrix = s.weights.arranged(lambda codes: filter_matrix(codes, s.group_in))
    sizes = s.image | s.taps
    instance = Instance(
        "matmul/conv/direct_groups.cl",
        instance_name("groups_conv_direct", weights=s.weights.type),
        defines(ALIKE=s.group_out % QUAD == 0, WEIGHT=s.weights.type.value),
        parameters(
            **{name: value for name, value in sizes.items() if name not in ("OUT_H", "OUT_W")},
            TOTAL=s.pixels * vectors,
            IN_STEP=s.in_layout.channel_stride,
            CHANNELS=channels,
            OUT_CHANNELS=s.out_channels,
            GROUP_IN=s.group_in,
            **divisor("VECTORS", vectors),
            **divisor("OUT_PIXELS", s.out_h * s.out_w),
            **divisor("OUT_W", s.out_w),
            **divisor("GROUP_OUT", s.group_out),
        ),
        group,
    )
    launch = context.launch(
        node,
        instance,
        (s.source, matrix.rows(f"weights{s.target}", depth, s.out_channels), s.target),
        groups,
        note=s.label,
        flops=s.flops,
        moved=s.bytes,
    )
    return Candidate("groups_direct", (launch,))
