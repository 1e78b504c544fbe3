"""Variables that all subgraphs of an interpreter share: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE."""

from typing import TypeVar

import numpy as np

from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator

_TYPES = "values of any type; the handle RESOURCE or INT32"


class Variable:
    """A variable's array, None until it is assigned."""

    value: Array | None = None


def handle_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the shape of one handle: the declared one where it holds one element, else [1]."""
    declared = op.output()
    return (declared.shape if declared.elements == 1 else (1,),)


@operator(Op.VAR_HANDLE, infer=handle_shape, stateful=True, note=_TYPES)
def var_handle(op: OpContext) -> Kernel:
    """VAR_HANDLE: the handle of the variable of this container and name."""
    name = (op.option("container"), op.option("shared_name"))
    handle, _ = op.services.resource(Variable, name)
    return lambda: op.write().fill(handle)


_Resource = TypeVar("_Resource")


def resource_of(op: OpContext, kind: type[_Resource], noun: str) -> _Resource:
    """Return what the handle in input 0 refers to, while running. Raises `ShapeError` for no handle of it."""
    op.require(TensorType.RESOURCE, TensorType.INT32)
    if op.input().elements != 1:
        raise op.error(f"{op.input().elements} handles, not 1")
    handle = int(op.read(0).reshape(-1)[0])
    try:
        return op.services.resource_of(kind, handle)
    except KeyError:
        raise op.error(f"{handle} is not the handle of a {noun}") from None


def _declared_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return the declared shape where it is complete (`read_variable.cc`), else raise `PostponeError`."""
    stored = op.output().stored
    signature = stored.shape_signature if stored is not None else None
    if stored is None or not stored.shape or (signature and -1 in signature):
        raise op.shapes_at_run_time()
    return (stored.shape,)


@operator(Op.READ_VARIABLE, infer=_declared_shape, stateful=True, note=_TYPES)
def read_variable(op: OpContext) -> Kernel:
    """READ_VARIABLE: the variable's value. Raises `ShapeError` at run time where it has none yet."""
    dtype = op.output().dtype

    def run() -> None:
        value = resource_of(op, Variable, "variable").value
        if value is None:
            raise op.error("the variable was never assigned")
        if value.dtype != dtype:
            raise op.error(f"the variable holds {value.dtype}, the output is {dtype}")
        op.deliver(0, value)

    return run


@operator(Op.ASSIGN_VARIABLE, infer=lambda _op: (), stateful=True, note=_TYPES)
def assign_variable(op: OpContext) -> Kernel:
    """ASSIGN_VARIABLE: copy input 1 into the variable, which takes over its shape and type."""
    source = op.read(1)

    def run() -> None:
        variable = resource_of(op, Variable, "variable")
        known = variable.value
        if known is None or (known.shape, known.dtype) != (source.shape, source.dtype):
            # The plan reuses the memory of the source within the same run.
            variable.value = source.copy()
        else:
            np.copyto(known, source)

    return run
