"""Binds steps to memory: kernels are prepared, partitions compiled, intermediates placed in one arena.

A subgraph whose shapes are all known is one `Execution`. Otherwise each is followed by the next, planned with
the values that it computed and kept for as long as those values stay the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import Protocol, TypeVar

import numpy as np

from runtime.common.arena import Arena, Lifetime
from runtime.delegates import abilities
from runtime.delegates.base import CompiledPartition, Partition, PartitionDelegate
from runtime.delegates.variables import split
from runtime.errors import DelegateError, DeviceError, FarmRuntimeError, ModelError
from runtime.model.graph import Operator, Subgraph
from runtime.model.schema import TensorType
from runtime.ops.support.context import Kernel, PostponeError, unsupported
from runtime.ops.support.evaluation import prepare_kernel, unforeseen
from runtime.ops.support.scratch import Scratch
from runtime.ops.support.value import Array, Shape, dtype_of
from runtime.plan.blas import one_blas_thread
from runtime.plan.budget import MemoryBudget
from runtime.plan.inference import GraphValues
from runtime.plan.lifetimes import ALIGNMENT, lifetimes, plan_arena
from runtime.plan.profile import StepTime

_Result = TypeVar("_Result")


class _Around(Protocol):
    """Adds what comes before and behind a run of a partition."""

    def __call__(self, run: Callable[[], _Result]) -> Callable[[], _Result]: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One operator on the CPU, or one partition on its delegate.

    `before` and `behind` are the operators of its border, which the host runs in the same step.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operator: Operator | None = None
    partition: Partition | None = None
    delegate: PartitionDelegate | None = None
    before: tuple[Operator, ...] = ()
    behind: tuple[Operator, ...] = ()


def cpu_step(operator: Operator) -> Step:
    """Return the step of an operator that stays on the CPU."""
    return Step(tuple(i for i in operator.inputs if i >= 0), operator.outputs, operator=operator)


def partition_step(operators: Sequence[Operator], partition: Partition, delegate: PartitionDelegate) -> Step:
    """Return the step of a partition and of the operators at its border."""
    before, _, behind = split(operators)
    border = (*before, *behind)
    made = {t for o in before for t in o.outputs}
    read = {t for o in border for t in o.inputs if t >= 0}
    return Step(
        tuple(sorted({*partition.inputs, *read} - made)),
        tuple(sorted({*partition.outputs, *made})),
        None,
        partition,
        delegate,
        before,
        behind,
    )


class PartitionFailedError(Exception):
    """A delegate could not compile a partition; `error` is what it raised. It never leaves the plan."""

    def __init__(
        self, partition: Partition, delegate: PartitionDelegate, error: DelegateError | DeviceError
    ) -> None:
        super().__init__(str(error))
        self.partition = partition
        self.delegate = delegate
        self.error = error


class Execution:
    """Planned steps. `arrays` holds the memory of each tensor that these or earlier steps touch."""

    def __init__(
        self,
        values: GraphValues,
        steps: Sequence[Step],
        *,
        budget: MemoryBudget,
        preserve_all: bool,
        inherited: Mapping[int, Array] | None = None,
    ) -> None:
        self.values = values
        self.budget = budget
        self.preserve_all = preserve_all
        self.arrays = dict(inherited or {})
        lives = _lifetimes(values, steps, self.arrays, preserve_all=preserve_all)
        arena = plan_arena(values.subgraph, lives)
        self.arena = arena
        self._reserved = arena.size
        budget.reserve(arena.size)
        self._compiled: list[CompiledPartition] = []
        self._after: _Continuation | None = None
        self.steps = tuple(steps)
        self._runs: list[Kernel] = []
        self._profiles: list[Callable[[], Sequence[abilities.KernelTime]] | None] = []
        self._device_times: list[Callable[[], abilities.DeviceTime | abilities.NotTold] | None] = []
        scratch = Scratch()
        # A step that fails to bind leaves compiled partitions and reserved memory: close releases them.
        try:
            self.arrays.update(_allocate(values, lives, arena))
            self._runs += [self._bind(values, step, scratch) for step in steps]
        except BaseException:
            self.close()
            raise

    def _bind(self, values: GraphValues, step: Step, scratch: Scratch) -> Kernel:
        if step.operator is not None:
            scratch.begin()
            self._profiles.append(None)
            self._device_times.append(None)
            return prepare_kernel(values.context(step.operator, self.arrays, scratch, self._keep))
        assert step.partition is not None
        assert step.delegate is not None
        try:
            compiled = step.delegate.compile(step.partition)
        except (DelegateError, DeviceError) as error:
            raise PartitionFailedError(step.partition, step.delegate, error) from error
        self._compiled.append(compiled)
        inputs = [self.arrays[i] for i in step.partition.inputs]
        outputs = [self.arrays[i] for i in step.partition.outputs]
        around = self._around(values, step, scratch)
        self._profiles.append(
            around(partial(compiled.profile, inputs, outputs))
            if isinstance(compiled, abilities.ProfiledPartition)
            else None
        )
        if isinstance(compiled, abilities.DeviceTimedPartition):
            self._device_times.append(around(partial(compiled.device_time, inputs, outputs)))
        else:
            why = abilities.NotTold(f"{step.delegate.name} does not tell when its device worked")
            self._device_times.append(lambda: why)
        return around(partial(compiled.invoke, inputs, outputs))

    def _around(self, values: GraphValues, step: Step, scratch: Scratch) -> _Around:
        """Return what puts the border of a partition around each way to run it."""

        def kernel(operator: Operator) -> Kernel:
            scratch.begin()
            return prepare_kernel(values.context(operator, self.arrays, scratch, self._keep))

        before, behind = ([kernel(o) for o in side] for side in (step.before, step.behind))

        def around(run: Callable[[], _Result]) -> Callable[[], _Result]:
            if not before and not behind:
                return run

            def whole() -> _Result:
                for one in before:
                    one()
                result = run()
                for one in behind:
                    one()
                return result

            return whole

        return around

    def _keep(self, index: int, array: Array) -> None:
        """Keep an output whose shape became known only when its operator ran."""
        held = self.arrays.get(index)
        if held is not None and held.shape == array.shape and held.dtype == array.dtype:
            # In place where it fits: the execution that follows is bound to this memory.
            np.copyto(held, array)
        else:
            self.arrays[index] = array.copy()

    def run(self, times: list[StepTime] | None = None) -> "Execution":
        """Run every step once and return the execution that knows all tensors.

        With `times`, each step is timed and added to it, and delegates are asked for the times of their
        kernels. Floating-point specials are values here, not warnings.
        """
        runs = self._runs if times is None else [self._timed(i, times) for i in range(len(self._runs))]
        self._run_steps(0, runs)
        if not self.values.pending:
            return self
        return self._rest().run(times)

    def device_time(self) -> abilities.DeviceTime | abilities.NotTold:
        """Run every step once and return the times of all partitions together; see `DeviceTimedPartition`.

        Ends at the first partition that does not tell: what follows would read what nothing has written.
        """
        told: list[abilities.DeviceTime] = []
        for position, ask in enumerate(self._device_times):
            if ask is None:
                self._run_steps(position, self._runs[position : position + 1])
                continue
            time = ask()
            if isinstance(time, abilities.NotTold):
                return time
            told.append(time)
        if self.values.pending:
            self._rest().run()
        if not told:
            return abilities.NotTold("no operator of the model runs on a device")
        return abilities.DeviceTime(sum(time.busy_ns for time in told), sum(time.queue_ns for time in told))

    def _run_steps(self, first: int, runs: Sequence[Kernel]) -> None:
        """Run steps of which `first` is the first; errors name the operator."""
        position = first
        try:
            with np.errstate(all="ignore"), one_blas_thread():
                for position, run in enumerate(runs, first):  # noqa: B007  # the handler below reads it
                    run()
        except (FarmRuntimeError, MemoryError):
            raise
        except Exception as error:
            operator = self.steps[position].operator
            # A partition has several operators: there is none to name.
            if operator is None:
                raise
            raise unsupported(operator, unforeseen(error)) from error

    def _timed(self, position: int, times: list[StepTime]) -> Kernel:
        """Return a kernel that runs a step and appends its time to `times`."""
        step, run, profile = self.steps[position], self._runs[position], self._profiles[position]
        inner = (step.operator,) if step.partition is None else step.partition.operators
        operators = (*step.before, *inner, *step.behind)
        indices = tuple(operator.index for operator in operators if operator is not None)

        def timed() -> None:
            kernels: Sequence[abilities.KernelTime] = ()
            start = perf_counter_ns()
            if profile is None:
                run()
            else:
                kernels = profile()
            elapsed = perf_counter_ns() - start
            times.append(StepTime(indices, step.operator is not None, elapsed, tuple(kernels)))

        return timed

    def _rest(self) -> "Execution":
        """Return the execution of operators that waited for values, kept while those stay the same."""
        values = self.values
        made = (i for o in values.ready if o.index in values.open_ended for i in o.outputs)
        shapes = {i: self.arrays[i].shape for i in made}
        known = {i: self.arrays[i] for i in values.needed}
        if self._after is None or not self._after.fits(shapes, known):
            if self._after is not None:
                self._after.execution.close()
            # Not left closed where planning the next one fails.
            self._after = None
            # Copies, as the next run overwrites the memory of these values.
            self._after = _continue(self, shapes, {i: a.copy() for i, a in known.items()})
        return self._after.execution

    def refuted(self) -> set[int]:
        """Return the inputs that hold other values than this was planned for."""
        return {i for i, value in self.values.assumed.items() if not _same(self.arrays[i], value)}

    def whole(self) -> tuple[CompiledPartition, Step] | None:
        """Return the only partition and its step, if there is nothing else to run; else None."""
        if self.values.pending or len(self.steps) != 1 or len(self._compiled) != 1:
            return None
        if self.steps[0].before or self.steps[0].behind or self.values.assumed:
            return None
        return self._compiled[0], self.steps[0]

    def close(self) -> None:
        """Release the delegates' memory and the kernels, whose closures would keep all arrays alive."""
        if self._after is not None:
            self._after.execution.close()
        self._after = None
        self._runs.clear()
        self._profiles.clear()
        self._device_times.clear()
        while self._compiled:
            # Taken out first: one that fails to close is not closed again.
            self._compiled.pop().close()
        self.budget.release(self._reserved)
        # A second call gives nothing back twice.
        self._reserved = 0


