"""Keeps a skeleton's activations in range: random weights lose a trained network's signal level.

One walk over the operators, the original model and its stand-in side by side. Behind each layer whose weights
are generated, weights and bias are scaled together until the output has the root mean square that it has in
the original; the walk continues with the corrected output. Only the numbers of the recipe are stored.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from runtime.errors import ModelError
from runtime.model.graph import Operator, Subgraph, Tensor
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator
from runtime.model.skeleton_weights import generate
from runtime.ops.support.context import OpContext
from runtime.ops.support.evaluation import evaluate
from runtime.ops.support.registry import find_spec
from runtime.ops.support.value import Value, constant_array
from runtime.tools.skeleton.strip import LAYERS, Hole, Stripped

Array = NDArray[Any]
Note = Callable[[str], None]

_ROUNDS: Final = 4
"""Corrections of one layer. Chosen: without a fused clamp one is enough, as the output scales with the
weights; with one the ratio shrinks from round to round, and a layer that is not close after four stays as it
is."""

_CLOSE: Final = 1.05
"""A layer whose root mean square is within this ratio of the original's is left as it is."""

_FACTORS: Final = (0.02, 50.0)
"""Bounds of one correction. Chosen: behind a clamp that is saturated the ratio says little, and one large
step could overflow the layers behind."""

_WEIGHTS: Final[Mapping[BuiltinOperator, tuple[int, int]]] = {**LAYERS, BuiltinOperator.MUL: (0, 1)}


def calibrated(stripped: Stripped, note: Note = lambda _text: None) -> Stripped:
    """Scale the recipes of a skeleton in place and return it; `note` is called for each scaled layer.

    Raises `ModelError` where the model cannot be run operator by operator.
    """
    subgraph = stripped.model.subgraphs[0]
    original = _Walk(subgraph, _inputs(subgraph))
    stand_in = _Walk(read_model(bytes(stripped.restored())).subgraphs[0], _inputs(subgraph))
    holes = {hole.buffer: (number, hole) for number, hole in enumerate(stripped.holes)}
    for operator in subgraph.operators:
        original.step(operator)
        stand_in.step(operator)
        layer = _layer(operator, stand_in, holes)
        if layer:
            _correct(operator, original, stand_in, layer, stripped.seed, note)
    return stripped


class _Walk:
    """Values of a subgraph's tensors, filled operator by operator."""

    def __init__(self, subgraph: Subgraph, inputs: Mapping[int, Array]) -> None:
        self.subgraph = subgraph
        self.arrays: dict[int, Array] = dict(inputs)
        self.maker = {index: o for o in subgraph.operators for index in o.outputs}
        for tensor in subgraph.tensors:
            values = constant_array(tensor)
            if values is not None:
                self.arrays[tensor.index] = values

    def step(self, operator: Operator) -> None:
        """Run one operator on the values so far."""
        inputs = tuple(None if i < 0 else self._value(i) for i in operator.inputs)
        outputs = tuple(_shaped(self.subgraph.tensors[i]) for i in operator.outputs)
        shapes = find_spec(operator).infer(OpContext(operator, inputs, outputs))
        outputs = tuple(replace(o, shape=s) for o, s in zip(outputs, shapes, strict=True))
        self.arrays.update(zip(operator.outputs, evaluate(operator, inputs, outputs), strict=True))

    def rms(self, index: int) -> float:
        """Return the root mean square of a floating-point tensor; 0 for another or where it is not finite."""
        array = self.arrays[index]
        if array.dtype.kind != "f" or not array.size:
            return 0.0
        with np.errstate(all="ignore"):
            found = float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))
        return found if np.isfinite(found) else 0.0

    def source(self, index: int) -> int:
        """Return the stored tensor from which a DEQUANTIZE computes `index`, or `index` itself."""
        made = self.maker.get(index)
        return made.inputs[0] if made is not None and made.opcode is BuiltinOperator.DEQUANTIZE else index

    def refill(self, index: int, values: Array) -> None:
        """Replace the values of a constant, and of every tensor that a DEQUANTIZE computes from it."""
        self.arrays[index] = values
        for operator in self.subgraph.operators:
            if operator.opcode is BuiltinOperator.DEQUANTIZE and operator.inputs == (index,):
                self.step(operator)

    def _value(self, index: int) -> Value:
        if index not in self.arrays:
            tensor = self.subgraph.tensors[index]
            raise ModelError(f"tensor {tensor.name!r} of type {tensor.type.name} cannot be computed")
        array = self.arrays[index]
        return replace(_shaped(self.subgraph.tensors[index]), shape=array.shape, constant=array)


