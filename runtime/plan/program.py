"""Holds all subgraphs of a model, planned on demand, and their shared resources and threads.

Control flow reaches other subgraphs through `GraphServices`, which this module passes to the operators: no
operator imports the plan.
"""

from collections.abc import Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from runtime.delegates.base import PartitionDelegate
from runtime.delegates.epochs import Grouping
from runtime.errors import ModelError, UnsupportedOperatorError
from runtime.model.composites import with_decompositions
from runtime.model.graph import Model, Operator, Quantization, Subgraph
from runtime.ops.support.registry import find_spec
from runtime.ops.support.value import Array, Shape, Value, constant_array
from runtime.plan.budget import MemoryBudget
from runtime.plan.inference import infer
from runtime.plan.subgraph import PlannedSubgraph

_Resource = TypeVar("_Resource")
_KEPT_ANSWERS = 1024
"""Inferred output shapes of subgraphs that are kept, by input shapes and small values; the oldest goes first.
A model with more calls infers some of them again; more would hold memory for shapes that never come back."""

_KEY_ELEMENTS = 64
"""Elements up to which a constant takes part in inferring a subgraph: shapes follow from small values such as
sizes, axes and loop bounds. Larger values would be hashed and kept with every answer."""


class Program:
    """A model that is ready to be planned.

    Raises `ModelError` for subgraphs that call each other in a circle or call one that is not there.

    Delegates run operators of the subgraphs that a caller can enter: the first, and those with a signature.
    For them, composite operators are replaced by their decompositions, as LiteRT does on request.
    """

    def __init__(
        self,
        model: Model,
        delegates: Sequence[PartitionDelegate] = (),
        grouping: Grouping | None = None,
        *,
        preserve_all: bool = False,
        num_threads: int = 1,
    ) -> None:
        check_calls(model)
        _check_weights(model)
        self.model = with_decompositions(model) if delegates else model
        self.num_threads = num_threads
        self._delegates = tuple(delegates)
        self._grouping = grouping
        self._preserve_all = preserve_all
        self._budget = MemoryBudget()
        self._entries = {0, *(s.subgraph_index for s in model.signatures)}
        self._planned: dict[int, PlannedSubgraph] = {}
        self._handles: dict[tuple[type, tuple[str, str]], int] = {}
        self._states: list[Any] = []
        self._inferred: dict[Hashable, tuple[Shape | None, ...]] = {}

    def subgraph(self, index: int) -> PlannedSubgraph:
        """Subgraph `index`, made on first use. Raises ValueError where there is none."""
        count = len(self.model.subgraphs)
        if not 0 <= index < count:
            raise ValueError(
                f"subgraph_index is out of range: {index} for the model, which has {count} subgraphs."
            )
        if index not in self._planned:
            self._planned[index] = PlannedSubgraph(
                self.model,
                index,
                self._delegates if index in self._entries else (),
                self._grouping,
                budget=self._budget,
                preserve_all=self._preserve_all,
                graph=_Services(self, self.model.subgraphs[index]),
            )
        return self._planned[index]

    def run(self, index: int, inputs: Sequence[Array]) -> list[Array]:
        """Return the outputs of a subgraph, as views that stay valid until it runs again."""
        planned = self.subgraph(index)
        for tensor, array in zip(planned.subgraph.inputs, inputs, strict=True):
            planned.resize(tensor, array.shape)
        planned.allocate()
        targets = [_memory(planned, i) for i in planned.subgraph.inputs]
        for place, (target, array) in enumerate(zip(targets, inputs, strict=True)):
            if target.dtype != array.dtype or not target.flags.writeable:
                raise ModelError(
                    f"subgraph {index}: input {place} is a constant, or its type {target.dtype} is not the "
                    f"{array.dtype} that it is given"
                )
        # A loop may feed a subgraph its own inputs in another order: each is read before it is overwritten.
        # Identity tells enough: inputs and outputs live throughout, so that no two of them share memory.
        sources = [a.copy() if any(a is t for t in targets) else a for a in inputs]
        for target, source in zip(targets, sources, strict=True):
            np.copyto(target, source)
        planned.run()
        return [_memory(planned, i) for i in planned.subgraph.outputs]

    def infer(self, index: int, inputs: Sequence[Value], *, known: bool) -> tuple[Shape | None, ...]:
        """See `GraphServices.infer_subgraph`. Results are kept, since nested calls repeat requests."""
        subgraph = self.model.subgraphs[index]
        if len(subgraph.inputs) != len(inputs):
            raise ModelError(
                f"subgraph {index} takes {len(subgraph.inputs)} inputs; it is given {len(inputs)}"
            )
        pairs = list(zip(subgraph.inputs, inputs, strict=True))
        constants = {
            i: v.constant
            for i, v in pairs
            if known and v.constant is not None and v.elements <= _KEY_ELEMENTS
        }
        shapes = {i: v.shape for i, v in pairs}
        key = (index, tuple(shapes.items()), tuple((i, a.tobytes()) for i, a in constants.items()))
        if key not in self._inferred:
            found = infer(subgraph, shapes, _Services(self, subgraph), constants)
            answer = tuple(None if i in found.unknown else found.shapes[i] for i in subgraph.outputs)
            # Behind `infer`, whose nested calls add answers of their own.
            while len(self._inferred) >= _KEPT_ANSWERS:
                self._inferred.pop(next(iter(self._inferred)))
            self._inferred[key] = answer
        return self._inferred[key]

    def resource(self, kind: type[_Resource], name: tuple[str, str]) -> tuple[int, _Resource]:
        """See `GraphServices.resource`."""
        key = (kind, name)
        if key not in self._handles:
            self._handles[key] = len(self._states)
            self._states.append(kind())
        handle = self._handles[key]
        state: _Resource = self._states[handle]
        return handle, state

    def resource_of(self, kind: type[_Resource], handle: int) -> _Resource:
        """See `GraphServices.resource_of`."""
        if not 0 <= handle < len(self._states) or not isinstance(self._states[handle], kind):
            raise KeyError(handle)
        found: _Resource = self._states[handle]
        return found

    def reset_variables(self) -> None:
        """Set the variable tensors of all subgraphs to their first value; resources keep theirs."""
        for planned in self._planned.values():
            planned.reset_variables()

    def close(self) -> None:
        """Release delegates' memory and all plans."""
        for planned in self._planned.values():
            planned.close()
        self._planned.clear()


