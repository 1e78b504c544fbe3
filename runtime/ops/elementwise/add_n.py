"""ADD_N: the sum of any number of tensors of one shape."""

import numpy as np

from runtime.model.schema import BuiltinOperator, TensorType
from runtime.ops.support import Kernel, OpContext, operator
from runtime.ops.support.fused_activation import clamp_floats
from runtime.ops.support.shapes import same_shape

_TYPES = (TensorType.FLOAT32, TensorType.INT32)


@operator(BuiltinOperator.ADD_N, max_version=1, infer=same_shape, types=_TYPES)
def add_n(op: OpContext) -> Kernel:
    """ADD_N: add the inputs in their order; float32, int32.

    After each addition an overflow becomes the largest finite number, as in LiteRT.
    """
    kind = op.require(*_TYPES)
    for i in range(1, len(op.inputs)):
        op.require(kind, i=i)
        if op.input(i).shape != op.input().shape:
            raise op.error(f"input {i} of shape {list(op.input(i).shape)} beside {list(op.input().shape)}")
    values, y = [op.read(i) for i in range(len(op.inputs))], op.write()

    def run() -> None:
        np.copyto(y, values[0])
        for value in values[1:]:
            np.add(y, value, out=y)
            if kind is TensorType.FLOAT32:
                clamp_floats(y, None)

    return run
