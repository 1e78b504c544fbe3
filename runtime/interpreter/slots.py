"""Runs of a whole model in the background, each on memory of its own: several are in flight at once."""

from collections.abc import Sequence

import numpy as np

from runtime.delegates.asynchrony import AsynchronousPartition, Completion, NotStarted
from runtime.delegates.storage import HostStorage
from runtime.ops.support.value import Array
from runtime.plan.execution import Step
from runtime.plan.subgraph import PlannedSubgraph


class Slot:
    """The inputs and outputs of one run at a time. It holds for as long as the subgraph is planned so."""

    def __init__(self, planned: PlannedSubgraph, partition: AsynchronousPartition, step: Step) -> None:
        self._partition = partition
        storages: dict[int, HostStorage] = {}
        arrays: dict[int, Array] = {}
        for index in (*step.inputs, *step.outputs):
            like = planned.array(index)
            assert like is not None
            storages[index] = HostStorage.managed(like.nbytes)
            arrays[index] = storages[index].memory.view(like.dtype).reshape(like.shape)
        self._inputs = [storages[index] for index in step.inputs]
        self._outputs = [storages[index] for index in step.outputs]
        self._fed = [arrays.get(index) for index in planned.subgraph.inputs]
        self._read = [arrays[index] for index in planned.subgraph.outputs]
        self._completion: Completion | None = None

    def start(self, values: Sequence[Array]) -> None:
        """Copy the model's inputs in and start a run. Raises `DelegateError` where it cannot be started."""
        for array, value in zip(self._fed, values, strict=True):
            # The delegate does not read an input that none of its operators has.
            if array is not None:
                np.copyto(array, value)
        self._completion = self._partition.start(self._inputs, self._outputs).completion

    def run_again(self) -> None:
        """Run on the inputs that lie there, leave the outputs there, and wait. Raises the run's error."""
        self._partition.start(self._inputs, self._outputs).completion.wait()

    def finish(self) -> tuple[Array, ...]:
        """Wait for the run and return copies of the model's outputs. Raises the run's error."""
        assert self._completion is not None
        self._completion.wait()
        return tuple([array.copy() for array in self._read])


def slots_of(planned: PlannedSubgraph, count: int) -> list[Slot] | NotStarted:
    """Memory for so many runs in flight; or why the subgraph cannot run in the background."""
    whole = planned.whole()
    if whole is None:
        report = planned.report
        ran = "no operator" if report is None else f"{report.delegated_ops} of {report.total_ops} operators"
        return NotStarted(f"its delegate runs {ran}, and starts only models that it runs whole")
    partition, step = whole
    if not isinstance(partition, AsynchronousPartition):
        return NotStarted("its delegate has no asynchronous runs")
    if not partition.starts:
        return NotStarted("its delegate starts no run of this model, with these options, without waiting")
    inputs, outputs = planned.subgraph.inputs, planned.subgraph.outputs
    if not set(step.inputs) <= set(inputs) or not set(outputs) <= set(step.outputs):
        return NotStarted("an output of the model is known without running it")
    return [Slot(planned, partition, step) for _ in range(count)]
