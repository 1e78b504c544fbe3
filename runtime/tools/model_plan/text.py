"""The plan as text of at most 100 columns, and as a graph in Graphviz's language."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Final

from runtime.delegates.plan import Merged, PartitionPlan, PlannedKernel, PlannedNode
from runtime.tools.model_plan.advice import kibibytes, suitability
from runtime.tools.model_plan.document import Occupancy, occupancy, totals
from runtime.tools.model_plan.model import ModelPlan, PlannedStep

WIDTH: Final = 100
"""Columns of the text. Wider breaks in half a screen's window; narrower would cut more names."""

_LARGEST: Final = 8
"""Constants that are listed for a partition, the largest first; `--json` has all. Chosen to fit a screen."""

_LONGEST: Final = 16
"""Launches with few work-items that are listed; `--json` has all. Chosen to fit a screen."""

_MATTERS: Final = 0.01
"""The share of the arithmetic from which on a launch with few work-items is listed. Launches below it could
cost at most a hundredth of a run whose arithmetic takes the time; smaller lists more of them."""

_LAUNCH = "{:>4}  {:<17} {:<22} {:<9} {:>8} {:>5} {:>5} {:>8} {:>7} {:>5}"
"""The row of a launch: node, operators, function, tile, work-items, those of a group, bytes of local memory,
MFLOP, KiB, and operations for each byte."""


def lines(plan: ModelPlan, file: str) -> Iterator[str]:
    """Yield the whole text, line by line."""
    yield from _head(plan, file)
    for number, step in enumerate(step for step in plan.steps if not step.on_cpu):
        yield ""
        yield from _partition(plan, number, step)
    yield from _on_cpu(plan)
    filled = occupancy(plan)
    if filled is not None:
        yield from ("", *_occupancy(plan, filled))
    yield from _advice(plan)


def _head(plan: ModelPlan, file: str) -> Iterator[str]:
    device, sums = plan.device, totals(plan)
    origin = "assumed" if device.is_assumed else "this machine's"
    yield from _wrapped(f"{file} on {plan.delegate}")
    units = f"{device.compute_units} compute units"
    if device.resident_threads:
        units += f", {device.resident_threads:,} resident threads"
    yield from _wrapped(f"device: {device.name} ({origin}, class {device.device_class}), {units}", "  ")
    if device.note:
        yield from _wrapped(f"note: {device.note}", "  ")
    settings = ", ".join(f"{key} {value}" for key, value in plan.settings.items() if key != "device")
    yield from _wrapped(f"settings: {settings}", "  ")
    report = plan.report
    yield from _wrapped(
        f"{report.delegated_ops} of {report.total_ops} operators in {report.partitions} partition(s): "
        f"{sums['launches']} launches, {sums['flops'] / 1e6:,.1f} MFLOP, {kibibytes(sums['bytes'])} moved, "
        f"arena {kibibytes(sums['arena_bytes'])}, constants {kibibytes(sums['constant_bytes'])}",
        "  ",
    )
    if plan.obstacle:
        yield from _wrapped(f"the model cannot run: {plan.obstacle}", "  ")


def _partition(plan: ModelPlan, number: int, step: PlannedStep) -> Iterator[str]:
    count = len(step.operators)
    if step.plan is None:
        yield from _wrapped(f"partition {number}: {count} operators run on the CPU instead: {step.failure}")
        return
    found = step.plan
    yield (
        f"partition {number}: {count} operators, {len(found.nodes)} nodes, {len(found.launches)} launches, "
        f"arena {kibibytes(found.arena_bytes)}, constants {kibibytes(found.constant_bytes)}"
    )
    if found.shortage:
        yield from _wrapped(f"does not fit: {found.shortage}", "  ")
    yield from _launches(plan, found)
    yield from _merges(plan, found)
    yield from _buffers(found)
    yield from _constants(found)


def _launches(plan: ModelPlan, partition: PartitionPlan) -> Iterator[str]:
    yield _LAUNCH.format(
        "node", "operators", "function", "tile", "items", "group", "local", "MFLOP", "KiB", "F/B"
    )
    for node in partition.nodes:
        for launch in node.launches:
            yield _launch(plan, node, launch)


def _launch(plan: ModelPlan, node: PlannedNode, launch: PlannedKernel) -> str:
    more = f"+{len(node.operators) - 1}" if len(node.operators) > 1 else ""
    mark = "*" if node.chosen == "tuning" else ""
    return _LAUNCH.format(
        node.position,
        _cut(plan.named(node.main), 17 - len(more)) + more,
        _cut(launch.function.partition("__")[0], 22 - len(mark)) + mark,
        _cut(launch.tile, 9),
        launch.work_items,
        launch.work_group,
        launch.local_bytes,
        _fixed(launch.flops / 1e6, 2, 8),
        _fixed(launch.bytes / 2**10, 1, 7),
        _fixed(launch.intensity, 1, 5),
    )


