"""Finds the operators of a model that a delegate computes wrongly: alone, fused, and in their place.

Alone, every operator is fed with the reference's values; so a wrong one stands out, however many there are,
and none is blamed for the inputs that it got. The fusions that the delegate plans are then run in the same
way: one is wrong where its operators are right alone. At last the whole model is run, with what lies between
its kernels as outputs: that shows errors of layouts, transfers and rounding that gathers.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from runtime.delegates.base import Array
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import DelegateError, FarmRuntimeError
from runtime.judge.agreement import Expected, Judgement, OutputFacts, judge_each
from runtime.judge.kinds import output_kinds
from runtime.judge.rules import Rule, arithmetic_of, rule_for
from runtime.measure.loading import Opener
from runtime.model.graph import Model, Subgraph
from runtime.model.reader import read_model
from runtime.tools.model_bisect.oracle import RUNS, litert_runs, run
from runtime.tools.model_bisect.pieces import (
    can_be_cut,
    constant_tensors,
    cut,
    readable_tensors,
    with_outputs,
)
from runtime.tools.model_plan.model import model_plan, planner_of

How = Literal["alone", "fused", "in place"]

_WHOLE = "cost_aware_partitioning"
"""The option of a delegate that leaves operators to the CPU where they cost more than they save: pieces are
small, and each is to be run by the delegate."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """Operators that are outside the rule, together; `tensor` is the output with the largest excess."""

    operators: tuple[int, ...]
    how: How
    tensor: int
    judgement: Judgement


@dataclass(frozen=True, slots=True)
class Bisected:
    """The result. `suspects`: the first one first. `errors`: relative error of each operator alone.

    `in_place`: the first operator outside the rule in the whole model, which may only have got wrong inputs.
    `missing`: operators that were not tried alone. `values`: the reference's, by tensors.
    """

    graph: Subgraph
    rule: str
    settings: Mapping[str, str]
    suspects: tuple[Suspect, ...]
    in_place: Suspect | None
    errors: Mapping[int, float]
    missing: tuple[int, ...]
    values: Mapping[int, Array]


def bisect(
    model: Model,
    feeds: Sequence[Array],
    delegate: str,
    options: Mapping[str, Any],
    on_phase: Callable[[str], None] = lambda _phase: None,
) -> Bisected:
    """Find what a delegate computes wrongly. Raises `DelegateError`, `OracleError`, the model's errors."""
    search = _Search(model, delegate, dict(options))
    graph = model.subgraphs[0]
    on_phase("reference")
    tensors = readable_tensors(graph)
    reference = litert_runs(with_outputs(model, tensors), feeds)["reference"]
    values = dict(zip(tensors, reference, strict=True)) | dict(zip(graph.inputs, feeds, strict=True))
    folded = constant_tensors(graph)
    tried = [
        operator.index
        for operator in graph.operators
        if can_be_cut(graph, operator, values) and not folded.issuperset(operator.outputs)
    ]
    on_phase("operators alone")
    alone, errors = search.of_pieces([(index,) for index in tried], values, "alone")
    on_phase("fusions")
    nodes = [tuple(sorted(node)) for node in search.nodes() if set(node) <= set(tried)]
    wrong = {index for suspect in alone for index in suspect.operators}
    # With an operator that is wrong alone, a fusion would only show the same error again.
    fusions = [node for node in nodes if len(node) > 1 and not wrong & set(node)]
    fused = [search.narrowed(suspect, values) for suspect in search.of_pieces(fusions, values, "fused")[0]]
    on_phase("in place")
    in_place = search.in_place(feeds, folded)
    suspects = sorted((*alone, *fused), key=lambda one: one.operators)
    if in_place is not None and not any(one.operators <= in_place.operators for one in suspects):
        # No suspect lies at or before it, so that nothing found so far explains it.
        suspects.insert(0, in_place)
    missing = [one.index for one in graph.operators if one.index not in tried and one.outputs]
    return Bisected(
        graph,
        search.rule.text,
        search.settings,
        tuple(suspects),
        in_place,
        errors,
        tuple(i for i in missing if not folded.issuperset(graph.operators[i].outputs)),
        values,
    )


