"""RESHAPE, SQUEEZE and EXPAND_DIMS: a copy between layouts where the layout pass could not make a view."""

from dataclasses import replace

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import Layout, Node, Value, ceil_div
from runtime.delegates.gpu.graph.parameters import divisor, reciprocal
from runtime.delegates.gpu.graph.work_groups import QUAD, strided, suits_groups
from runtime.delegates.gpu.lowering import spec
from runtime.model.schema import BuiltinOperator as Op

_UNITS = 16
"""Most units, and so most work-groups, of a copy. Chosen: copies are short and bound by memory, which few
threads saturate; a device with more compute units leaves some idle."""


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    return spec.NodeSpec(facts.operator.inputs[:1])


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """One copy. In a concatenation the layout pass sets `tail`, `group_pixels` and `group_stride`."""
    (source,), (target,) = node.required, node.outputs
    before, after = context.value(source), context.value(target)
    read, write = context.layout(source), context.layout(target)
    instance = _copy(
        before,
        read,
        pixels=after.pixels,
        channels=after.channels,
        stride=write.pixel_stride,
        shift=context.shift(target),
        tail=node.attributes.get("tail", context.tail(target)),
        group=node.attributes.get("group_pixels", after.pixels),
        group_stride=node.attributes.get("group_stride"),
    )
    args = (context.pointer(source), spec.LineOf(target))
    return [spec.Candidate("rows", (_launch(instance, args, after, node.sources, context.device),))]


def dense_copy(
    source: spec.Argument,
    layout: Layout,
    value: Value,
    target: spec.Argument,
    sources: tuple[int, ...],
    device: Capabilities,
) -> spec.Launch:
    """Return a launch that writes the elements of a value in row-major order, without padded lanes."""
    instance = _copy(value, layout, pixels=value.pixels, channels=value.channels, stride=value.channels)
    return _launch(instance, (source, target), value, sources, device)


def _launch(
    instance: spec.Instance,
    args: tuple[spec.Argument, ...],
    value: Value,
    sources: tuple[int, ...],
    device: Capabilities,
) -> spec.Launch:
    """Return the launch of a copy to `value`."""
    launch = spec.Launch(
        instance,
        args,
        units=min(_UNITS, value.pixels),
        label=f"copy {'x'.join(map(str, value.shape))}",
        sources=sources,
        bytes=2 * value.type.size * value.elements,
    )
    if not suits_groups(device) or value.type.word not in ("float", "uchar"):
        return launch
    given = {name: int(number) for name, number in instance.parameters}
    lanes = QUAD // value.type.size
    # Narrow elements without gaps are taken as one row, so that no word belongs to two rows.
    if lanes > 1 and given["OUT_STRIDE"] == given["OUT_CHANNELS"] and not given["GROUP_STEP"]:
        given |= {"PIXELS": 1, "OUT_CHANNELS": given["PIXELS"] * given["OUT_CHANNELS"], "OUT_STRIDE": 0}
    pixels, row = given["PIXELS"], given["OUT_CHANNELS"] + given["TAIL"]
    steps = (given["OUT_SHIFT"], given["GROUP_STEP"], given["OUT_STRIDE"], row if pixels > 1 else 0)
    if any(step % lanes for step in steps):
        # Two rows would share a word.
        return launch
    words = ceil_div(row, lanes)
    group, groups = strided(pixels * words)
    kept = {name: number for name, number in given.items() if name not in _UNUSED_IN_GROUPS}
    kept |= {"TOTAL": pixels * words, **divisor("ROW", words)}
    in_groups = spec.function(
        "movement/reshape_groups.cl", "f32_groups_reshape_copy", {"LANES": lanes}, group, **kept
    )
    return replace(launch, instance=in_groups, units=groups[0], groups=groups)


_UNUSED_IN_GROUPS = frozenset({"PIXELS", "TAIL"})
"""Parameters of the unit function that the kernel of work-groups has in its own."""


def _copy(
    source: Value,
    layout: Layout,
    *,
    pixels: int,
    channels: int,
    stride: int,
    shift: int = 0,
    tail: int = 0,
    group: int = 1,
    group_stride: int | None = None,
) -> spec.Instance:
    """Return the function that copies `source` to `pixels` pixels of `channels` channels, `stride` apart."""
    step, length, alike = layout.channel_stride, source.channels, source.channels == channels
    if layout.pixel_stride == length * step:
        # Its pixels follow each other like channels, so that the whole value is one row.
        length = source.elements
    if stride == channels and tail == 0 and group_stride is None:
        # The output's pixels follow each other too: fewer and longer ones are the same elements.
        joined = next(n for n in range(pixels // min(pixels, _UNITS), 0, -1) if pixels % n == 0)
        alike = alike and joined == 1
        pixels, channels, stride = pixels // joined, channels * joined, stride * joined
    return spec.function(
        "movement/reshape.cl",
        "f32_reshape_copy",
        {"T": source.type.word, "DENSE": step == 1, "ALIKE": alike},
        PIXELS=pixels,
        OUT_CHANNELS=channels,
        IN_STRIDE=layout.pixel_stride,
        IN_CHANNEL_STRIDE=step,
        OUT_STRIDE=stride,
        OUT_SHIFT=shift,
        TAIL=tail,
        GROUP_STEP=0 if group_stride is None else group_stride - group * stride,
        **divisor("IN_CHANNELS", length),
        **reciprocal("GROUP", group),
    )


FAMILY = spec.Family(
    operators=(Op.RESHAPE, Op.SQUEEZE, Op.EXPAND_DIMS),
    read=_read,
    lower=lower,
    parameters=(1,),
    any_layout=True,
    types=spec.moving(Op.RESHAPE, Op.SQUEEZE, Op.EXPAND_DIMS, inputs=spec.PARAMETRISED),
)
