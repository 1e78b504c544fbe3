"""TRANSPOSE: a permuted copy."""

from __future__ import annotations

import numpy as np

from runtime.model.schema import BuiltinOperator
from runtime.ops.spec import Kernel, OpContext, Shape, operator


def _permutation(op: OpContext) -> Shape:
    axes = op.integers(1, "permutation")
    if sorted(axes) != list(range(len(op.input().shape))):
        raise op.error(f"{list(axes)} is no permutation of the axes of {list(op.input().shape)}")
    return axes


def transpose_shape(op: OpContext) -> tuple[Shape, ...]:
    """Output axis i is input axis perm[i]."""
    shape = op.input().shape
    return (tuple(shape[a] for a in _permutation(op)),)


@operator(BuiltinOperator.TRANSPOSE, max_version=9, infer=transpose_shape)
def transpose(op: OpContext) -> Kernel:
    """Any rank and any type that numpy has."""
    op.require_same_type(0)
    x, y = op.read(0).transpose(_permutation(op)), op.write()

    def run() -> None:
        np.copyto(y, x)

    return run
