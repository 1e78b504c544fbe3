"""The GPU delegate's treatment of each operator case, as data: it takes the operator, or refuses it and why.

A case expects the refusal that `FORMS` holds for it. Every other case of an operator of `TAKEN` between
tensors of types that its kernels take is taken; the rest are refused for the operator or for the first tensor
of another type. A kernel that is gained or lost changes this file, or the cases of its operator fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from runtime.model.schema import BuiltinOperator as B
from runtime.model.schema import TensorType
from tests.runtime.models import TYPES, Arg, Out

TAKES: Mapping[str, str] = {}
"""The delegate runs the whole model. Otherwise: each operator that it leaves to the CPU, and its reason."""

TAKEN = frozenset({
    B.ABS, B.ADD, B.ADD_N, B.ARG_MAX, B.ARG_MIN, B.ATAN2, B.AVERAGE_POOL_2D, B.BATCH_MATMUL,
    B.BATCH_TO_SPACE_ND, B.BITCAST, B.BITWISE_XOR, B.BROADCAST_TO, B.CAST, B.CEIL, B.COMPLEX_ABS,
    B.CONCATENATION, B.CONV_2D, B.CONV_3D, B.CONV_3D_TRANSPOSE, B.COS, B.CUMSUM, B.DEPTHWISE_CONV_2D,
    B.DEPTH_TO_SPACE, B.DEQUANTIZE, B.DIV, B.DYNAMIC_UPDATE_SLICE, B.ELU, B.EMBEDDING_LOOKUP, B.EQUAL,
    B.EXP, B.EXPAND_DIMS, B.FILL, B.FLOOR, B.FLOOR_DIV, B.FLOOR_MOD, B.FULLY_CONNECTED, B.GATHER,
    B.GATHER_ND, B.GELU, B.GREATER, B.GREATER_EQUAL, B.HARD_SWISH, B.IMAG, B.L2_NORMALIZATION, B.L2_POOL_2D,
    B.LEAKY_RELU, B.LESS, B.LESS_EQUAL, B.LOCAL_RESPONSE_NORMALIZATION, B.LOG, B.LOGICAL_AND, B.LOGICAL_NOT,
    B.LOGICAL_OR, B.LOGISTIC, B.LOG_SOFTMAX, B.LSTM, B.MAXIMUM, B.MAX_POOL_2D, B.MEAN, B.MINIMUM,
    B.MIRROR_PAD, B.MUL, B.NEG, B.NOT_EQUAL, B.ONE_HOT, B.PACK, B.PAD, B.PADV2, B.POW, B.PRELU, B.QUANTIZE,
    B.REAL, B.REDUCE_ALL, B.REDUCE_ANY, B.REDUCE_MAX, B.REDUCE_MIN, B.REDUCE_PROD, B.RELU, B.RELU6,
    B.RELU_0_TO_1, B.RELU_N1_TO_1, B.RESHAPE, B.RESIZE_BILINEAR, B.RESIZE_NEAREST_NEIGHBOR, B.REVERSE_V2,
    B.RFFT2D, B.RIGHT_SHIFT, B.RNN, B.ROUND, B.RSQRT, B.SELECT, B.SELECT_V2, B.SIGN, B.SIN, B.SLICE,
    B.SOFTMAX, B.SPACE_TO_BATCH_ND, B.SPACE_TO_DEPTH, B.SPLIT, B.SPLIT_V, B.SQRT, B.SQUARE,
    B.SQUARED_DIFFERENCE, B.SQUEEZE, B.STABLEHLO_ADD, B.STABLEHLO_AND, B.STABLEHLO_BROADCAST_IN_DIM,
    B.STABLEHLO_CBRT, B.STABLEHLO_CLAMP, B.STABLEHLO_MAXIMUM, B.STABLEHLO_MINIMUM, B.STABLEHLO_MULTIPLY,
    B.STABLEHLO_REMAINDER, B.STABLEHLO_SHIFT_LEFT, B.STRIDED_SLICE, B.SUB, B.SUM, B.SVDF, B.TANH, B.TILE,
    B.TOPK_V2, B.TRANSPOSE, B.TRANSPOSE_CONV, B.UNIDIRECTIONAL_SEQUENCE_LSTM, B.UNIDIRECTIONAL_SEQUENCE_RNN,
    B.UNPACK,
})  # fmt: skip
"""Operators that have an OpenCL kernel, of float32 alone where no table below has them."""

TAKEN_CUSTOM = frozenset({
    "Convolution2DTransposeBias", "Landmarks2TransformMatrix", "MaxPoolingWithArgmax2D", "MaxUnpooling2D",
    "Resampler", "TransformLandmarks", "TransformTensorBilinear",
})  # fmt: skip
"""Custom operators that have an OpenCL kernel, by name."""

MOVED = frozenset({
    B.BATCH_TO_SPACE_ND, B.BROADCAST_TO, B.CONCATENATION, B.DEPTH_TO_SPACE, B.EXPAND_DIMS, B.FILL,
    B.MIRROR_PAD, B.PACK, B.RESHAPE, B.REVERSE_V2, B.SLICE, B.SPACE_TO_BATCH_ND,
    B.SPACE_TO_DEPTH, B.SPLIT, B.SPLIT_V, B.SQUEEZE, B.STRIDED_SLICE, B.TILE, B.TRANSPOSE, B.UNPACK,
})  # fmt: skip
"""Operators that only move elements, of any type that the delegate can hold."""

PLAIN = (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64, TensorType.BOOL)
"""The types that element-wise kernels have, in the order in which the delegate's messages list them."""

