"""The simulated path of quantised models: tensors hold real numbers, rounded to those of their levels.

A *level* is a stored integer q; it stands for scale * (q - zero_point). On this path every quantised tensor
enters the graph as float32, constants widened, and behind each operator a step rounds its result to a
multiple of the scale within the range of the type, as an integer kernel does in storing it. At the border of
the partition tensors keep their own type: a DEQUANTIZE node reads an input, a QUANTIZE node writes an output.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum

import numpy as np

from runtime.delegates.base import Array, GraphFacts, Unsupported
from runtime.delegates.gpu.graph.epilogue import Levels
from runtime.delegates.gpu.graph.graph import Custom, Kind, shorten
from runtime.delegates.gpu.graph.weights import Stored, WeightType, stored
from runtime.model.graph import Operator, Quantization, Tensor
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import TensorType
from runtime.ops.support.quantization import RANGES

QUANTIZED = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
"""Types of computed tensors that, with a scale, stand for real numbers."""

_WIDENED = (
    *QUANTIZED, TensorType.INT4, TensorType.UINT4, TensorType.INT2, TensorType.INT32, TensorType.INT64,
)  # fmt: skip
"""Types of constants that, with scales, stand for real numbers: weights, and the biases of sums of levels."""

_ON_LEVELS: frozenset[Kind] = frozenset({
    Op.BIDIRECTIONAL_SEQUENCE_LSTM, Op.BITCAST, Op.BITWISE_XOR, Op.CAST, Op.FLOOR_DIV, Op.FLOOR_MOD,
    Op.LSTM, Op.RIGHT_SHIFT, Op.RNN, Op.STABLEHLO_ADD, Op.STABLEHLO_AND, Op.STABLEHLO_CLAMP,
    Op.STABLEHLO_MAXIMUM, Op.STABLEHLO_MINIMUM, Op.STABLEHLO_MULTIPLY, Op.STABLEHLO_REMAINDER,
    Op.STABLEHLO_SHIFT_LEFT, Op.SVDF, Op.UNIDIRECTIONAL_SEQUENCE_LSTM, Op.UNIDIRECTIONAL_SEQUENCE_RNN,
    Op.WHERE,
})  # fmt: skip
"""Operators that compute with the stored integers themselves, or round more numbers than their outputs, as
the cells of recurrent networks do. Their tensors are levels, and converted for their neighbours."""

_MOVES: frozenset[Kind] = frozenset({
    Op.BATCH_TO_SPACE_ND, Op.BROADCAST_TO, Op.CONCATENATION, Op.DEPTH_TO_SPACE, Op.DYNAMIC_UPDATE_SLICE,
    Op.EMBEDDING_LOOKUP, Op.EXPAND_DIMS, Op.GATHER, Op.GATHER_ND, Op.MIRROR_PAD, Op.ONE_HOT, Op.PACK,
    Op.PAD, Op.PADV2, Op.RESHAPE, Op.RESIZE_NEAREST_NEIGHBOR, Op.REVERSE_V2, Op.SELECT, Op.SELECT_V2,
    Op.SLICE, Op.SPACE_TO_BATCH_ND, Op.SPACE_TO_DEPTH, Op.SPLIT, Op.SPLIT_V, Op.SQUEEZE,
    Op.STABLEHLO_BROADCAST_IN_DIM, Op.STRIDED_SLICE, Op.TILE, Op.TOPK_V2, Op.TRANSPOSE, Op.UNPACK,
})  # fmt: skip
"""Operators whose results are elements of their inputs, or zero: rounded already where the scales agree."""

_WRAPPING = float(1 << 30)
"""Levels of an output from which a bias is refused: half of int32's range, so that the products beside it
have the other half. Larger, and sums may wrap around unnoticed; int16 has 2^15 levels on either side."""


def is_quantized(tensor: Tensor) -> bool:
    """Return True for a tensor whose integers stand for real numbers."""
    return tensor.type in QUANTIZED and tensor.quantization is not None


def levels_of(tensor: Tensor) -> Levels | None:
    """Return the levels of a quantised tensor; None if it has not exactly one scale, a positive number."""
    scales = _scales(tensor.quantization)
    if not is_quantized(tensor) or tensor.quantization is None or scales is None or scales.size != 1:
        return None
    zero_point = int(tensor.quantization.zero_points[0])
    low, high = RANGES[tensor.type]
    return Levels(float(scales[0]), zero_point, low - zero_point, high - zero_point)


def is_real(facts: GraphFacts, tensor: int) -> bool:
    """Return True for a tensor of 8 or 16 bits that enters a simulated operator as real numbers."""
    known = facts.subgraph.tensors[tensor]
    return (is_widened(facts, tensor) and known.type in QUANTIZED) or _is_computed(facts, tensor)


def is_widened(facts: GraphFacts, tensor: int) -> bool:
    """Return True for a constant that can be widened to the real numbers that it stands for."""
    known, q = facts.subgraph.tensors[tensor], facts.subgraph.tensors[tensor].quantization
    if tensor not in facts.constants or known.type not in _WIDENED:
        return False
    if q is not None and q.blocks is not None:
        return stored_constant(facts, tensor) is not None
    return _scales(q) is not None


def stored_constant(facts: GraphFacts, tensor: int) -> Stored | None:
    """Return a constant as the file holds it, `stored` of it; None for one of float32, or without scales."""
    known = facts.subgraph.tensors[tensor]
    blocks = None if known.quantization is None else known.quantization.blocks
    scales = None if blocks is None else facts.constants.get(blocks.scales)
    return stored(known, facts.constants[tensor], scales)


def quantised_rows(facts: GraphFacts, operator: Operator) -> str | None:
    """Return how LiteRT quantises the float input of an operator with a filter of levels in every run:
    "symmetric" or "asymmetric"; None for any other operator.

    Images by a filter with several scales have a zero point, rows by the operator's option or by blocks.
    """
    tensors, inputs = facts.subgraph.tensors, operator.inputs
    if operator.opcode not in (Op.CONV_2D, Op.FULLY_CONNECTED) or len(inputs) < 2 or min(inputs[:2]) < 0:
        return None
    if tensors[inputs[0]].type is not TensorType.FLOAT32 or inputs[1] not in facts.constants:
        return None
    found = stored_constant(facts, inputs[1])
    if found is None or found.type not in (WeightType.I8, WeightType.I4) or found.scales is None:
        return None
    if found.block is None and found.by_slice(found.scales, 0) is None:
        return None
    if operator.opcode == Op.CONV_2D:
        return "asymmetric" if len(set(found.scales.tolist())) > 1 else "symmetric"
    is_asymmetric = found.block is not None or operator.options.get("asymmetric_quantize_inputs")
    return "asymmetric" if is_asymmetric else "symmetric"


def _is_computed(facts: GraphFacts, tensor: int) -> bool:
    """Return True for a quantised tensor that is no constant."""
    return tensor not in facts.constants and is_quantized(facts.subgraph.tensors[tensor])


def _scales(quantization: Quantization | None) -> Array | None:
    """Return the scales as float32, as in files; None if there are none, or one is no positive number."""
    if quantization is None or quantization.blocks is not None or quantization.is_custom:
        return None
    scales = np.asarray(quantization.scales, np.float32)
    return scales if scales.size and (scales > 0).all() and np.isfinite(scales).all() else None


def simulated_types(kind: Kind) -> tuple[TensorType, ...]:
    """Return the quantised types between which an operator of this kind can be simulated."""
    return () if kind in _ON_LEVELS or isinstance(kind, Custom) else QUANTIZED


class Quantised(Enum):
    """The treatment of quantised tensors: as real numbers, as integers, or on the CPU path."""

    REAL = "real numbers"
    LEVELS = "integers"
    LEFT = "left"


def is_quantised(facts: GraphFacts, operator: Operator) -> bool:
    """Return True for an operator that computes a quantised tensor, or computes with one."""
    return any(_is_computed(facts, i) for i in (*operator.inputs, *operator.outputs) if i >= 0)


def computes_levels(facts: GraphFacts, operator: Operator) -> bool:
    """Return True for an operator that takes and gives stored integers, whatever is simulated around it.

    QUANTIZE to int32 is one, as real numbers of float32 lack the bits for it.
    """
    tensors = facts.subgraph.tensors
    to_words = operator.opcode is Op.QUANTIZE and tensors[operator.outputs[0]].type is TensorType.INT32
    return operator.opcode in _ON_LEVELS or to_words


def is_simulated(facts: GraphFacts, operator: Operator, way: Quantised) -> bool:
    """Return True for an operator whose quantised tensors are real numbers in the graph."""
    if way is not Quantised.REAL or computes_levels(facts, operator):
        return False
    return is_quantised(facts, operator)


def quantised_refusal(
    facts: GraphFacts, operator: Operator, kind: Kind, way: Quantised
) -> Unsupported | None:
    """Return why an operator on quantised tensors cannot be run this way; None for any other operator."""
    if way is Quantised.LEVELS:
        return _levels_refusal(facts, operator, kind)
    on_levels = computes_levels(facts, operator)
    for index in (*operator.inputs, *operator.outputs):
        if index < 0 or not _is_computed(facts, index):
            continue
        tensor = facts.subgraph.tensors[index]
        text = f"tensor {index} {shorten(tensor.name)!r} is quantised {tensor.type.name.lower()}"
        if way is Quantised.LEFT:
            return Unsupported(f"{text}, and the option enable_quantization is off")
        if on_levels:
            continue
        if not simulated_types(kind):
            return Unsupported(f"{text}, with whose stored integers {kind.name} computes")
        if levels_of(tensor) is None:
            return Unsupported(f"{text}, but has not one positive scale for all of its elements")
    return None if on_levels else _wrapping_bias(facts, operator)


def _wrapping_bias(facts: GraphFacts, operator: Operator) -> Unsupported | None:
    """Refuse an operator whose constant bias alone comes close to the bounds of int32 on the output's scale.

    LiteRT's kernels for int16 wrap around there before they clamp; real numbers would only be clamped.
    """
    tensors, made = facts.subgraph.tensors, operator.outputs[0] if operator.outputs else -1
    target = levels_of(tensors[made]) if made >= 0 else None
    for i in operator.inputs:
        # Biases of int64 are those of operators on int16.
        if i < 0 or tensors[i].type is not TensorType.INT64 or target is None or not is_widened(facts, i):
            continue
        most = float(np.abs(_widen(facts, i)).max(initial=0)) / target.scale
        if most >= _WRAPPING:
            reach = f"the bias in tensor {i} reaches {most:.3g} levels of the output"
            return Unsupported(f"{reach}, where LiteRT's kernels wrap around")
    return None


def _levels_refusal(facts: GraphFacts, operator: Operator, kind: Kind) -> Unsupported | None:
    """Movements keep the integers as they are, so that they cannot change what these stand for."""
    tensors = facts.subgraph.tensors
    inputs = [tensors[i] for i in operator.inputs if i >= 0]
    if kind not in _MOVES or not is_quantised(facts, operator):
        return None
    if kind is Op.SPACE_TO_BATCH_ND and (levels := levels_of(inputs[0])) and levels.zero_point:
        return Unsupported("its edges would be 0 where the zero point is another integer")
    if all(keeps_levels(kind, inputs, tensors[i]) for i in operator.outputs if is_quantized(tensors[i])):
        return None
    return Unsupported("input and output have other scales, between which no kernel of integers moves")


def real_facts(facts: GraphFacts, widened: frozenset[int]) -> GraphFacts:
    """Return the facts with the constants of `widened` as the real numbers that they stand for."""
    return replace(facts, constants=_RealConstants(facts, widened)) if widened else facts


class _RealConstants(Mapping[int, Array]):
    """Constants, some of which are widened to float32 when they are asked for."""

    def __init__(self, facts: GraphFacts, widened: frozenset[int]) -> None:
        self._facts, self._constants = facts, facts.constants
        self._widened = widened

    def __getitem__(self, tensor: int) -> Array:
        found = self._constants[tensor]
        return _widen(self._facts, tensor) if tensor in self._widened else found

    # `Mapping` would answer by `__getitem__`, which widens the constant.
    def __contains__(self, tensor: object) -> bool:
        return tensor in self._constants

    def __iter__(self) -> Iterator[int]:
        return iter(self._constants)

    def __len__(self) -> int:
        return len(self._constants)


def _widen(facts: GraphFacts, constant: int) -> Array:
    """float32 scale * (q - zero_point), per tensor or slice of the quantised dimension.

    Raises ValueError where there are no scales.
    """
    if (narrow := stored_constant(facts, constant)) is not None:
        return narrow.widened()
    tensor, levels = facts.subgraph.tensors[constant], facts.constants[constant]
    quantization, scales = tensor.quantization, _scales(tensor.quantization)
    if quantization is None or scales is None:
        raise ValueError(f"constant {tensor.index} has no scales by which it could be widened")
    zero_points = np.asarray(quantization.zero_points, np.int64)
    if scales.size > 1:
        shape = [1] * levels.ndim
        shape[quantization.quantized_dimension] = -1
        scales, zero_points = scales.reshape(shape), zero_points.reshape(shape)
    # Biases may have more than the 24 bits of a float32: rounded once, behind the product.
    return np.multiply(levels - zero_points, scales, dtype=np.float64).astype(np.float32)


def keeps_levels(kind: Kind, inputs: list[Tensor], output: Tensor) -> bool:
    """Return True if an operator's result is rounded to the levels of `output` because its inputs are."""
    return kind in _MOVES and all(
        levels_of(tensor) == levels_of(output) for tensor in inputs if tensor.type is output.type
    )