def _shaped(tensor: Tensor) -> Value:
    return Value(tensor.index, tensor.name, tensor.type, tensor.shape, tensor.quantization)


def _inputs(subgraph: Subgraph) -> dict[int, Array]:
    """Return inputs: normal values, quantised values around the zero point, small indices, true masks."""
    rng = np.random.default_rng(0)
    found: dict[int, Array] = {}
    for index in subgraph.inputs:
        value = _shaped(subgraph.tensors[index])
        if value.dtype is None:
            raise ModelError(f"input {value.name!r} of type {value.type.name} cannot be generated")
        if "mask" in value.name or value.dtype.kind == "b":
            drawn: Array = np.ones(value.shape)
        elif value.dtype.kind == "f":
            drawn = rng.standard_normal(value.shape)
        elif value.quantization is not None and value.quantization.zero_points:
            drawn = rng.integers(-60, 60, value.shape) + value.quantization.zero_points[0]
            drawn = np.clip(drawn, np.iinfo(value.dtype).min, np.iinfo(value.dtype).max)
        else:
            # Mostly rows of an embedding, which must exist; a lone integer is rather a length or a position.
            drawn = rng.integers(1, 1000, value.shape) if value.elements > 1 else np.ones(value.shape)
        found[index] = np.asarray(drawn).astype(value.dtype)
    return found


def _layer(
    operator: Operator, walk: _Walk, holes: Mapping[int, tuple[int, Hole]]
) -> list[tuple[int, int, Hole]]:
    """Return the generated weights and bias of a layer as (tensor, number of the hole, hole)."""
    found = []
    for place in _WEIGHTS.get(operator.opcode, ()):
        index = operator.inputs[place] if place < len(operator.inputs) else -1
        if index >= 0:
            stored = walk.source(index)
            hole = holes.get(walk.subgraph.tensors[stored].buffer)
            if walk.subgraph.tensors[stored].is_constant and hole is not None:
                found.append((stored, *hole))
    return found


def _correct(
    operator: Operator,
    original: _Walk,
    stand_in: _Walk,
    layer: list[tuple[int, int, Hole]],
    seed: int,
    note: Note,
) -> None:
    """Scale the layer until its first output is as large as in the original, in rounds if it is clamped."""
    output = operator.outputs[0]
    wanted = original.rms(output)
    for _ in range(_ROUNDS):
        found = stand_in.rms(output)
        # 0 stands for integers and for what is not finite, too: no factor mends these.
        if wanted < 1e-12 or found < 1e-12 or 1 / _CLOSE < wanted / found < _CLOSE:
            return
        factor = float(np.clip(wanted / found, *_FACTORS))
        note(f"operator {operator.index} {operator.name}: scaled by {factor:.3g}")
        for index, number, hole in layer:
            hole.scale(factor)
            stand_in.refill(index, _generated(stand_in.subgraph.tensors[index], number, hole, seed))
        stand_in.step(operator)


def _generated(tensor: Tensor, number: int, hole: Hole, seed: int) -> Array:
    content = bytearray(hole.size)
    moments = (hole.mean, hole.std, hole.low, hole.high)
    generate((seed, number), hole.count, hole.code, hole.kind, moments, memoryview(content))
    values = constant_array(replace(tensor, data=memoryview(content)))
    assert values is not None
    return values