LEVELS = (TensorType.INT16, TensorType.INT8, TensorType.UINT8)
"""Types of quantised tensors, which enter the delegate's graph as float32 where they have one scale."""

CASTABLE = (*PLAIN, TensorType.UINT8, TensorType.INT8, TensorType.INT16)
"""The types between which the delegate casts, and of which it selects."""

MOVABLE = (*PLAIN, *LEVELS, TensorType.COMPLEX64)
"""The types that the delegate can hold, in the order in which its messages list them."""

FLOAT, INT, LONG, BOOL = ((kind,) for kind in PLAIN)
COMPLEX = (TensorType.COMPLEX64,)

INDICES = INT + LONG
"""The types of indices that the delegate computes with."""

COMPARED = FLOAT + INT + BOOL
"""The types whose extrema the delegate finds."""

ORDERED = FLOAT + INT + LONG
"""The types that the delegate sorts."""

PADDED = (*PLAIN, TensorType.INT8, TensorType.UINT8)
"""The types that the delegate pads with a value, in the order in which its messages list them."""

BITS = INT + LONG + BOOL
"""The types on whose bits the delegate works."""

PLACES: Mapping[B, tuple[Sequence[Sequence[TensorType]], Sequence[Sequence[TensorType]]]] = {
    B.ARG_MAX: ([COMPARED], [INDICES]),
    B.ARG_MIN: ([COMPARED], [INDICES]),
    B.BITCAST: ([ORDERED], [ORDERED]),
    B.BITWISE_XOR: ([INT + BOOL], [INT + BOOL]),
    B.CAST: ([CASTABLE], [CASTABLE]),
    **dict.fromkeys((B.REAL, B.IMAG, B.COMPLEX_ABS), ([COMPLEX], [FLOAT])),
    B.RFFT2D: ([FLOAT], [COMPLEX]),
    B.CUMSUM: ([ORDERED, FLOAT], [ORDERED]),
    B.DYNAMIC_UPDATE_SLICE: ([MOVABLE, MOVABLE, INDICES], [MOVABLE]),
    B.EMBEDDING_LOOKUP: ([INT, MOVABLE], [MOVABLE]),
    **dict.fromkeys((B.EQUAL, B.NOT_EQUAL), ([PLAIN], [BOOL])),
    B.FLOOR_DIV: ([ORDERED], [ORDERED]),
    B.GATHER: ([MOVABLE, INDICES], [MOVABLE]),
    B.GATHER_ND: ([MOVABLE, INDICES], [MOVABLE]),
    **dict.fromkeys((B.LESS, B.LESS_EQUAL, B.GREATER, B.GREATER_EQUAL), ([ORDERED], [BOOL])),
    **dict.fromkeys((B.LOGICAL_AND, B.LOGICAL_OR, B.LOGICAL_NOT), ([BOOL], [BOOL])),
    B.MEAN: ([ORDERED, FLOAT], [ORDERED]),
    B.ONE_HOT: ([INDICES, INDICES, MOVABLE], [MOVABLE]),
    **dict.fromkeys((B.PAD, B.PADV2), ([PADDED, FLOAT, PADDED], [PADDED])),
    **dict.fromkeys((B.REDUCE_ALL, B.REDUCE_ANY), ([BOOL, FLOAT], [BOOL])),
    **dict.fromkeys((B.REDUCE_MAX, B.REDUCE_MIN, B.REDUCE_PROD, B.SUM), ([PLAIN, FLOAT], [PLAIN])),
    B.RIGHT_SHIFT: ([INT], [INT]),
    **dict.fromkeys((B.SELECT, B.SELECT_V2), ([BOOL, CASTABLE], [CASTABLE])),
    B.STABLEHLO_AND: ([BITS], [BITS]),
    B.STABLEHLO_SHIFT_LEFT: ([INDICES], [INDICES]),
    B.TOPK_V2: ([ORDERED], [ORDERED, INT]),
}
"""The types of each input and each output, of which the last stands for all further ones."""