def _merges(plan: ModelPlan, partition: PartitionPlan) -> Iterator[str]:
    named = plan.named
    fused = ((one, f"{named(one.operator)} -> {named(n.main)}") for n in partition.nodes for one in n.merged)
    yield from _grouped("fused", fused)
    yield from _grouped("removed", ((one, named(one.operator)) for one in partition.removed))


def _grouped(title: str, merged: Iterable[tuple[Merged, str]]) -> Iterator[str]:
    """Yield a line for all operators, each with its text, to which one pass has done the same."""
    grouped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one, text in merged:
        grouped[one.by, one.effect].append(text)
    if grouped:
        yield f"  {title}:"
    for (by, effect), cases in grouped.items():
        yield from _wrapped(f"{by} ({effect}): {', '.join(cases)}", "    ")


def _buffers(partition: PartitionPlan) -> Iterator[str]:
    yield f"  {'offset':>12} {'bytes':>12}  {'nodes':<9} {'role':<11} buffer"
    for buffer in partition.buffers:
        life = f"{buffer.first}..{buffer.last}"
        shared = f" and {len(buffer.values) - 1} in it" if len(buffer.values) > 1 else ""
        name = _tail(buffer.name, WIDTH - 53 - len(shared))
        yield f"  {buffer.offset:>12,} {buffer.bytes:>12,}  {life:<9} {buffer.role:<11} {name}{shared}"


def _constants(partition: PartitionPlan) -> Iterator[str]:
    sizes: dict[str, list[int]] = defaultdict(list)
    for constant in partition.constants:
        sizes[constant.type].append(constant.bytes)
    if sizes:
        each = (f"{len(found)} of {kind} in {kibibytes(sum(found))}" for kind, found in sizes.items())
        note = "; uint8: bytes packed for a kernel" if "uint8" in sizes else ""
        yield from _wrapped(f"constants: {', '.join(each)}{note}", "  ")
    largest = sorted(partition.constants, key=lambda one: -one.bytes)[:_LARGEST]
    for constant in largest:
        yield f"  {constant.offset:>12,} {constant.bytes:>12,}  {constant.type:<9} {_cut(constant.name, 60)}"
    if len(partition.constants) > _LARGEST:
        yield f"    and {len(partition.constants) - _LARGEST} smaller ones: see --json"


def _on_cpu(plan: ModelPlan) -> Iterator[str]:
    grouped: dict[str, list[str]] = defaultdict(list)
    for operator in plan.operators:
        if operator.place == "cpu":
            grouped[operator.reason].append(plan.named(operator.index))
    if grouped:
        yield from ("", "on the CPU:")
    for reason, operators in grouped.items():
        yield from _wrapped(f"{', '.join(operators)}: {reason}", "  ")


def _occupancy(plan: ModelPlan, found: Occupancy) -> Iterator[str]:
    yield from _wrapped(
        f"work-items: the median launch has {found.median_work_items:,.0f}"
        + (f" on a device that holds {found.resident_threads:,}" if found.resident_threads else "")
        + f"; {found.small} of {found.launches} launches have fewer than {found.limit:,}, and do "
        f"{100 * found.small_share:.1f} % of the arithmetic"
    )
    shown = [one for one in found.small_launches if one.share >= _MATTERS]
    if shown:
        yield f"  of these, with {100 * _MATTERS:.0f} % of the arithmetic or more:"
    for one in shown[:_LONGEST]:
        where = f"partition {one.partition}, node {one.node}"
        name = f"{plan.named(one.operators[0])} {one.function}"
        yield f"  {_cut(name, 58):<58} {where:<22} {one.work_items:>6,} {100 * one.share:>6.1f} %"
    if len(shown) > _LONGEST:
        yield f"    and {len(shown) - _LONGEST} more: see --json"


def _advice(plan: ModelPlan) -> Iterator[str]:
    found = suitability(plan)
    yield from ("", f"verdict: {found.text}, {100 * found.cpu_share:.1f} % of the products on the CPU")
    if found.pieces:
        yield "advice:"
    for piece in found.pieces:
        places = [plan.named(operator) for operator in piece.operators]
        if not places:
            places = [f"tensor {tensor}" for tensor in piece.tensors]
        yield from _wrapped(f"{piece.rule}: {piece.finding} ({_some(places)}); {piece.gain}", "  ")
        yield from _wrapped(f"source: {piece.source}", "    ")


