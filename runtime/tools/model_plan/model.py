"""The plan of a whole model: the runner and the order of its operators, and each partition's own plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.delegates.partition import Assignment, DelegationReport
from runtime.delegates.plan import DeviceClass, PartitionPlan, PlannedDevice, Planner
from runtime.delegates.registry import delegate_descriptor, delegate_factory
from runtime.errors import DelegateError, UnsupportedOperatorError
from runtime.model.graph import Model, Subgraph
from runtime.plan.program import Program


@dataclass(frozen=True, slots=True)
class PlannedOperator:
    """An operator of the model. `inputs` and `outputs` are indices of tensors, absent ones left out.

    `place` is "partition N", "cpu", or "constant" for one whose result is computed once; `reason` says why
    an operator stays on the CPU.
    """

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step of the run: a partition, or operators of the CPU.

    `failure` says why a partition that the delegate takes cannot be planned; `plan` is None then.
    """

    operators: tuple[int, ...]
    on_cpu: bool
    plan: PartitionPlan | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The plan of a model on a delegate. `obstacle` says why the rest cannot run on the CPU, if it cannot."""

    delegate: str
    device: PlannedDevice
    settings: Mapping[str, str]
    report: DelegationReport
    graph: Subgraph
    operators: tuple[PlannedOperator, ...]
    steps: tuple[PlannedStep, ...]
    obstacle: str = ""

    @property
    def partitions(self) -> tuple[PartitionPlan, ...]:
        """The plans of all partitions, in the order in which they run."""
        return tuple(step.plan for step in self.steps if step.plan is not None)

    def named(self, operator: int) -> str:
        """Index and name of an operator, for people."""
        return f"{operator} {self.operators[operator].name}"


def planner_of(
    name: str, options: Mapping[str, Any], device_class: DeviceClass | None = None, *, is_tuned: bool = False
) -> Planner:
    """Return the planner of an installed delegate.

    Raises `DelegateError` for an unknown delegate, one that offers no plan, or options that it refuses.
    """
    factory = delegate_factory(delegate_descriptor(name))
    if factory is None:
        raise DelegateError(
            f"{name!r} is the interpreter itself, which plans no kernels; `farm model info` shows its memory"
        )
    make = getattr(factory, "planner", None)
    if make is None:
        raise DelegateError(f"delegate {name!r} offers no plan (docs/delegates.md, `planner`)")
    planner: Planner = make(options, device_class, is_tuned=is_tuned)
    return planner


def model_plan(model: Model, planner: Planner) -> ModelPlan:
    """Partition a model as the interpreter does, and plan each partition. Nothing is run.

    Raises `ModelError` for a model that cannot run, `DelegateError` where an option forbids CPU operators.
    """
    program = Program(model, (planner,))
    planned, obstacle = program.subgraph(0), ""
    try:
        planned.analyse()
    except UnsupportedOperatorError as error:
        obstacle = str(error)
    if planned.report is None:
        raise DelegateError(obstacle or f"{planner.name}: nothing was offered to the delegate")
    steps = tuple(_step(assignment, planner) for assignment in planned.assignments)
    return ModelPlan(
        delegate=planner.name,
        device=planner.device,
        settings=planner.describe(),
        report=planned.report,
        graph=planned.subgraph,
        operators=_operators(planned.subgraph, steps, planned.report),
        steps=steps,
        obstacle=obstacle,
    )


def _step(assignment: Assignment, planner: Planner) -> PlannedStep:
    operators = tuple(operator.index for operator in assignment.operators)
    if assignment.partition is None:
        return PlannedStep(operators, on_cpu=True)
    try:
        return PlannedStep(operators, on_cpu=False, plan=planner.plan(assignment.partition))
    except DelegateError as error:
        return PlannedStep(operators, on_cpu=False, failure=str(error))


def _operators(
    graph: Subgraph, steps: tuple[PlannedStep, ...], report: DelegationReport
) -> tuple[PlannedOperator, ...]:
    places: dict[int, str] = {}
    partitions = [step for step in steps if not step.on_cpu]
    for number, step in enumerate(partitions):
        places |= dict.fromkeys(step.operators, f"partition {number}")
    places |= {operator: "cpu" for step in steps if step.on_cpu for operator in step.operators}
    reasons = {fallback.index: fallback.reason for fallback in report.fallbacks}
    return tuple(
        PlannedOperator(
            index=operator.index,
            name=operator.name,
            inputs=tuple(tensor for tensor in operator.inputs if tensor >= 0),
            outputs=operator.outputs,
            # An operator of no step was folded: its result was computed while planning.
            place=places.get(operator.index, "constant"),
            reason=reasons.get(operator.index, "") if operator.index in places else "",
        )
        for operator in graph.operators
    )
