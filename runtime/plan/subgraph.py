"""One subgraph and the stages of its planning: input shapes, known values, delegation, execution.

Planning has two halves, so that a caller may see the delegates' report before memory is taken: `analyse`
infers and assigns operators to delegates, `allocate` binds.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from runtime.common.stages import stage
from runtime.delegates.abilities import DeviceTime, NotTold
from runtime.delegates.base import CompiledPartition, KeepsPlans, PartitionDelegate
from runtime.delegates.epochs import Grouping
from runtime.delegates.partition import Assignment, DelegationReport, FailedPartition, delegate_graph
from runtime.errors import DeviceLostError, FallbackForbiddenError, ShapeError, UnsupportedOperatorError
from runtime.model.graph import Model
from runtime.ops.support.context import GraphServices, PostponeError
from runtime.ops.support.value import Array, Shape
from runtime.plan.budget import MemoryBudget, out_of_memory
from runtime.plan.execution import (
    Execution,
    PartitionFailedError,
    Step,
    cpu_step,
    hold,
    partition_step,
    reset_variables,
)
from runtime.plan.inference import GraphValues, declared_inputs, infer
from runtime.plan.kept_plans import KeptPlan, KeptPlans
from runtime.plan.profile import StepTime

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Analysis:
    """The intermediate plan between assigning the operators and binding them; holds every folded constant."""

    values: GraphValues
    assignments: tuple[Assignment, ...]

    def steps(self) -> list[Step]:
        """Return the steps in order: each operator of the CPU, each partition as a whole."""
        steps: list[Step] = []
        late = {o.index for o in self.values.pending}
        for assignment in self.assignments:
            partition, delegate = assignment.partition, assignment.delegate
            if partition is None or delegate is None:
                steps += [cpu_step(o) for o in assignment.operators if o.index not in late]
            else:
                steps.append(partition_step(assignment.operators, partition, delegate))
        return steps


class PlannedSubgraph:
    """Keeps the last good plan until a new one is complete, so a failed delegate changes nothing."""

    def __init__(
        self,
        model: Model,
        index: int,
        delegates: Sequence[PartitionDelegate] = (),
        grouping: Grouping | None = None,
        *,
        budget: MemoryBudget,
        preserve_all: bool = False,
        graph: GraphServices | None = None,
    ) -> None:
        self.model = model
        self.subgraph = model.subgraphs[index]
        self.shapes: dict[int, Shape] = {i: self.subgraph.tensors[i].shape for i in self.subgraph.inputs}
        self.execution: Execution | None = None
        self.report: DelegationReport | None = None
        self._delegates = tuple(delegates)
        self._grouping = grouping or Grouping()
        self._budget = budget
        self._preserve_all = preserve_all
        self._graph = graph
        self._held: dict[int, set[int]] = {}
        self._assumed = declared_inputs(self.subgraph) if self._delegates else {}
        self._failed: dict[int, dict[int, str]] = {}
        self._failed_shapes: dict[int, Shape] | None = None
        self._failures: list[FailedPartition] = []
        self._replacements: list[str] = []
        self._warned = ""
        self._analysis: _Analysis | None = None
        self._planned: dict[int, Shape] | None = None
        self.last: Execution | None = None
        # That of the execution; `report` may be ahead of it, where the next one is analysed already.
        self._report: DelegationReport | None = None
        self._inferred: dict[int, Shape] = {}
        self._constants: dict[int, Array] = {}
        wanted = (d.kept_plans for d in self._delegates if isinstance(d, KeepsPlans))
        self._kept = KeptPlans(max(wanted, default=0))

    @property
    def is_ready(self) -> bool:
        """True where the execution fits the current input shapes."""
        return self.execution is not None and self._planned == self.shapes

    def shape(self, index: int) -> Shape:
        """Return the current shape of a tensor: as planned, else as resized or as in the file."""
        if index in self.shapes:
            return self.shapes[index]
        return self._inferred.get(index, self.subgraph.tensors[index].shape)

    def resize(self, index: int, shape: Shape) -> None:
        """Give a tensor another shape; the next `allocate` plans again."""
        self.shapes[index] = shape

    def analyse(self) -> None:
        """Infer shapes and assign the operators. Raises the error that keeps the model from running."""
        try:
            with stage("partition"):
                self._analyse()
        except MemoryError as error:
            raise out_of_memory(error) from error

    def _analyse(self) -> None:
        try:
            values = infer(self.subgraph, self.shapes, self._graph, held=self._held, assumed=self._assumed)
        except ShapeError:
            if not self._assumed:
                raise
            # Some converters declare any shape where they know none.
            self._assumed = {}
            values = infer(self.subgraph, self.shapes, self._graph, held=self._held)
        folded = frozenset(values.folded)
        left = tuple(o for o in self.subgraph.operators if o.index not in folded)
        assignments: tuple[Assignment, ...] = (Assignment(left, None, None),)
        if self._delegates:
            # What failed had other input shapes: with these, its partition may compile.
            if self._failed_shapes != self.shapes:
                self._failed, self._failures = {}, []
            delegation = delegate_graph(
                self.model, values.facts(), folded, self._delegates, self._grouping, self._failed
            )
            assignments = delegation.assignments
            self.report = replace(delegation.report, failures=tuple(self._failures))
            self._replacements = delegation.replacements(self.subgraph)
            self._check_full()
        self._analysis = _Analysis(values, assignments)
        on_cpu = sorted(o.index for a in assignments if a.delegate is None for o in a.operators)
        for index in on_cpu:
            if index in values.missing:
                raise self._with_report(values.missing[index])

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """Who runs which operators, in order, as `analyse` found it; empty once they are bound."""
        return () if self._analysis is None else self._analysis.assignments

    def _check_full(self) -> None:
        """Raise `FallbackForbiddenError` where a delegate's option forbids the delegation in the report."""
        strict = any(getattr(d, "require_full_delegation", False) for d in self._delegates)
        if strict and self.report is not None and self.report.status != "full":
            raise FallbackForbiddenError(f"Disallowed CPU fallback detected.\n{self.report}", self.report)

    def _with_report(self, error: UnsupportedOperatorError) -> UnsupportedOperatorError:
        error.delegation = self.report
        return error

    def allocate(self) -> None:
        """Plan, bind and compile for the current input shapes, unless that is done already."""
        if self.is_ready or self._took_up():
            return
        try:
            execution = self._bind()
            while execution is None:
                execution = self._bind()
        except MemoryError as error:
            raise out_of_memory(error) from error
        self._announce()
        values = execution.values
        # Only now: until the new plan is bound, the old one stays in use.
        self._put_aside()
        self.execution = execution
        self._report = self.report
        # A copy, because `resize` changes `shapes` in place.
        self._planned = dict(self.shapes)
        self._inferred = values.shapes
        kept = set(self.subgraph.outputs) if not self._preserve_all else set(values.constants)
        self._constants = {i: a for i, a in values.constants.items() if i in kept}

    def _put_aside(self) -> None:
        """Keep the present plan for its input shapes where delegates ask for that; else release it.

        A plan that depends on values that only running tells would not fit other values.
        """
        known = self.execution
        if known is None or self._planned is None or known.values.pending or self._held:
            self._release()
            return
        self._kept.keep(self._planned, KeptPlan(known, self._report, self._inferred, self._constants))
        self.execution = self.last = self._planned = None

    def _took_up(self) -> bool:
        """Go on with a plan that was kept for the present input shapes, if there is one.

        Its variables begin anew, as behind every resize.
        """
        plan = self._kept.take(self.shapes)
        if plan is None:
            return False
        self._put_aside()
        self.execution, self._analysis = plan.execution, None
        self.report = self._report = plan.report
        self._planned, self._inferred, self._constants = dict(self.shapes), plan.inferred, plan.constants
        self.reset_variables()
        return True

    def _bind(self) -> Execution | None:
        """Build the execution; return None if it must be planned again.

        That is where a kernel needs values that are computed at run time, or a partition did not compile.
        """
        if self._analysis is None or self._analysis.values.input_shapes != self.shapes:
            self.analyse()
        assert self._analysis is not None
        values, steps = self._analysis.values, self._analysis.steps()
        # It holds every folded constant, and the execution holds those that it needs.
        self._analysis = None
        try:
            with stage("compile"):
                return Execution(values, steps, budget=self._budget, preserve_all=self._preserve_all)
        except PostponeError as wait:
            hold(self._held, wait)
            return None
        except PartitionFailedError as failure:
            self._note_failure(failure)
            return None
        except UnsupportedOperatorError as error:
            # It is the same error, which `from error` would make its own cause.
            raise self._with_report(error) from error.__cause__

    def _note_failure(self, failure: PartitionFailedError) -> None:
        """Leave the operators of a failed partition to the CPU, as long as the input shapes stay the same.

        Raises the delegate's error where a library is missing: then no partition could ever be compiled.
        """
        if isinstance(failure.error.__cause__, ImportError):
            raise failure.error
        self._failed_shapes = dict(self.shapes)
        log = str(failure)
        first = log.partition("\n")[0]
        operators = tuple(o.index for o in failure.partition.operators)
        number = self._delegates.index(failure.delegate)
        reason = f"its partition could not be compiled: {first}"
        self._failed.setdefault(number, {}).update(dict.fromkeys(operators, reason))
        lost = isinstance(failure.error, DeviceLostError)
        self._failures.append(FailedPartition(failure.delegate.name, operators, first, log, lost))
        # Whole: behind the first line stands what a compiler said, which a farm keeps with the attempt.
        _log.warning(
            "a partition of %d operators could not be compiled and runs on the CPU: %s", len(operators), log
        )
        if self.report is not None and self.report.partitions == 1:
            _log.warning("Restored original execution plan after delegate application failure.")

    def _announce(self) -> None:
        """LiteRT's lines: what was replaced, and the warning where an operator stays on the CPU."""
        for line in self._replacements:
            _log.info(line)
        # Once for each text: a model that is resized in a loop would repeat it.
        if self.report is not None and self.report.status != "full" and str(self.report) != self._warned:
            self._warned = str(self.report)
            _log.warning(self._warned)

    def run(self, times: list[StepTime] | None = None) -> None:
        """Run every operator once; with `times`, each step is timed and added to it.

        Raises `ModelError` where values that are known now do not fit together, or memory does not suffice.
        """
        self._believe()
        assert self.execution is not None
        try:
            self.last = self.execution.run(times)
        except MemoryError as error:
            raise out_of_memory(error) from error
        if self.last is not self.execution:
            self._inferred = self.last.values.shapes

    def _believe(self) -> None:
        """Plan again where an input refutes a shape that the file declares.

        Inputs stay, and variables; those behind the shape in question begin anew, as after a resize.
        """
        assert self.execution is not None
        refuted = self.execution.refuted()
        if not refuted:
            return
        names = ", ".join(repr(self.subgraph.tensors[i].name) for i in sorted(refuted))
        _log.warning("%s: another shape than the file declares, so the model is planned again", names)
        self._assumed = {i: value for i, value in self._assumed.items() if i not in refuted}
        kept = {t.index for t in self.subgraph.tensors if t.is_variable}.union(self.subgraph.inputs)
        held = {i: array.copy() for i, array in self.execution.arrays.items() if i in kept}
        self._planned = None
        self.allocate()
        for index in held.keys() & self.execution.arrays.keys():
            np.copyto(self.execution.arrays[index], held[index])

    def device_time(self) -> DeviceTime | NotTold:
        """Run every operator once and return what its partitions' devices tell; raises as `run`."""
        self._believe()
        assert self.execution is not None
        try:
            return self.execution.device_time()
        except MemoryError as error:
            raise out_of_memory(error) from error

    def array(self, index: int) -> Array | None:
        """Memory of a tensor after `allocate`, else None; one of run-time shape has none before `run`."""
        if not self.is_ready or self.execution is None:
            return None
        last = self.last or self.execution
        found = last.arrays.get(index)
        if found is None and (index in self.subgraph.outputs or self._preserve_all):
            found = last.values.constants.get(index)
        return self._constants.get(index) if found is None else found

    def whole(self) -> tuple[CompiledPartition, Step] | None:
        """Return the one partition that runs the whole subgraph, with its step, or None."""
        return None if self.execution is None else self.execution.whole()

    def reset_variables(self) -> None:
        """Set variable tensors back to their first value."""
        if self.execution is not None:
            reset_variables(self.subgraph, self.execution.arrays)

    def close(self) -> None:
        """Release delegates' memory, the plan, and those that were kept."""
        self._kept.close()
        self._release()

    def _release(self) -> None:
        if self.execution is not None:
            self.execution.close()
        self.execution = self.last = None
        self._planned = None