@dataclass(frozen=True, slots=True)
class _Continuation:
    """The execution that follows, and what it was planned for."""

    shapes: Mapping[int, Shape]
    known: Mapping[int, Array]
    execution: Execution

    def fits(self, shapes: Mapping[int, Shape], known: Mapping[int, Array]) -> bool:
        return shapes == self.shapes and all(_same(known[i], a) for i, a in self.known.items())


def _continue(before: Execution, shapes: Mapping[int, Shape], known: Mapping[int, Array]) -> _Continuation:
    """Plan what follows an execution, again with more values awaited whenever a kernel asks for one."""
    held = {index: set(tensors) for index, tensors in before.values.held.items()}
    while True:
        values = before.values.resume(shapes, known, held)
        steps = [cpu_step(o) for o in values.ready]
        # Delegates have operators of the first segment only: here the CPU must have a kernel for each.
        for operator in (*values.ready, *values.pending):
            if operator.index in values.missing:
                raise values.missing[operator.index]
        try:
            execution = Execution(
                values, steps, budget=before.budget, preserve_all=before.preserve_all, inherited=before.arrays
            )
        except PostponeError as wait:
            hold(held, wait)
        else:
            return _Continuation(shapes, known, execution)


def hold(held: dict[int, set[int]], wait: PostponeError) -> None:
    """Note that a kernel asked for values that its `infer` did not ask for.

    Raises `ModelError` where waiting for them changes nothing.
    """
    tensors = held.setdefault(wait.operator, set())
    if wait.tensor is None or wait.tensor in tensors:
        raise ModelError(str(wait))
    tensors.add(wait.tensor)