def _check_weights(model: Model) -> None:
    for subgraph in model.subgraphs:
        for tensor in subgraph.tensors:
            if tensor.external_buffer and tensor.data is None:
                group = next(b.group for b in model.external if b.id == tensor.external_buffer)
                raise ModelError(
                    f"subgraph {subgraph.index}, tensor {tensor.name!r}: its values lie in the file "
                    f"{group!r}; load the model by its path, with that file beside it"
                )


class _Services:
    """`GraphServices` for the operators of one subgraph."""

    def __init__(self, program: Program, subgraph: Subgraph) -> None:
        self._program = program
        self._subgraph = subgraph
        self.num_threads = program.num_threads
        self.infer_subgraph, self.run_subgraph = program.infer, program.run
        self.resource, self.resource_of = program.resource, program.resource_of

    def constant_of(self, tensor: int) -> Array | None:
        return constant_array(self._subgraph.tensors[tensor])

    def quantization_of(self, tensor: int) -> Quantization | None:
        return self._subgraph.tensors[tensor].quantization

    def operators_of(self, index: int) -> tuple[Operator, ...]:
        return self._program.model.subgraphs[index].operators


def _memory(planned: PlannedSubgraph, index: int) -> Array:
    found = planned.array(index)
    if found is None:
        tensor = planned.subgraph.tensors[index]
        raise ModelError(f"subgraph {planned.subgraph.index}: {tensor.name!r} has no values")
    return found


MAX_DEPTH = 32
"""Most subgraphs that may be running inside each other. Each takes several frames of Python's stack, in
planning and in running; 32 stay far below its limit of 1000, and models nest two or three."""


def check_calls(model: Model) -> None:
    """Raise `ModelError` where a subgraph reaches itself, calls a missing one, or nests too deep."""
    called = {s.index: _calls(model, s) for s in model.subgraphs}
    depth: dict[int, int] = {}
    # A depth-first walk with a stack of its own: a hostile file nests deeper than Python recurses.
    for start, first in called.items():
        path = [(start, iter(first))]
        while path:
            here, rest = path[-1]
            following = next((i for i in rest if i not in depth), None)
            if following is None:
                depth[here] = 1 + max((depth[i] for i in called[here]), default=0)
                path.pop()
                if depth[here] > MAX_DEPTH:
                    raise ModelError(f"subgraph {here}: its calls nest deeper than {MAX_DEPTH}")
            elif any(following == i for i, _ in path):
                circle = " → ".join(str(i) for i in (*(i for i, _ in path), following))
                raise ModelError(f"subgraphs call each other in a circle: {circle}")
            else:
                path.append((following, iter(called[following])))


def check_operators(model: Model, *, skip_first: bool) -> None:
    """Raise `UnsupportedOperatorError` for the first operator without a CPU kernel.

    `skip_first` leaves out the primary subgraph, where delegates may have it. Subgraphs that hold the checks
    of LiteRT's acceleration service are never run.
    """
    for subgraph in model.subgraphs[1 if skip_first else 0 :]:
        if not subgraph.name.startswith("VALIDATION:"):
            for operator in subgraph.operators:
                find_spec(operator)


def _calls(model: Model, subgraph: Subgraph) -> list[int]:
    found = []
    for operator in subgraph.operators:
        for index in called_by(operator):
            if not 0 <= index < len(model.subgraphs):
                raise ModelError(
                    f"subgraph {subgraph.index}, operator {operator.index} {operator.name}: calls subgraph "
                    f"{index} of {len(model.subgraphs)}"
                )
            found.append(index)
    return found


def called_by(operator: Operator) -> tuple[int, ...]:
    """Subgraphs that an operator may run."""
    try:
        names = find_spec(operator).subgraphs
    # It calls nothing here; planning refuses it by its name, unless a delegate takes it.
    except UnsupportedOperatorError:
        return ()
    found: list[int] = []
    for name in names:
        value = operator.options[name]
        found += [value] if isinstance(value, int) else list(value)
    return tuple(found)
