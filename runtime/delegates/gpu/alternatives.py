"""The graph of a partition and the ways to run each of its nodes on a device; nothing is chosen here."""

from collections.abc import Sequence, Set

from runtime.delegates.base import GraphFacts, Partition, Unsupported
from runtime.delegates.gpu.builder import build_graph, graph_of_one
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.graph.graph import Graph, Node
from runtime.delegates.gpu.graph.rounding import round_weights
from runtime.delegates.gpu.graph.simulation import Quantised
from runtime.delegates.gpu.layout.halves import stored_in_halves
from runtime.delegates.gpu.layout.memory import smallest
from runtime.delegates.gpu.lowering import family_of
from runtime.delegates.gpu.lowering.spec import Candidate, Code, Context
from runtime.delegates.gpu.lowering.treatment import is_folded
from runtime.delegates.gpu.passes import LayoutRules, optimise
from runtime.delegates.gpu.settings.options import Options
from runtime.delegates.variables import HOST_OPERATORS
from runtime.errors import DelegateError
from runtime.model.graph import Operator


def layout_rules() -> LayoutRules:
    """Tell the passes, which know no kernel families, what these can do."""

    def reads_any(node: Node, graph: Graph) -> bool:
        family = family_of(node, graph)
        return family.any_layout or family.reads_any_layout(node, graph)

    def writes_dense(node: Node, graph: Graph) -> bool:
        family = family_of(node, graph)
        return family.any_layout or family.writes_dense(node, graph)

    return LayoutRules(lambda node, graph: family_of(node, graph).epilogue, reads_any, writes_dense)


def candidates_of(node: Node, context: Context) -> Sequence[Candidate]:
    """Return the ways to run a node, the default first. Raises `DelegateError` where there is none."""
    found = family_of(node, context.graph).lower(node, context)
    # Where all are refused, the error of the device says why.
    found = [candidate for candidate in found if not context.refuses(candidate)] or found
    if not context.device.runs_units:
        found = [candidate for candidate in found if candidate.works_in_groups]
    if not found:
        raise DelegateError(f"gpu delegate: no kernel fits {node.op.name} (operators {list(node.sources)})")
    return smallest(found) if context.spares_memory else found


def lowered(
    partition: Partition,
    device: Capabilities,
    options: Options,
    way: Quantised,
    refused: Set[Code] = frozenset(),
) -> tuple[Graph, list[list[Candidate]]]:
    """Return the graph of a partition behind the passes, and the ways to run each of its nodes.

    `refused`: see `Context`. Raises `DelegateError` where a node has none.
    """
    built = build_graph(partition, is_narrow=options.weights == "stored", way=way)
    return with_candidates(behind_passes(built, options), device, options, refused)


def behind_passes(built: Graph, options: Options) -> Graph:
    """Return a graph as the builder makes it, with its weights rounded, behind the passes."""
    rounded = round_weights(built, str(options.precision))
    return optimise(rounded, layout_rules(), options.skipped_passes)


def with_candidates(
    graph: Graph, device: Capabilities, options: Options, refused: Set[Code] = frozenset()
) -> tuple[Graph, list[list[Candidate]]]:
    """Return a graph behind the passes and the ways to run each of its nodes. Raises as `lowered`."""
    context = Context(graph, device, options.memory == "least", options.rounding, refused)
    return stored_in_halves(graph, [candidates_of(node, context) for node in graph.nodes], device)


def unit_refusal(
    facts: GraphFacts, operator: Operator, device: Capabilities, way: Quantised
) -> Unsupported | None:
    """Return the reason why a device that runs kernels of work-groups alone cannot run an operator, or None.

    The operator has passed `treatment.refusal`. It is lowered as if it were alone, which compiles nothing.
    """
    if device.runs_units or is_folded(facts, operator) or operator.opcode in HOST_OPERATORS:
        return None
    graph = optimise(graph_of_one(facts, operator, way), layout_rules())
    for node in graph.nodes:
        try:
            candidates_of(node, Context(graph, device))
        except DelegateError:
            kinds = sorted({graph.values[value].type.value for value in (*node.reads, *node.outputs)})
            return Unsupported(
                f"{device.platform} runs kernels of work-groups alone, of which none computes {node.op.name} "
                f"of {' and '.join(kinds)} in this form"
            )
    return None
