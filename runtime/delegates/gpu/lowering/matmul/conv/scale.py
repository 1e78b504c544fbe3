"""Candidates of a pointwise convolution whose weights are scaled at run time (`passes.fold_scale`)."""

from collections.abc import Sequence
from dataclasses import replace

from runtime.delegates.gpu.graph.graph import ceil_div
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.conv.tiles import Tile
from runtime.delegates.gpu.lowering.matmul.conv.weights import panel_bytes

_ROWS = 32
"""Rows of packed weights that a unit multiplies, 2 to 4 KiB for the usual panels. Chosen: fewer make units
that end before a worker has fetched them, more leave workers idle on the few weights of such a layer."""


def scaled_candidates(candidates: Sequence[spec.Candidate], scale: int) -> list[spec.Candidate]:
    """Each product behind a launch that multiplies its weights, row k by element k of the value `scale`.

    Only `conv/gemm.cl` is kept: its panels hold one row for each input channel, which the scale belongs to.
    """
    return [
        replace(candidate, name=f"scaled_{candidate.name}", launches=_scaled(candidate.launches[0], scale))
        for candidate in candidates
        if len(candidate.launches) == 1 and candidate.launches[0].instance.source == "matmul/conv/gemm.cl"
    ]


def _scaled(product: spec.Launch, scale: int) -> tuple[spec.Launch, spec.Launch]:
    """Return a launch that writes the scaled weights to scratch memory, and the product that reads them.

    The packed weights stay as they are: they are constants, and the scale differs from run to run.
    """
    known = dict(product.instance.defines)
    depth, width = int(dict(product.instance.parameters)["K"]), int(known["TILE_N"])
    (weights,) = (argument for argument in product.args if isinstance(argument, spec.PackedConstant))
    kind = WeightType(known["WEIGHT"])
    panels = weights.bytes // panel_bytes(kind, depth, width)
    # Each panel begins with a row of biases, as the product expects of float weights.
    target = spec.Scratch("scaled_weights", panels * (1 + depth) * width)
    floats = replace(
        product.instance,
        name=spec.instance_name("gemm", Tile(int(known["TILE_M"]), width).name),
        defines=spec.defines(**{**known, "WEIGHT": WeightType.F32.value}),
    )
    scaling = spec.Launch(
        spec.function(
            "matmul/conv/scale.cl",
            spec.instance_name("conv_scale", weights=kind),
            {"ROWS": _ROWS, "TILE_N": width, "WEIGHT": kind.value},
            K=depth,
        ),
        (weights, scale, target),
        units=panels * ceil_div(1 + depth, _ROWS),
        label=f"scale {depth}x{panels * width}",
        sources=product.sources,
        flops=target.elements,
        bytes=weights.bytes + target.bytes,
    )
    arguments = tuple(target if argument is weights else argument for argument in product.args)
    return scaling, replace(product, instance=floats, args=arguments)
