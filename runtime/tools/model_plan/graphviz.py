"""The plan as a graph in Graphviz's language: partitions as clusters, launches within their nodes."""

from collections.abc import Iterator

from runtime.delegates.plan import PartitionPlan, PlannedNode
from runtime.tools.model_plan.advice import kibibytes
from runtime.tools.model_plan.model import ModelPlan


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
    return '"' + "\\n".join(row.replace("\\", "\\\\").replace('"', '\\"') for row in text) + '"'
