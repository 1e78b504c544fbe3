"""RFFT2D, the spectrum of real images; REAL, IMAG and COMPLEX_ABS of complex numbers."""

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import LANES, Kind, Node, round_up
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op

_PARTS: Mapping[Kind, str] = {Op.REAL: "(re)", Op.IMAG: "(im)", Op.COMPLEX_ABS: "hypot(re, im)"}

_LONGEST = 4096
"""The longest row or column of a spectrum. A thread has two arrays of so many floats on its stack, 32 KiB, as
much as the first cache of a processor; longer ones would overflow small stacks."""

_UNITS = 32
"""Most units, and so most work-groups, of a launch. Chosen: several for each thread of the usual CPU device;
a device with more compute units leaves some idle."""

_VECTORS_PER_UNIT = 8
"""Vectors of 16 that a unit has at least: with fewer, handing a unit to a thread costs more than its work."""

_OPERATIONS = 5
"""Operations of a transform for each number and each halving of its length, as usually counted."""


def _lengths(facts: spec.OperatorFacts) -> tuple[int, int]:
    height, width = facts.known(1).reshape(-1)
    return int(height), int(width)


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if facts.operator.opcode != Op.RFFT2D:
        return None
    # That both are powers of two, shape inference has checked before (`rfft2d.cc` asks for it).
    longest = max(_lengths(facts))
    if longest > _LONGEST:
        return Unsupported(f"a transform of {longest} numbers, of which the kernel takes {_LONGEST}")
    return None


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    attributes = {"lengths": _lengths(facts)} if facts.operator.opcode == Op.RFFT2D else {}
    return spec.NodeSpec(facts.operator.inputs[:1], attributes)


def _circle(size: int) -> spec.PackedConstant:
    """Return the points of the unit circle by which a transform turns its numbers: cosines, then sines."""

    def make() -> NDArray[np.float64]:
        angles = 2 * np.pi * np.arange(size // 2) / size
        return np.concatenate([np.cos(angles), np.sin(angles)])

    return spec.PackedConstant(f"circle{size}", size, make)


def _spectrum(node: Node, context: spec.Context, source: int) -> spec.Launch:
    """Return the launch of RFFT2D; a unit is one image."""
    before, after = context.value(source), context.value(node.outputs[0])
    height, width = node.attributes["lengths"]
    # At least 2: the circle's table has size / 2 cosines and as many sines, none of them for a size of 1.
    size, images = max(2, height, width), prod(after.shape[:-2])
    return context.launch(
        node,
        spec.function(
            "features/signal_spectrum.cl",
            spec.instance_name("spectrum", f"n{size}"),
            {"SIZE": size},
            IN_HEIGHT=before.shape[-2],
            IN_WIDTH=before.shape[-1],
            HEIGHT=height,
            WIDTH=width,
            TAIL=context.tail(node.outputs[0]),
            **context.strides(IN=source, OUT=node.outputs[0]),
        ),
        (source, _circle(size), node.outputs[0]),
        images,
        spec.Work(flops=_OPERATIONS * images * height * width * (size.bit_length() - 1)),
    )


def _part(node: Node, context: spec.Context, source: int) -> spec.Launch:
    """Return the launch of a part of complex numbers; a unit is a range of pixels."""
    after = context.value(node.outputs[0])
    channels = round_up(after.channels)
    return context.launch(
        node,
        spec.function(
            "features/signal_part.cl",
            f"f32_signal_{node.op.name.lower()}",
            {"PART(re, im)": _PARTS[node.op]},
            PIXELS=after.pixels,
            CHANNELS=channels,
            **context.strides(IN=source, OUT=node.outputs[0]),
        ),
        (source, node.outputs[0]),
        max(1, min(_UNITS, after.pixels * channels // (LANES * _VECTORS_PER_UNIT), after.pixels)),
        spec.Work(flops=after.elements),
    )


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One kernel."""
    (source,) = node.required
    launch = _spectrum if node.op == Op.RFFT2D else _part
    return [spec.Candidate("rows", (launch(node, context, source),))]


_REAL, _COMPLEX = (ElementType.F32,), (ElementType.C64,)

FAMILY = spec.Family(
    operators=(Op.RFFT2D, *_PARTS),
    read=_read,
    lower=lower,
    supports=_supports,
    constants={1: "the lengths"},
    epilogue=True,
    parameters={Op.RFFT2D: (1,)},
    types={
        Op.RFFT2D: spec.Types((_REAL,), (_COMPLEX,)),
        **dict.fromkeys(_PARTS, spec.Types((_COMPLEX,), (_REAL,))),
    },
)
