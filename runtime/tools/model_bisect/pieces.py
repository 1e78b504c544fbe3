"""Models made of a model: with further outputs, and with its operators cut apart.

Cut apart, every piece reads inputs of its own instead of what other pieces computed. So one run shows each
piece on right inputs, and an error stays where it was made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from runtime.delegates.base import Array
from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import TensorType
from runtime.model.writer import write_model
from runtime.ops.support.registry import CUSTOM_SPECS, SPECS

_OPAQUE = (TensorType.STRING, TensorType.RESOURCE, TensorType.VARIANT)
"""Types whose values no array of numbers holds."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """A model of pieces: its bytes, the inputs that it is fed, and the (piece, tensor) of each output."""

    data: bytes
    feeds: tuple[Array, ...]
    outputs: tuple[tuple[int, int], ...]


def with_outputs(model: Model, tensors: Sequence[int]) -> bytes:
    """Return the model with these outputs instead of its own."""
    graph = replace(model.subgraphs[0], outputs=tuple(tensors))
    return write_model(replace(model, subgraphs=(graph, *model.subgraphs[1:]), signatures=(), source=None))


def readable_tensors(graph: Subgraph) -> list[int]:
    """Return the tensors that operators compute and whose values can be read."""
    written = (tensor for operator in graph.operators for tensor in operator.outputs if tensor >= 0)
    return [tensor for tensor in written if graph.tensors[tensor].type not in _OPAQUE]


def constant_tensors(graph: Subgraph) -> frozenset[int]:
    """Return the tensors that depend on no input: weights that operators unpack, for example."""
    found = {tensor.index for tensor in graph.tensors if tensor.is_constant}
    for operator in graph.operators:
        if not _keeps_state(operator) and all(tensor < 0 or tensor in found for tensor in operator.inputs):
            found.update(operator.outputs)
    return frozenset(found)


def can_be_cut(graph: Subgraph, operator: Operator, values: Mapping[int, Array]) -> bool:
    """Return whether an operator means the same alone: it keeps no state and calls no other subgraph."""
    tensors = [graph.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0]
    if _keeps_state(operator) or any(one.is_variable or one.type in _OPAQUE for one in tensors):
        return False
    return all(one.is_constant or one.index in values for one in tensors)


def _keeps_state(operator: Operator) -> bool:
    spec = SPECS.get(operator.opcode) or CUSTOM_SPECS.get(operator.custom_code or "")
    return spec is not None and (spec.stateful or bool(spec.subgraphs))


def cut(model: Model, pieces: Sequence[Sequence[int]], values: Mapping[int, Array]) -> Pieces:
    """Cut operators apart: each piece is a list of operators that stay connected with each other.

    `values`: those of every tensor, with which the pieces are fed.
    """
    maker = _Maker(model.subgraphs[0], values)
    for number, operators in enumerate(pieces):
        maker.add(number, operators)
    graph = Subgraph(
        0, "pieces", tuple(maker.tensors), tuple(maker.inputs), tuple(maker.outputs), tuple(maker.operators)
    )
    data = write_model(Model(model.version, "pieces", (graph,)))
    return Pieces(data, tuple(maker.feeds), tuple(maker.origins))


class _Maker:
    """Collects copies of operators and tensors."""

    def __init__(self, graph: Subgraph, values: Mapping[int, Array]) -> None:
        self._graph = graph
        self._values = values
        self._constants = constant_tensors(graph)
        self._known: dict[int, int] = {}
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.feeds: list[Array] = []
        self.origins: list[tuple[int, int]] = []

    def add(self, number: int, indices: Sequence[int]) -> None:
        """Add a piece; its outputs are what the rest of the model, or its user, reads."""
        graph, here = self._graph, dict[int, int]()
        chosen = [graph.operators[i] for i in sorted(indices)]
        written = {tensor for operator in chosen for tensor in operator.outputs}
        for operator in chosen:
            inputs = tuple(tensor if tensor < 0 else self._read(tensor, here) for tensor in operator.inputs)
            for tensor in operator.outputs:
                here[tensor] = self._copy(tensor, number)
            lent = tuple(
                tensor if tensor < 0 else self._copy(tensor, number) for tensor in operator.intermediates
            )
            self.operators.append(
                replace(
                    operator,
                    index=len(self.operators),
                    inputs=inputs,
                    outputs=tuple(here[tensor] for tensor in operator.outputs),
                    intermediates=lent,
                )
            )
        for tensor in sorted(written & (self._read_outside(chosen) | set(graph.outputs))):
            self.outputs.append(here[tensor])
            self.origins.append((number, tensor))

    def _read_outside(self, chosen: Sequence[Operator]) -> set[int]:
        inside = {operator.index for operator in chosen}
        others = (one for one in self._graph.operators if one.index not in inside)
        read = {tensor for operator in others for tensor in operator.inputs}
        read_inside = {tensor for operator in chosen for tensor in operator.inputs}
        # What nobody reads shows the operator, too.
        return read | {tensor for one in chosen for tensor in one.outputs} - read_inside

    def _read(self, tensor: int, here: dict[int, int]) -> int:
        if tensor in here:
            return here[tensor]
        held = self._graph.tensors[tensor]
        if held.is_constant or tensor in self._constants:
            if tensor not in self._known:
                self._known[tensor] = self._constant(held)
            return self._known[tensor]
        here[tensor] = self._copy(tensor, len(self.inputs))
        self.inputs.append(here[tensor])
        self.feeds.append(self._values[tensor])
        return here[tensor]

    def _constant(self, held: Tensor) -> int:
        value = self._values.get(held.index)
        if held.is_constant or value is None:
            data, shape = held.data, held.shape
        else:
            data, shape = memoryview(np.ascontiguousarray(value).tobytes()), value.shape
        index = len(self.tensors)
        # The writer shares one buffer among tensors of equal numbers but 0; a computed value has its own.
        buffer = held.buffer if held.is_constant else 0
        self.tensors.append(replace(held, index=index, data=data, shape=shape, buffer=buffer))
        return index

    def _copy(self, tensor: int, number: int) -> int:
        held, index = self._graph.tensors[tensor], len(self.tensors)
        value = self._values.get(tensor)
        self.tensors.append(
            replace(
                held,
                index=index,
                # The index makes the name unique: a tensor that several pieces read has a copy in each.
                name=f"{held.name}/{number}.{index}",
                shape=held.shape if value is None else value.shape,
                # The pieces run at the shapes of the values that they are fed with, so that none is open.
                shape_signature=None,
                has_rank=True,
            )
        )
        return index