def _some(names: Sequence[str]) -> str:
    more = f", and {len(names) - _LARGEST} more" if len(names) > _LARGEST else ""
    return ", ".join(names[:_LARGEST]) + more


def _wrapped(text: str, indent: str = "") -> Iterable[str]:
    return wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _tail(name: str, longest: int) -> str:
    """Shorten a tensor's name: converters write long paths, whose end says most."""
    return name if len(name) <= longest else f"…{name[1 - longest :]}"


def _fixed(number: float, digits: int, width: int) -> str:
    """With so many digits behind the point, or with none where it would be too wide."""
    text = f"{number:.{digits}f}"
    return text if len(text) <= width else f"{number:.0f}"


def dot(plan: ModelPlan, file: str) -> Iterator[str]:
    """Yield the graph line by line, for `dot -Tsvg`."""
    yield "digraph plan {"
    yield f"  label={_quoted(f'{file} on {plan.delegate}, {plan.device.name}')}; labelloc=t;"
    yield '  node [shape=box, fontname="Helvetica", fontsize=10]; edge [fontname="Helvetica", fontsize=8];'
    makers: dict[int, str] = {}
    edges: list[str] = []
    for tensor in plan.graph.inputs:
        makers[tensor] = f"input_{tensor}"
        yield f"  {makers[tensor]} [label={_quoted(plan.graph.tensors[tensor].name)}, shape=ellipse];"
    number = 0
    for step in plan.steps:
        if step.plan is not None:
            yield from _cluster(plan, number, step.plan, makers, edges)
        else:
            for operator in step.operators:
                yield from _operator(plan, operator, makers, edges)
        # A partition without a plan keeps its number, as in the listing.
        number += not step.on_cpu
    for tensor in plan.graph.outputs:
        yield f"  output_{tensor} [label={_quoted(plan.graph.tensors[tensor].name)}, shape=ellipse];"
        edges += [f"  {makers[tensor]} -> output_{tensor};"] if tensor in makers else []
    yield from edges
    yield "}"


def _operator(plan: ModelPlan, index: int, makers: dict[int, str], edges: list[str]) -> Iterator[str]:
    operator, name = plan.operators[index], f"operator_{index}"
    yield f"  {name} [label={_quoted(plan.named(index), 'on the CPU')}, style=filled, fillcolor=lightgrey];"
    edges += [f"  {makers[tensor]} -> {name};" for tensor in operator.inputs if tensor in makers]
    makers.update(dict.fromkeys(operator.outputs, name))


def _cluster(
    plan: ModelPlan, number: int, partition: PartitionPlan, makers: dict[int, str], edges: list[str]
) -> Iterator[str]:
    yield f"  subgraph cluster_{number} {{"
    size = kibibytes(partition.arena_bytes)
    yield f"    label={_quoted(f'partition {number}: {len(partition.launches)} launches, arena {size}')};"
    values = {value.id: value for value in partition.values}
    inside = {value: makers[value] for value in partition.inputs if value in makers}
    roots = {value: buffer.values for buffer in partition.buffers for value in buffer.values}

    def sources(value: int) -> list[str]:
        # A view has no node that writes it: what lies in its buffer made it.
        found = [inside[value]] if value in inside else [inside[v] for v in roots[value] if v in inside]
        return sorted(set(found))

    for node in partition.nodes:
        name = f"node_{number}_{node.position}"
        yield f"    {name} [label={_node(plan, node)}];"
        for value in node.reads:
            label = _quoted("x".join(str(extent) for extent in values[value].shape))
            edges += [f"  {source} -> {name} [label={label}];" for source in sources(value)]
        inside.update(dict.fromkeys(node.writes, name))
    yield "  }"
    for tensor in partition.outputs:
        makers.update(dict.fromkeys([tensor], found[-1]) if (found := sources(tensor)) else {})


def _node(plan: ModelPlan, node: PlannedNode) -> str:
    operators = ", ".join(plan.named(operator) for operator in node.operators)
    kernels = [f"{launch.function}: {launch.work_items:,} items" for launch in node.launches]
    return _quoted(operators, *kernels)


def _quoted(*rows: str) -> str:
    """Quote a label; characters of a file name that are not printable become escapes."""
    text = (row.encode("unicode_escape").decode() if not row.isprintable() else row for row in rows)
    # The line break is Graphviz's escape, so that rows are escaped before they are joined.
    return '"' + "\\n".join(row.replace("\\", "\\\\").replace('"', '\\"') for row in text) + '"'
