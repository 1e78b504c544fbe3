"""Infers the shapes of every tensor, and the values of those that are known before anything runs.

Where shapes depend on values that earlier operators compute, inference stops there: `pending` are the
operators left, `needed` the tensors whose values it waits for. `resume` continues once they are known.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from runtime.delegates.base import GraphFacts
from runtime.errors import ModelError, UnsupportedOperatorError
from runtime.model.checks import MAX_RANK
from runtime.model.graph import Operator, Subgraph
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support.context import MAX_TENSOR_BYTES, GraphServices, OpContext, PostponeError, unsupported
from runtime.ops.support.evaluation import evaluate, infer_shapes
from runtime.ops.support.registry import OpSpec, find_spec
from runtime.ops.support.scratch import Scratch
from runtime.ops.support.value import HANDLES, RAW_BITS, Array, Shape, Value, constant_array, dtype_of
from runtime.plan.budget import machine_bytes

MAX_FOLDED_BYTES = 512 << 20
"""Bytes from which an operator's results are computed in every run instead of once in planning. Folded
values stay in memory as long as the plan. Smaller, and fp16 weights of large models are widened in every run;
larger, and a file of a few bytes (a FILL) holds memory that no run needs at once."""


@dataclass(slots=True)
class GraphValues:
    """The planner's knowledge about a subgraph's tensors, by tensor index.

    `folded` are the operators whose results are in `constants`; `missing` holds, by operator index, why the
    CPU path cannot run an operator (its outputs then have the shapes that the file declares). `ready` are
    the operators of this segment in the file's order; the outputs of those in `open_ended` have shapes known
    only after a run. `unknown` are the tensors without a shape yet; `held` are, by operator index, tensors
    whose values its kernel turned out to need although its shapes did not. `assumed` are inputs among the
    constants: they have these values if the shapes that the file declares are right, which each run checks.
    """

    subgraph: Subgraph
    input_shapes: Mapping[int, Shape]
    graph: GraphServices | None = None
    shapes: dict[int, Shape] = field(default_factory=dict)
    constants: dict[int, Array] = field(default_factory=dict)
    folded: set[int] = field(default_factory=set)
    missing: dict[int, UnsupportedOperatorError] = field(default_factory=dict)
    ready: list[Operator] = field(default_factory=list)
    open_ended: set[int] = field(default_factory=set)
    pending: list[Operator] = field(default_factory=list)
    needed: set[int] = field(default_factory=set)
    held: Mapping[int, set[int]] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    folded_bytes: int = 0
    assumed: dict[int, Array] = field(default_factory=dict)

    def value(self, index: int, array: Array | None = None) -> Value:
        """Tensor `index` as an operator sees it."""
        tensor = self.subgraph.tensors[index]
        return Value(
            index=index,
            name=tensor.name,
            type=tensor.type,
            shape=self.shapes[index],
            quantization=tensor.quantization,
            constant=self.constants.get(index),
            array=array,
            stored=tensor,
        )

    def context(
        self,
        operator: Operator,
        arrays: Mapping[int, Array],
        scratch: Scratch | None = None,
        sink: Callable[[int, Array], None] | None = None,
    ) -> OpContext:
        """Return an operator with its inputs and outputs, bound where `arrays` has them."""
        inputs = tuple(None if i < 0 else self.value(i, arrays.get(i)) for i in operator.inputs)
        outputs = tuple(self.value(i, arrays.get(i)) for i in operator.outputs)
        return OpContext(operator, inputs, outputs, scratch, self.graph, sink)

    def facts(self) -> GraphFacts:
        """Return the facts that a delegate may read; types that numpy lacks have the dtype `object`."""
        unknown = np.dtype(object)
        dtypes = {
            t.index: unknown if t.type in RAW_BITS | HANDLES else dtype_of(t.type) or unknown
            for t in self.subgraph.tensors
        }
        late = frozenset(self.open_ended) | {o.index for o in self.pending}
        return GraphFacts(self.subgraph, self.shapes, dtypes, self.constants, late, self._ordered())

    def _ordered(self) -> frozenset[int]:
        known = (o for o in self.subgraph.operators if o.index not in self.missing)
        return frozenset(o.index for o in known if find_spec(o).stateful)

    def resume(
        self, shapes: Mapping[int, Shape], constants: Mapping[int, Array], held: Mapping[int, set[int]]
    ) -> "GraphValues":
        """Continue inference with the shapes and values that the operators so far have computed.

        Raises `ShapeError` where shapes do not fit together, `ModelError` where nothing new became known.
        """
        after = GraphValues(
            subgraph=self.subgraph,
            input_shapes=self.input_shapes,
            graph=self.graph,
            held=held,
            shapes={**self.shapes, **shapes},
            constants={**self.constants, **constants},
            folded_bytes=self.folded_bytes,
        )
        _walk(after, self.pending)
        # Nothing is ready, nothing became known, and nothing new is waited for: another round would be the
        # same.
        if not after.ready and not after.folded and not after.needed - set(constants):
            raise ModelError(f"{self.pending[0].name} of operator {self.pending[0].index} cannot be planned")
        return after


_SHAPES = (TensorType.INT32, TensorType.INT64)
"""Types of a shape among the inputs of a model."""


def declared_inputs(subgraph: Subgraph) -> dict[int, Array]:
    """Return inputs that are nothing but the shape of an output whose shape the file declares.

    Streaming decoders have it as an input: with it known, their operators are delegated ahead of time.
    """
    found = {}
    for operator in subgraph.operators:
        shape = operator.inputs[0] if operator.inputs else -1
        if operator.opcode is not BuiltinOperator.TRANSPOSE_CONV or shape not in subgraph.inputs:
            continue
        given, made = subgraph.tensors[shape], subgraph.tensors[operator.outputs[0]]
        signature = made.shape_signature or made.shape
        if made.shape and min(signature) > 0 and given.shape == (len(made.shape),) and given.type in _SHAPES:
            found[given.index] = np.array(made.shape, dtype_of(given.type))
    return found


def infer(
    subgraph: Subgraph,
    input_shapes: Mapping[int, Shape],
    graph: GraphServices | None = None,
    known: Mapping[int, Array] | None = None,
    held: Mapping[int, set[int]] | None = None,
    assumed: Mapping[int, Array] | None = None,
) -> GraphValues:
    """Walk the operators in order; `known` are values of inputs, where the caller has them.

    `assumed` are those that the caller checks before each run.
    Raises `ShapeError` where shapes do not fit together.
    """
    values = GraphValues(subgraph, dict(input_shapes), graph, held=held or {})
    for tensor in subgraph.tensors:
        values.shapes[tensor.index] = input_shapes.get(tensor.index, tensor.shape)
        constant = constant_array(tensor)
        if constant is not None:
            values.constants[tensor.index] = constant
    values.assumed.update(assumed or {})
    values.constants.update({**values.assumed, **(known or {})})
    _walk(values, subgraph.operators)
    return values


def _walk(values: GraphValues, operators: Sequence[Operator]) -> None:
    """Sort operators into those that are folded, ready, or pending.

    Once an operator with a state waits, all later ones with a state wait too, so that none runs before it.
    """
    order_matters = False
    for operator in operators:
        try:
            spec = find_spec(operator)
        except UnsupportedOperatorError as error:
            values.missing[operator.index] = error
            spec = None
        waits = any(i in values.unknown for i in operator.inputs)
        stateful = spec is not None and spec.stateful
        if waits or (order_matters and stateful) or not _settle(values, operator, spec):
            values.pending.append(operator)
            values.unknown.update(operator.outputs)
            order_matters |= stateful
        elif operator.index not in values.folded:
            values.ready.append(operator)


def _settle(values: GraphValues, operator: Operator, spec: OpSpec | None) -> bool:
    """Return True if the operator can run in this segment."""
    # Without a CPU kernel it keeps the shapes that the file declares: a delegate may run it.
    if spec is None:
        return True
    held = values.held.get(operator.index, set()) - set(values.constants)
    if held:
        values.needed |= held
        return False
    try:
        _infer_operator(values, operator, spec)
    except UnsupportedOperatorError as error:
        values.missing[operator.index] = error
    except PostponeError as wait:
        if wait.tensor is not None:
            return _wait_for(values, operator, wait.tensor)
        # It runs in this segment; only what reads its outputs waits.
        values.open_ended.add(operator.index)
        values.unknown.update(operator.outputs)
    return True


def _wait_for(values: GraphValues, operator: Operator, tensor: int) -> bool:
    stored = values.subgraph.tensors[tensor]
    # Waiting would be in vain: what has no dense values now gets none at run time either.
    if stored.is_constant:
        reason = f"the constant {stored.name!r} of type {stored.type.name} has no dense values"
        values.missing[operator.index] = unsupported(operator, reason)
        return True
    values.needed.add(tensor)
    return False


def _infer_operator(values: GraphValues, operator: Operator, spec: OpSpec) -> None:
    context = values.context(operator, {})
    shapes = infer_shapes(spec, context)
    if len(shapes) != len(operator.outputs):
        raise context.error(f"{len(operator.outputs)} outputs where {len(shapes)} are expected")
    for index, shape in zip(operator.outputs, shapes, strict=True):
        _check_shape(context, shape, dtype_of(values.subgraph.tensors[index].type))
        values.shapes[index] = shape
    known = all(i < 0 or i in values.constants for i in operator.inputs)
    if operator.outputs and not spec.stateful and (known or spec.shape_only):
        _fold(values, operator)


def _check_shape(op: OpContext, shape: Shape, dtype: np.dtype[Any] | None) -> None:
    """Raise `ShapeError` for a shape that no array can have; a dimension of 0 does not excuse huge others."""
    if len(shape) > MAX_RANK:
        raise op.error(f"an output of rank {len(shape)}, above {MAX_RANK}")
    if min(shape, default=0) < 0:
        raise op.error(f"an output of shape {list(shape)} has a negative dimension")
    if math.prod(max(d, 1) for d in shape) * (dtype.itemsize if dtype else 1) > MAX_TENSOR_BYTES:
        raise op.error(f"an output of shape {list(shape)} is too large to plan")


def _fold(values: GraphValues, operator: Operator) -> None:
    """Keep the operator's results, unless they are large enough to be better computed at run time."""
    context = values.context(operator, {})
    sizes = (math.prod(v.shape) * v.dtype.itemsize if v.dtype else MAX_FOLDED_BYTES for v in context.outputs)
    # A type without a numpy form counts as too large, so that it is never folded.
    added = sum(sizes)
    if added >= MAX_FOLDED_BYTES or values.folded_bytes + added > machine_bytes() // 2:
        return
    values.folded_bytes += added
    results = evaluate(operator, context.inputs, context.outputs, values.graph)
    values.constants.update(zip(operator.outputs, results, strict=True))
    values.folded.add(operator.index)
