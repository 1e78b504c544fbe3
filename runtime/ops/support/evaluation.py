"""Run the `infer`, `prepare` and kernel of one operator, so that every error names that operator."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from runtime.errors import FarmRuntimeError
from runtime.model.graph import Operator
from runtime.ops.support.context import GraphServices, Kernel, OpContext, PostponeError, unsupported
from runtime.ops.support.registry import OpSpec, find_spec
from runtime.ops.support.value import Array, Shape, Value


def prepare_kernel(op: OpContext) -> Kernel:
    """Return the closure that runs an operator. Where all outputs are empty it does nothing.

    Raises `UnsupportedOperatorError` or `ShapeError` where the kernel does not support the operator.
    """
    spec = find_spec(op.operator)
    if spec.types and op.optional(spec.data) is not None:
        op.require(*spec.types, i=spec.data)
    # An output without memory is delivered by the run itself: its shape says nothing yet.
    empty = all(value.elements == 0 and value.array is not None for value in op.outputs)
    # A stateful operator runs for its effect, whatever its outputs hold.
    if op.outputs and not spec.stateful and empty:
        return lambda: None
    with named_failures(op.operator):
        return spec.prepare(op)


def infer_shapes(spec: OpSpec, op: OpContext) -> tuple[Shape, ...]:
    """Return the output shapes.

    Raises `ShapeError`, `PostponeError`, and `UnsupportedOperatorError` for what `infer` did not foresee.
    """
    with named_failures(op.operator):
        return spec.infer(op)


@contextmanager
def named_failures(operator: Operator) -> Iterator[None]:
    """Turn any exception that a kernel did not foresee into an `UnsupportedOperatorError` with its name.

    Kernels of other packages raise what they like, and a file may pair any operator with any tensors.
    """
    try:
        yield
    except (FarmRuntimeError, PostponeError, MemoryError):
        raise
    except Exception as error:
        raise unsupported(operator, unforeseen(error)) from error


def unforeseen(error: Exception) -> str:
    """Return the reason in words, for an operator whose kernel raised an exception of its own."""
    return f"it cannot take these tensors: {type(error).__name__}: {error}"


def evaluate(
    operator: Operator,
    inputs: Sequence[Value | None],
    outputs: Sequence[Value],
    graph: GraphServices | None = None,
) -> list[Array]:
    """Run an operator once on constant inputs (`Value.constant`), as constant folding does.

    `outputs` state shapes and types. Raises `UnsupportedOperatorError` where the CPU path cannot.
    """
    bound = []
    for value in outputs:
        if value.dtype is None:
            raise unsupported(operator, f"output {value.name!r} of type {value.type.name} has no numpy form")
        bound.append(replace(value, array=np.empty(value.shape, value.dtype)))
    context = OpContext(operator, tuple(inputs), tuple(bound), graph=graph)
    # Overflow and NaN are results as in LiteRT, not warnings; tests turn warnings into errors.
    with np.errstate(all="ignore"), named_failures(operator):
        prepare_kernel(context)()
    return [context.write(i) for i in range(len(bound))]