def _same(a: Array, b: Array) -> bool:
    if a.shape != b.shape:
        return False
    # By their bytes, as a NaN would differ from itself; those of an array of objects are addresses.
    return a.tolist() == b.tolist() if a.dtype.kind == "O" else a.tobytes() == b.tobytes()


def _allocate(values: GraphValues, lives: Mapping[int, Lifetime], arena: Arena[int]) -> dict[int, Array]:
    """Return a view of the arena for each tensor; strings are arrays of objects of their own."""
    # The excess is for aligning the base; the system gives pages of zeros as they are first touched.
    memory = np.zeros(arena.size + ALIGNMENT, np.uint8)
    base = -memory.ctypes.data % ALIGNMENT
    objects = lives.keys() - arena.offsets.keys()
    arrays: dict[int, Array] = {i: np.full(values.shapes[i], b"", object) for i in objects}
    for index, offset in arena.offsets.items():
        dtype = dtype_of(values.subgraph.tensors[index].type)
        assert dtype is not None
        start = base + offset
        view = memory[start : start + lives[index].size]
        arrays[index] = view.view(dtype).reshape(values.shapes[index])
    reset_variables(values.subgraph, arrays)
    return arrays


def reset_variables(subgraph: Subgraph, arrays: Mapping[int, Array]) -> None:
    """Set variables to zero, int8 ones to the lowest byte of their zero point, as LiteRT's memset does."""
    for tensor in subgraph.tensors:
        if tensor.is_variable and tensor.index in arrays:
            q = tensor.quantization
            levels = q.zero_points if q is not None and tensor.type is TensorType.INT8 else ()
            arrays[tensor.index].fill(np.int64(levels[0] if levels else 0).astype(np.int8))


def _lifetimes(
    values: GraphValues, steps: Sequence[Step], inherited: Mapping[int, Array], *, preserve_all: bool
) -> dict[int, Lifetime]:
    """Return the tensors' lifetimes; what later segments read is kept, or all with `preserve_all`."""
    touched = [(step.inputs, step.outputs) for step in steps]
    # A variable may be all that a later segment waits for, such as a shape.
    touched.append((tuple(i for i in values.needed if values.subgraph.tensors[i].is_variable), ()))
    read_later = {i for o in values.pending for i in o.inputs}
    kept = {i for pair in touched for side in pair for i in side} if preserve_all else read_later
    elsewhere = (values.constants.keys() - values.assumed.keys()) | values.unknown | inherited.keys()
    return lifetimes(values.subgraph, touched, values.shapes, elsewhere, kept)