class _Search:
    """Runs pieces of one model on one delegate and judges them."""

    def __init__(self, model: Model, delegate: str, options: dict[str, Any]) -> None:
        self._model = model
        self._graph = model.subgraphs[0]
        self._delegate = delegate
        self._options = options
        self._arithmetic = arithmetic_of(model)
        descriptor = delegate_descriptor(delegate)
        self._integer_path = descriptor.integer_path
        more = {_WHOLE: False} if _WHOLE in descriptor.options else {}
        self._of_pieces = Opener.prepare(delegate, {**options, **more})
        self._of_model = Opener.prepare(delegate, options)
        self.settings: Mapping[str, str] = {}
        self.rule = self._rule()

    def nodes(self) -> list[tuple[int, ...]]:
        """Return the operators of each kernel that the delegate plans; nothing where it tells no plan."""
        try:
            plan = model_plan(self._model, planner_of(self._delegate, self._options))
        except (DelegateError, AttributeError):
            return []
        return [node.operators for partition in plan.partitions for node in partition.nodes]

    def of_pieces(
        self, pieces: Sequence[tuple[int, ...]], values: Mapping[int, Array], how: How
    ) -> tuple[list[Suspect], dict[int, float]]:
        """Run pieces on the reference's values; return those outside the rule, and each one's error."""
        if not pieces:
            return [], {}
        made = cut(self._model, pieces, values)
        judged = self._judged(made.data, made.feeds, self._of_pieces)
        found: dict[int, Suspect] = {}
        errors: dict[int, float] = {}
        for (number, tensor), judgement in zip(made.outputs, judged, strict=True):
            last = pieces[number][-1]
            errors[last] = max(errors.get(last, 0.0), judgement.rel_l2 or 0.0)
            if judgement.verdict == "fail":
                found.setdefault(number, Suspect(pieces[number], how, tensor, judgement))
        return list(found.values()), errors

    def narrowed(self, suspect: Suspect, values: Mapping[int, Array]) -> Suspect:
        """Return the shortest run of a fusion's operators that is wrong by itself, the first of these."""
        whole = suspect.operators
        # Shortest first: the first that is wrong has no smaller one to blame.
        parts = [whole[i : i + n] for n in range(2, len(whole)) for i in range(len(whole) - n + 1)]
        return next(iter(self.of_pieces(parts, values, "fused")[0]), suspect)

    def in_place(self, feeds: Sequence[Array], folded: frozenset[int]) -> Suspect | None:
        """Run the whole model; return the first operator whose result, as the next ones read it, is wrong."""
        graph, nodes = self._graph, self.nodes()
        inside = {index for node in nodes for index in node}
        ends = {max(node) for node in nodes} | {
            one.index for one in graph.operators if one.index not in inside
        }
        readable = set(readable_tensors(graph))
        shown = [
            (operator.index, tensor)
            for operator in graph.operators
            for tensor in operator.outputs
            if tensor in readable - folded and (operator.index in ends or tensor in graph.outputs)
        ]
        data = with_outputs(self._model, [tensor for _, tensor in shown])
        for (index, tensor), judgement in zip(shown, self._judged(data, feeds, self._of_model), strict=True):
            if judgement.verdict == "fail":
                return Suspect((index,), "in place", tensor, judgement)
        return None

    def _judged(self, data: bytes, feeds: Sequence[Array], opener: Opener) -> list[Judgement]:
        runs = litert_runs(data, feeds)
        with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
            file.write(data)
            file.flush()
            outputs, self.settings = run(opener, Path(file.name), feeds)
        # Once more: the precision in effect is known only after a run.
        self.rule = self._rule()
        model = read_model(data)
        tensors = [model.subgraphs[0].tensors[i] for i in model.subgraphs[0].outputs]
        facts = []
        for tensor in tensors:
            q = tensor.quantization
            single = q is not None and len(q.scales) == 1
            facts.append(OutputFacts(tensor.name, *((q.scales[0], q.zero_points[0]) if single and q else ())))
        draws = {name: [runs[name]] for name in RUNS if name != "reference"}
        expected = Expected([runs["reference"]], facts, draws, output_kinds(model, {}))
        return judge_each(expected, [outputs], self.rule)

    def _rule(self) -> Rule:
        return rule_for(
            self._arithmetic,
            integer_path=self._integer_path or self.settings.get("integer_path") == "yes",
            precision=self.settings.get("precision", "fp32"),
            draws=[name for name in RUNS if name != "reference"],
        )


def one_operator(model: Model, suspect: Suspect, values: Mapping[int, Array]) -> tuple[bytes, list[Array]]:
    """Return the suspect as a model of its own, with inputs. Raises `FarmRuntimeError` if it is none."""
    graph = model.subgraphs[0]
    if not all(can_be_cut(graph, graph.operators[i], values) for i in suspect.operators):
        raise FarmRuntimeError("an operator that keeps state, or calls others, is no model of its own")
    made = cut(model, [suspect.operators], values)
    return made.data, list(made.feeds)
