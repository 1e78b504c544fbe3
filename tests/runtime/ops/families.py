"""The cases of a file that a delegate takes, as one model of many branches: its kernels are compiled at once.

A driver takes most of a second for each program, however small, and a file has up to thirty cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.model.graph import Model, Operator, Quantization, Subgraph, Tensor
from runtime.model.reader import read_model
from runtime.model.writer import write_model

RUNS = 2
"""As a case by itself has: the second run works on memory that the first has left."""


@dataclass
class Family:
    """Models and their inputs, run together when the first result is asked for."""

    delegate: Any
    members: Sequence[tuple[bytes, Sequence[np.ndarray]]]
    _found: list[list[np.ndarray]] | None = field(default=None, init=False)

    def outputs(self, member: int) -> list[np.ndarray] | None:
        """Results of one of the models; None where the delegate does not take all of them."""
        if self._found is None:
            self._found = self._run()
        return self._found[member] if self._found else None

    def _run(self) -> list[list[np.ndarray]]:
        model, counts = together([model for model, _ in self.members])
        interpreter = Interpreter(model_content=model, experimental_delegates=[self.delegate])
        assert interpreter.delegation is not None
        if interpreter.delegation.fallbacks:
            return []
        interpreter.allocate_tensors()
        # A partition that does not compile is planned again without the delegate, and would be compared.
        assert not interpreter.delegation.fallbacks, str(interpreter.delegation)
        values = [value for _, inputs in self.members for value in inputs]
        for details, value in zip(interpreter.get_input_details(), values, strict=True):
            interpreter.set_tensor(details["index"], value)
        for _ in range(RUNS):
            interpreter.invoke()
        outputs = iter(interpreter.get_output_details())
        return [[interpreter.get_tensor(next(outputs)["index"]) for _ in range(n)] for n in counts]


def asked(request: pytest.FixtureRequest, name: str, **others: object) -> list[Any]:
    """Return what the tests of this file that run have as this parameter, beside the values of others."""
    found = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    return [each[name] for each in found if name in each and others.items() <= each.items()]


def together(models: Sequence[bytes]) -> tuple[bytes, list[int]]:
    """One model whose branches are the models, of one subgraph each; how many outputs each has."""
    tensors: list[Tensor] = []
    operators: list[Operator] = []
    inputs: list[int] = []
    outputs: list[int] = []
    counts, buffers = [], 0
    for (subgraph,) in (read_model(model).subgraphs for model in models):
        first = len(tensors)

        def moved(indices: Sequence[int], first: int = first) -> tuple[int, ...]:
            return tuple(first + i if i >= 0 else i for i in indices)

        tensors += [
            replace(
                t,
                index=first + t.index,
                buffer=t.buffer and buffers + t.buffer,
                quantization=_moved(t.quantization, first),
            )
            for t in subgraph.tensors
        ]
        buffers = max(t.buffer for t in tensors)
        operators += [
            replace(o, index=len(operators) + i, inputs=moved(o.inputs), outputs=moved(o.outputs))
            for i, o in enumerate(subgraph.operators)
        ]
        inputs += moved(subgraph.inputs)
        outputs += moved(subgraph.outputs)
        counts.append(len(subgraph.outputs))
    whole = Subgraph(0, "main", tuple(tensors), tuple(inputs), tuple(outputs), tuple(operators))
    return write_model(Model(3, "branches", (whole,))), counts


def _moved(q: Quantization | None, first: int) -> Quantization | None:
    """Return the quantisation with the tensor that holds the scales of its blocks `first` further on."""
    if q is None or q.blocks is None:
        return q
    return replace(q, blocks=replace(q.blocks, scales=first + q.blocks.scales))