ON_LEVELS = frozenset({
    B.BITWISE_XOR, B.CAST, B.FLOOR_DIV, B.FLOOR_MOD, B.LSTM, B.RIGHT_SHIFT, B.RNN, B.STABLEHLO_ADD,
    B.STABLEHLO_AND, B.STABLEHLO_MAXIMUM, B.STABLEHLO_MINIMUM, B.STABLEHLO_MULTIPLY, B.STABLEHLO_SHIFT_LEFT,
    B.SVDF, B.UNIDIRECTIONAL_SEQUENCE_LSTM, B.UNIDIRECTIONAL_SEQUENCE_RNN,
})  # fmt: skip
"""Operators that compute with the stored integers of quantised tensors, not with what they stand for."""

INTEGERS: Mapping[B, tuple[TensorType, ...]] = {
    **dict.fromkeys((B.ADD, B.SUB, B.MUL, B.MAXIMUM, B.MINIMUM, B.NEG, B.FLOOR_MOD), INDICES),
    **dict.fromkeys((B.ADD_N, B.DIV, B.POW, B.SQUARED_DIFFERENCE, B.ABS, B.SIGN), INT),
    **dict.fromkeys((B.STABLEHLO_ADD, B.STABLEHLO_MULTIPLY, B.STABLEHLO_MAXIMUM, B.STABLEHLO_MINIMUM), BITS),
}
"""Operators of float32 that work on other types too, in another kernel: the first input decides."""

PARAMETERS = frozenset({
    (B.ARG_MAX, 1), (B.ARG_MIN, 1), (B.BATCH_TO_SPACE_ND, 1), (B.BATCH_TO_SPACE_ND, 2), (B.BROADCAST_TO, 1),
    (B.CONV_3D_TRANSPOSE, 0), (B.CUMSUM, 1), (B.EXPAND_DIMS, 1), (B.FILL, 0), (B.MEAN, 1),
    (B.MIRROR_PAD, 1), (B.ONE_HOT, 1), (B.PAD, 1), (B.PADV2, 1), (B.REDUCE_ALL, 1), (B.REDUCE_ANY, 1),
    (B.REDUCE_MAX, 1), (B.REDUCE_MIN, 1), (B.REDUCE_PROD, 1), (B.RESHAPE, 1), (B.RESIZE_BILINEAR, 1),
    (B.RESIZE_NEAREST_NEIGHBOR, 1), (B.REVERSE_V2, 1), (B.RFFT2D, 1), (B.SLICE, 1), (B.SLICE, 2),
    (B.SPACE_TO_BATCH_ND, 1), (B.SPACE_TO_BATCH_ND, 2), (B.SPLIT, 0), (B.SPLIT_V, 1), (B.SPLIT_V, 2),
    (B.STRIDED_SLICE, 1), (B.STRIDED_SLICE, 2), (B.STRIDED_SLICE, 3), (B.SUM, 1), (B.TILE, 1),
    (B.TOPK_V2, 1), (B.TRANSPOSE, 1), (B.TRANSPOSE_CONV, 0),
})  # fmt: skip
"""Inputs by operator and position that must be constant: axes, paddings, shapes."""

