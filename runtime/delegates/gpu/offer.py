"""Decides which operators the delegate takes, by its options alone; the planner decides by the same."""

import logging
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from runtime.delegates.base import GraphFacts, Partition, Unsupported
from runtime.delegates.gpu.choose.cost import OperatorCosts
from runtime.delegates.gpu.graph.graph import Custom
from runtime.delegates.gpu.graph.simulation import Quantised, is_quantised, quantised_rows
from runtime.delegates.gpu.lowering import families
from runtime.delegates.gpu.lowering.treatment import refusal
from runtime.delegates.gpu.settings.options import Options
from runtime.errors import DelegateError
from runtime.model.graph import Operator

_log = logging.getLogger(__name__)


class Offer:
    """The half of `PartitionDelegate` that partitions a graph. No device is needed for it.

    `excluded` holds, by the operator's name, why operators with kernels stay on the CPU all the same.
    Raises `DelegateError` where the option names an operator that has no kernels.
    """

    name = "gpu"
    title = "GPU"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.max_delegated_partitions = options.max_delegated_partitions
        self.kept_plans = options.kept_plans
        self.min_nodes_per_partition = options.min_nodes_per_partition
        self.cost_model = OperatorCosts() if options.weighs_costs else None
        self.require_full_delegation = options.require_full_delegation
        self.excluded = dict.fromkeys(_named(options), "the option excluded_operators names it")
        self._may_choose = options.precision is None and not options.precision_loss_allowed
        self._last: tuple[GraphFacts, Quantised] | None = None

    @property
    def way(self) -> Quantised | None:
        """The treatment of quantised tensors; None where each model decides."""
        if not self.options.enable_quantization:
            return Quantised.LEFT
        if self.options.precision == "int8":
            return Quantised.LEVELS
        return None if self._may_choose else Quantised.REAL

    def way_of(self, graph: GraphFacts, operators: Sequence[Operator]) -> Quantised:
        """Return the treatment of the quantised tensors of these operators.

        Without a precision they stay integers, and float rows that meet weights of levels become integers,
        where the device gains by it and that leaves no operator more to the CPU. A partition, some
        operators of its graph, may be of integers where the graph is not.
        """
        if self.way is not None:
            return self.way
        quantises_rows = any(quantised_rows(graph, one) for one in operators)
        if not (quantises_rows or any(is_quantised(graph, one) for one in operators)):
            return Quantised.REAL
        for operator in operators:
            if refusal(graph, operator, Quantised.LEVELS) and not refusal(graph, operator, Quantised.REAL):
                return Quantised.REAL
        # Asked last, because the answer may take a probe of the device.
        gains = self._gains_by_integers(quantises_rows=quantises_rows)
        return Quantised.LEVELS if gains else Quantised.REAL

    def way_of_partition(self, partition: Partition) -> Quantised:
        """Return the treatment of the quantised tensors of a partition."""
        facts = GraphFacts(partition.subgraph, partition.shapes, partition.dtypes, partition.constants)
        return self.way_of(facts, partition.operators)

    def _gains_by_integers(self, *, quantises_rows: bool) -> bool:  # noqa: ARG002 - for who has a device
        """Return whether integers are worth it, as `gains_by_integers` says."""
        return False

    def _way_in(self, graph: GraphFacts) -> Quantised:
        """Return the treatment of quantised tensors where a graph is asked for operator by operator."""
        if self._last is None or self._last[0] is not graph:
            known = [operator for operator in graph.subgraph.operators if operator.index not in graph.late]
            self._last = graph, self.way_of(graph, known)
        return self._last[1]

    def supports(self, graph: GraphFacts, operator: Operator) -> Unsupported | None:
        """Return None if a kernel runs the operator; else why not, which may be a defect here."""
        first, last = self.options.first_delegate_node_index, self.options.last_delegate_node_index
        if operator.index < first or (last is not None and operator.index > last):
            end = "the end" if last is None else str(last)
            return Unsupported(f"operator {operator.index} is not among those to delegate, {first} to {end}")
        if (reason := self.excluded.get(operator.name)) is not None:
            return Unsupported(reason)
        try:
            way = self._way_in(graph)
            return refusal(graph, operator, way) or self._lacking(graph, operator, way)
        except Exception as error:  # noqa: BLE001  # a model must not fail for what the CPU can run
            _log.exception("gpu delegate: operator %d %s", operator.index, operator.name)
            return Unsupported(defect(error))

    def _lacking(self, graph: GraphFacts, operator: Operator, way: Quantised) -> Unsupported | None:  # noqa: ARG002 - for who has a device
        """Return why this device cannot run an operator that has kernels, or None."""
        return None


def _named(options: Options) -> Iterator[str]:
    """Yield the names in `excluded_operators`, which must have kernels."""
    for name in options.excluded:
        known = [kind.value if isinstance(kind, Custom) else kind.name for kind in families()]
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DelegateError(
                f"gpu delegate: option 'excluded_operators': {name!r} is no operator that the delegate has "
                f"kernels for{hint}"
            )
        yield name


def defect(error: Exception) -> str:
    """Return the text for an error that the delegate should not have had."""
    what = " ".join(str(error).split())
    return f"a defect of the delegate, please report it with the model: {type(error).__name__}: {what}"
