"""Run a model with a custom operator of your own.

    python examples/custom_operator/clip_by_norm.py

A `.tflite` file may hold operators that no runtime knows: converters write them under a name of your choice
(`CUSTOM`, here `ClipByNorm`) with options of your choice (here a FlexBuffer map, as converters write them).
Without a kernel the model is `unsupported: custom operator ClipByNorm`. One function makes it run:

1. `infer` gives the shape of each output from the shapes of the inputs. It may read the values of an input
   with `op.constant(i, "what it is")`, even where an earlier operator computes them.
2. `prepare`, which `@custom_operator` decorates, does once all that depends on shapes, types and options, and
   returns the closure that runs. The closure reads and writes arrays that stay the same from run to run.

The registration holds for every `Interpreter` and `CompiledModel` of the process. For the runners of a farm,
put it into a package that is installed on the agents, with an entry point named after the operator:

    [project.entry-points."delegate_farm.operators"]
    ClipByNorm = "your_package.clip_by_norm:clip_by_norm"
"""

from __future__ import annotations

import struct

import numpy as np

from delegate_farm import Interpreter
from delegate_farm.model import BuiltinOperator, Model, Operator, Subgraph, Tensor, TensorType, write_model
from delegate_farm.operators import Kernel, OpContext, Shape, custom_operator, read_map


def same_shape(op: OpContext) -> tuple[Shape, ...]:
    """One output, with the shape of input 0."""
    return (op.input().shape,)


@custom_operator("ClipByNorm", infer=same_shape)
def clip_by_norm(op: OpContext) -> Kernel:
    """x, scaled down where its Euclidean norm is above the option `norm`. float32 of any shape."""
    op.require(TensorType.FLOAT32)
    limit = np.float32(read_map(op.operator.custom_options)["norm"])
    x, y = op.read(), op.write()

    def run() -> None:
        norm = np.sqrt(np.sum(x * x))
        np.multiply(x, limit / max(norm, limit), out=y)

    return run


def flexbuffer_of(norm: float) -> bytes:
    """Return the map {"norm": norm}: key, keys vector, map of one 4-byte float, its type, root."""
    keys = b"norm\0" + bytes(3) + struct.pack("<II", 1, 12)
    values = struct.pack("<IIIf", 4, 4, 1, norm) + bytes([3 << 2 | 2])
    return keys + values + bytes([5, 9 << 2 | 2, 1])


def example_model() -> bytes:
    """Build a file with the one operator, on four floats."""
    tensors = tuple(Tensor(i, name, TensorType.FLOAT32, (4,)) for i, name in enumerate("xy"))
    operator = Operator(
        index=0,
        opcode=BuiltinOperator.CUSTOM,
        version=1,
        inputs=(0,),
        outputs=(1,),
        custom_code="ClipByNorm",
        custom_options=flexbuffer_of(norm=1.0),
    )
    return write_model(Model(3, "example", (Subgraph(0, "main", tensors, (0,), (1,), (operator,)),)))


def main() -> None:
    """Two runs: one that is scaled down, one that is short enough."""
    interpreter = Interpreter(model_content=example_model())
    interpreter.allocate_tensors()
    for values in ([3, 0, 4, 0], [0.3, 0.0, 0.4, 0.0]):
        interpreter.set_tensor(0, np.array(values, np.float32))
        interpreter.invoke()
        print(values, "->", interpreter.get_tensor(1).round(3).tolist())


if __name__ == "__main__":
    main()