_FOLDED = "constant, but no operator that uses it is delegated"

FORMS: Mapping[tuple[B, str], str] = {
    (B.ADD_N, "ADD_N_of_seven"): "7 operands, of which a kernel takes 6",
    (B.DEQUANTIZE, "dequantize_half"): _FOLDED,
    (B.FULLY_CONNECTED, "computed_bias_column"): "a bias of shape [5, 1] behind 5 columns has no kernel",
    (B.SHAPE, "shape"): _FOLDED,
    (B.SPLIT_V, "empty_part"): "tensor 4 has no elements",
}
"""Cases that are refused for their form, by operator and name, although the operator or its types are not."""


def expectation(name: str, opcode: B, args: Sequence[Arg | None], outs: Sequence[Out]) -> Mapping[str, str]:
    """Return `TAKES`, or the operator with the reason that the delegate must give, word for word."""
    reason = FORMS.get((opcode, name))
    if reason is None:
        reason = _by_types(opcode, args, outs) if opcode in TAKEN else "no OpenCL kernel for this operator"
    return TAKES if reason is None else {opcode.name: reason}


def _by_types(opcode: B, args: Sequence[Arg | None], outs: Sequence[Out]) -> str | None:
    """Return the reason for the first tensor that no kernel takes; `one_operator` numbers those that are
    present.
    """
    inputs = [(arg, i) for i, arg in enumerate(args) if arg is not None]
    forms = [*(form for form, _ in inputs), *outs]
    if reasons := [r for i, form in enumerate(forms) if (r := _quantized_refusal(opcode, i, form))]:
        return reasons[0]
    real = opcode not in ON_LEVELS
    kinds = [TensorType.FLOAT32 if real and _is_quantized(form) else _kind(form) for form in forms]
    of_inputs, of_outputs = _places(opcode, kinds[0])
    places = [(arg, (opcode, i) in PARAMETERS, of_inputs[min(i, len(of_inputs) - 1)]) for arg, i in inputs]
    places += [(out, False, of_outputs[min(i, len(of_outputs) - 1)]) for i, out in enumerate(outs)]
    for index, ((form, is_parameter, types), kind) in enumerate(zip(places, kinds, strict=True)):
        known = types if opcode in PLACES or not is_parameter else FLOAT
        if getattr(form, "constant", False) or kind in known:
            continue
        found, limit = kind.name.lower(), " or ".join(one.name.lower() for one in known)
        if is_parameter and kind in (TensorType.INT32, TensorType.INT64):
            found, limit = f"a computed {kind.name.lower()}", "a constant of int32 or int64"
        return f"tensor {index} 't{index}' is {found}, where {opcode.name} takes {limit}"
    return None


def _kind(form: Arg | Out) -> TensorType:
    dtype = form.dtype if isinstance(form, Out) else form.value.dtype
    return TYPES[np.dtype(dtype)] if form.type is None else form.type


def _is_quantized(form: Arg | Out) -> bool:
    computed = not getattr(form, "constant", False)
    return computed and form.quantization is not None and _kind(form) in LEVELS


def _quantized_refusal(opcode: B, index: int, form: Arg | Out) -> str | None:
    if not _is_quantized(form) or form.quantization is None:
        return None
    text = f"tensor {index} 't{index}' is quantised {_kind(form).name.lower()}"
    if opcode in ON_LEVELS:
        return None
    one = len(form.quantization.scales) == 1
    return None if one else f"{text}, but has not one positive scale for all of its elements"


def _places(
    opcode: B, first: TensorType
) -> tuple[Sequence[Sequence[TensorType]], Sequence[Sequence[TensorType]]]:
    """Return the types at each place of an operator whose first input has the type `first`."""
    if opcode in INTEGERS and first is not TensorType.FLOAT32:
        others = INTEGERS[opcode] if first in INTEGERS[opcode] else FLOAT + INTEGERS[opcode]
        return [others], [others]
    moved = MOVABLE if opcode in MOVED else FLOAT
    return PLACES.get(opcode, ([moved], [moved]))
