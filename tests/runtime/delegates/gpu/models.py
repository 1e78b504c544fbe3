"""Small models for the delegate's tests, and partitions that hold a whole model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.delegates.base import Array, GraphFacts, Partition
from runtime.delegates.gpu.backends.base import recorded
from runtime.delegates.gpu.graph.graph import Graph
from runtime.delegates.gpu.graph.parameters import divisor, parameters, reciprocal
from runtime.delegates.gpu.layout.memory import Stage
from runtime.delegates.gpu.layout.source import assemble
from runtime.delegates.gpu.lowering.spec import Instance, Launch, Scratch, defines
from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType

_TYPES = {
    np.dtype(np.float32): TensorType.FLOAT32,
    np.dtype(np.float16): TensorType.FLOAT16,
    np.dtype(np.int32): TensorType.INT32,
    np.dtype(np.int8): TensorType.INT8,
}
_DTYPES = {value: key for key, value in _TYPES.items()}


class ModelBuilder:
    """Tensors and operators in order; `op` returns the index of its output tensor."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.inputs: list[int] = []

    def input(self, *shape: int, dtype: Any = np.float32) -> int:
        self.inputs.append(self._tensor(shape, np.dtype(dtype)))
        return self.inputs[-1]

    def constant(self, array: Any) -> int:
        content = np.ascontiguousarray(array)
        return self._tensor(content.shape, content.dtype, memoryview(content.tobytes()))

    def op(self, opcode: BuiltinOperator, inputs: Sequence[int], shape: Sequence[int], **options: Any) -> int:
        (output,) = self.ops(opcode, inputs, [shape], **options)
        return output

    def ops(
        self, opcode: BuiltinOperator, inputs: Sequence[int], shapes: Sequence[Sequence[int]], **options: Any
    ) -> list[int]:
        """Add an operator with several outputs."""
        outputs = [self._tensor(tuple(shape), np.dtype(np.float32)) for shape in shapes]
        self.operators.append(
            Operator(len(self.operators), opcode, 1, tuple(inputs), tuple(outputs), options)
        )
        return outputs

    def build(self, *outputs: int) -> Model:
        graph = Subgraph(0, "main", tuple(self.tensors), tuple(self.inputs), outputs, tuple(self.operators))
        return Model(3, "test", (graph,))

    def _tensor(self, shape: tuple[int, ...], dtype: np.dtype[Any], data: memoryview | None = None) -> int:
        index = len(self.tensors)
        self.tensors.append(Tensor(index, f"t{index}", _TYPES[dtype], shape, buffer=index + 1, data=data))
        return index


def facts_of(model: Model) -> GraphFacts:
    """Return the interpreter's facts of a static model: shapes, types, constants (folded ones included)."""
    graph = model.subgraphs[0]
    dtypes = {tensor.index: _DTYPES[tensor.type] for tensor in graph.tensors}
    constants: dict[int, Array] = {
        tensor.index: np.frombuffer(tensor.data, dtypes[tensor.index]).reshape(tensor.shape)
        for tensor in graph.tensors
        if tensor.data is not None
    }
    for operator in graph.operators:
        if operator.opcode == BuiltinOperator.DEQUANTIZE and operator.inputs[0] in constants:
            constants[operator.outputs[0]] = constants[operator.inputs[0]].astype(np.float32)
    return GraphFacts(graph, {tensor.index: tensor.shape for tensor in graph.tensors}, dtypes, constants)


def whole(model: Model) -> Partition:
    """Return the whole model as one partition."""
    facts = facts_of(model)
    graph = facts.subgraph
    return Partition(
        model,
        graph,
        graph.operators,
        graph.inputs,
        graph.outputs,
        facts.shapes,
        facts.dtypes,
        facts.constants,
    )


def launch(**changed: Any) -> Launch:
    """Build a copy of four pixels between two blocks of scratch, with other defines if they are given."""
    values = {"PIXELS": 4, "OUT_CHANNELS": 16, "IN_STRIDE": 16, "IN_CHANNEL_STRIDE": 1, "OUT_STRIDE": 16}
    values |= {
        "OUT_SHIFT": 0,
        "TAIL": 0,
        "GROUP_STEP": 0,
        **divisor("IN_CHANNELS", 64),
        **reciprocal("GROUP", 4),
    }
    kept = {name: value for name, value in values.items() if name not in changed}
    instance = Instance(
        "movement/reshape.cl",
        "f32_reshape_copy",
        defines(T="float", DENSE=True, ALIKE=False, **changed),
        parameters(**kept),
    )
    return Launch(instance, (Scratch("a", 64), Scratch("b", 64)), 2, "copy", (0,))


def run_stages(backend: Any, graph: Graph, stages: Sequence[Stage], inputs: Sequence[Array]) -> list[Array]:
    """Return the graph's outputs, float32, with these candidates."""
    launches = [launch for stage in stages for launch in stage.candidate.launches]
    source = assemble(launches, backend.capabilities)
    recording = recorded(backend, graph, stages, source, backend.compile(source))
    for value, content in zip(graph.inputs, inputs, strict=True):
        recording.write(value, content)
    recording.run([recording.entry(layer) for layer in range(len(launches))])
    found = [np.full(graph.values[value].shape, np.nan, np.float32) for value in graph.outputs]
    for value, target in zip(graph.outputs, found, strict=True):
        recording.read(value, target)
    recording.close()
    return found
