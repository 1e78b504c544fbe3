"""The matrix: one row or more for every operator that the `gpu` delegate has kernels for.

Shapes are small, odd and unequal, so that a kernel that mixes up two extents, or leaves out a remainder of
its tiles, gives other numbers. Operators with several kernels have a row for each form.
"""

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from runtime.model.graph import Quantization
from runtime.model.schema import ActivationFunctionType as Fused
from runtime.model.schema import BuiltinOperator as B
from runtime.model.schema import MirrorPadMode, Padding, TensorType
from runtime.tools.operator_check.rows import Operand, Row, fed, flags, given, held, levels, state, whole

_UNARY = (
    B.ABS, B.CEIL, B.COS, B.ELU, B.EXP, B.FLOOR, B.HARD_SWISH, B.LOGISTIC, B.NEG, B.RELU, B.RELU6,
    B.RELU_0_TO_1, B.RELU_N1_TO_1, B.ROUND, B.SIGN, B.SIN, B.SQUARE, B.STABLEHLO_CBRT, B.TANH,
)  # fmt: skip
_OF_POSITIVE = (B.LOG, B.RSQRT, B.SQRT)
_BINARY = (
    B.ADD, B.ADD_N, B.ATAN2, B.FLOOR_MOD, B.MAXIMUM, B.MINIMUM, B.MUL, B.PRELU, B.SQUARED_DIFFERENCE,
    B.STABLEHLO_ADD, B.STABLEHLO_MAXIMUM, B.STABLEHLO_MINIMUM, B.STABLEHLO_MULTIPLY, B.STABLEHLO_REMAINDER,
    B.SUB,
)  # fmt: skip
_OF_INTEGERS = (
    B.ADD, B.BITWISE_XOR, B.FLOOR_DIV, B.FLOOR_MOD, B.MAXIMUM, B.MINIMUM, B.MUL, B.RIGHT_SHIFT,
    B.STABLEHLO_ADD, B.STABLEHLO_AND, B.STABLEHLO_SHIFT_LEFT, B.SUB,
)  # fmt: skip
_COMPARING = (B.EQUAL, B.GREATER, B.GREATER_EQUAL, B.LESS, B.LESS_EQUAL, B.NOT_EQUAL)
_REDUCING = (B.MEAN, B.REDUCE_MAX, B.REDUCE_MIN, B.REDUCE_PROD, B.SUM)
_RELU = {"fused_activation_function": Fused.RELU}
_TANH = {"fused_activation_function": Fused.TANH}
_ONE = {"stride_h": 1, "stride_w": 1, "dilation_h_factor": 1, "dilation_w_factor": 1}
_TWO = {**_ONE, "stride_h": 2, "stride_w": 2}
_DEEP = {**_ONE, "stride_d": 1, "dilation_d_factor": 1, "padding": Padding.VALID}
_SAME = {"padding": Padding.SAME}
_CUSTOM_SAME: Final = 1
"""SAME in the options of custom operators (TfLitePadding of LiteRT's builtin_op_data.h)."""

_AROUND: Final = bytes.fromhex(
    "6c6566745f726f746174696f6e5f6964780072696768745f726f746174696f6e5f696478006f75747075745f686569676874006f"
    "75747075745f7769647468007363616c655f78007363616c655f79007375627365745f69647873000300020607613d3052251e17"
    "070107010405040201140404040404042c0e2401"
)
"""The FlexBuffer of a crop of 5 by 4 pixels around the landmarks 0, 2 and 6, of the line from 1 to 4."""

_SMALL_CROP: Final = bytes.fromhex(
    "6f75747075745f686569676874006f75747075745f776964746800021c0f02010204050404042401"
)
"""The FlexBuffer that states the size of that crop alone."""


def matrix() -> tuple[Row, ...]:
    """Every row. The numbers are the same in every process and on every machine."""
    parts = (_elementwise(), _typed(), _products(), _windows(), _recurrent(), _reductions(), _moving())
    return tuple(row for part in parts for row in part)


def _elementwise() -> Iterator[Row]:
    yield from (Row(op, (fed(2, 5, 7, 3),)) for op in _UNARY)
    yield from (Row(op, (fed(2, 5, 7, 3, low=0.1),)) for op in _OF_POSITIVE)
    yield from (Row(B.GELU, (fed(3, 17),), {"approximate": how}) for how in (False, True))
    yield Row(B.LEAKY_RELU, (fed(3, 17),), {"alpha": 0.2})
    # The second operand keeps away from zero, by which some of the operators divide.
    pair = (fed(2, 3, 5, 7), fed(2, 3, 5, 7, low=0.5))
    yield from (Row(op, pair) for op in _BINARY)
    yield from (Row(op, (fed(2, 3, 5, 7), held(7, low=0.5, high=2.0))) for op in (B.ADD, B.MUL, B.DIV))
    yield from (Row(op, (fed(4, 1, 6), fed(5, 1))) for op in (B.ADD, B.SUB, B.MAXIMUM))
    yield Row(B.DIV, pair, _RELU)
    yield Row(B.POW, (fed(4, 9, low=0.1), fed(4, 9)))
    yield Row(B.FLOOR_DIV, (fed(4, 9), fed(4, 9, low=0.7)))
    yield Row(B.STABLEHLO_CLAMP, (fed(4, 9, low=-2, high=-1), fed(4, 9), fed(4, 9, low=0, high=1)))
    few = (_steps(4, 9, low=-2), _steps(4, 9, low=-1))
    yield from (Row(op, few, results=(np.bool_,)) for op in _COMPARING)
    yield from (Row(op, (flags(4, 9), fed(4, 9), fed(4, 9, high=2.0))) for op in (B.SELECT, B.SELECT_V2))
    yield Row(B.SELECT_V2, (flags(9), fed(4, 9), given(0.5, np.float32)))


def _steps(*shape: int, low: int) -> Operand:
    """Whole numbers as float32, few of them, so that some are equal and some are zero."""
    return Operand(whole(*shape, low=low, high=2).value.astype(np.float32))


def _typed() -> Iterator[Row]:
    """Integers, booleans, complex numbers, and what changes from one type to another."""
    both = (whole(3, 11), whole(3, 11, low=1, high=4))
    yield from (Row(op, both, results=(np.int32,)) for op in _OF_INTEGERS)
    wide = (whole(3, 11, dtype=np.int64), whole(3, 11, low=1, high=4, dtype=np.int64))
    yield from (Row(op, wide, results=(np.int64,)) for op in (B.ADD, B.MUL, B.SUB, B.STABLEHLO_REMAINDER))
    yield from (Row(op, (whole(3, 11),), results=(np.int32,)) for op in (B.ABS, B.NEG, B.SIGN))
    yield from (Row(op, both, results=(np.bool_,)) for op in _COMPARING)
    truths = (flags(4, 9), flags(4, 9, turned=True))
    yield from (Row(op, truths, results=(np.bool_,)) for op in (B.LOGICAL_AND, B.LOGICAL_OR))
    yield Row(B.LOGICAL_NOT, truths[:1], results=(np.bool_,))
    for target, kind in ((np.int32, TensorType.INT32), (np.bool_, TensorType.BOOL)):
        options = {"in_data_type": TensorType.FLOAT32, "out_data_type": kind}
        yield Row(B.CAST, (_steps(4, 9, low=-2),), options, (target,))
    back = {"in_data_type": TensorType.INT32, "out_data_type": TensorType.FLOAT32}
    yield Row(B.CAST, (whole(4, 9),), back)
    pixels = {"in_data_type": TensorType.UINT8, "out_data_type": TensorType.FLOAT32}
    yield Row(B.CAST, (whole(4, 9, low=0, high=255, dtype=np.uint8),), pixels)
    yield Row(B.BITCAST, (fed(4, 9),), results=(np.int32,), shapes=((4, 9),))
    numbers = np.random.default_rng(0).normal(size=(3, 7, 2)).astype(np.float32).view(np.complex64)[..., 0]
    yield from (Row(op, (Operand(numbers),)) for op in (B.REAL, B.IMAG, B.COMPLEX_ABS))
    quantised = Quantization((0.05,), (3,))
    yield Row(B.QUANTIZE, (fed(3, 19),), results=(np.int8,), quantization=quantised)
    stored = Operand(whole(3, 19, low=-128, high=127, dtype=np.int8).value, quantization=quantised)
    yield Row(B.DEQUANTIZE, (stored,))
    yield Row(B.RFFT2D, (fed(2, 4, 8), given([4, 8])), results=(np.complex64,))


def _products() -> Iterator[Row]:
    for rows, depth, columns in ((1, 40, 23), (19, 33, 37)):
        operands = (fed(rows, depth), held(columns, depth), held(columns))
        yield Row(B.FULLY_CONNECTED, operands, _RELU)
    yield Row(B.FULLY_CONNECTED, (fed(5, 12), fed(7, 12), None), {"fused_activation_function": Fused.NONE})
    for adjoint in (False, True):
        right = fed(3, 9, 7) if adjoint else fed(3, 7, 9)
        yield Row(B.BATCH_MATMUL, (fed(3, 5, 7), right), {"adj_x": False, "adj_y": adjoint})
    yield Row(B.BATCH_MATMUL, (fed(2, 4, 7), held(7, 9)), {"adj_x": False, "adj_y": False})
    yield Row(B.EMBEDDING_LOOKUP, (whole(5, low=0, high=6), held(7, 9)))


def _windows() -> Iterator[Row]:
    yield Row(B.CONV_2D, (fed(1, 9, 11, 5), held(7, 1, 1, 5), held(7)), {**_ONE, **_SAME, **_RELU})
    yield Row(B.CONV_2D, (fed(2, 9, 11, 5), held(7, 3, 3, 5), held(7)), {**_TWO, **_SAME})
    yield Row(B.CONV_2D, (fed(1, 12, 13, 3), held(18, 5, 3, 3), held(18)), {**_ONE, "padding": Padding.VALID})
    # Wide enough for Winograd's method.
    yield Row(B.CONV_2D, (fed(1, 24, 24, 64), held(64, 3, 3, 64), held(64)), {**_ONE, **_SAME})
    depth = {**_ONE, **_SAME, "depth_multiplier": 1}
    yield Row(B.DEPTHWISE_CONV_2D, (fed(1, 9, 11, 19), held(1, 3, 3, 19), held(19)), depth)
    twice = {**_TWO, **_SAME, "depth_multiplier": 2}
    yield Row(B.DEPTHWISE_CONV_2D, (fed(2, 9, 11, 5), held(1, 5, 5, 10), held(10)), twice)
    yield Row(B.CONV_3D, (fed(1, 5, 6, 7, 3), held(2, 3, 2, 3, 5), held(5)), _DEEP)
    size = given([1, 6, 7, 8, 3])
    yield Row(B.CONV_3D_TRANSPOSE, (size, held(2, 3, 2, 3, 5), fed(1, 5, 5, 7, 5), held(3)), _DEEP)
    up = {"stride_h": 2, "stride_w": 2, **_SAME}
    yield Row(B.TRANSPOSE_CONV, (given([1, 8, 10, 7]), held(7, 3, 3, 5), fed(1, 4, 5, 5)), up)
    packed = struct.pack("<5i", _CUSTOM_SAME, 2, 2, 0, 0)
    yield _custom(
        "Convolution2DTransposeBias", (fed(1, 4, 5, 3), held(2, 3, 3, 3), held(2)), packed, ((1, 8, 10, 2),)
    )
    pool = {"stride_h": 2, "stride_w": 2, "filter_height": 3, "filter_width": 2, **_SAME}
    yield from (Row(op, (fed(2, 9, 11, 5),), pool) for op in (B.AVERAGE_POOL_2D, B.L2_POOL_2D, B.MAX_POOL_2D))
    places = struct.pack("<10i", _CUSTOM_SAME, 2, 2, 2, 2, 0, 0, 0, 0, 0)
    small = ((1, 4, 3, 5),) * 2
    yield _custom("MaxPoolingWithArgmax2D", (fed(1, 8, 6, 5),), places, small)
    which = Operand(whole(1, 4, 3, 5, low=0, high=3).value.astype(np.float32) + np.float32(0.1))
    yield _custom("MaxUnpooling2D", (fed(1, 4, 3, 5), which), places, ((1, 8, 6, 5),))
    yield _custom("Resampler", (fed(1, 5, 6, 3), fed(1, 5, 6, 2, low=-1, high=6)), b"", ((1, 5, 6, 3),))
    place = fed(1, 4, 4, low=-1, high=1)
    for name, operands, options, shape in (
        ("Landmarks2TransformMatrix", (fed(1, 7, 3),), _AROUND, (1, 4, 4)),
        ("TransformTensorBilinear", (fed(1, 6, 7, 5), place), _SMALL_CROP, (1, 4, 5, 5)),
        ("TransformLandmarks", (fed(1, 7, 3), place), b"", (1, 7, 3)),
    ):
        yield replace(_custom(name, operands, options, (shape,)), version=2)
    resize = {"align_corners": False, "half_pixel_centers": True}
    yield from (
        Row(op, (fed(1, 5, 6, 7), given([9, 11])), resize)
        for op in (B.RESIZE_BILINEAR, B.RESIZE_NEAREST_NEIGHBOR)
    )


def _custom(
    name: str, operands: tuple[Operand, ...], options: bytes, shapes: tuple[tuple[int, ...], ...]
) -> Row:
    results = (np.float32,) * len(shapes)
    return Row(B.CUSTOM, operands, {}, results, shapes, name=name, custom_options=options)


def _recurrent() -> Iterator[Row]:
    batch, size, cells = 2, 5, 7
    gates = tuple(held(cells, size) for _ in range(4)) + tuple(held(cells, cells) for _ in range(4))
    biases = (None,) * 3 + tuple(held(cells) for _ in range(4)) + (None,) * 2
    states = (state(batch, cells), state(batch, cells))
    clips = {"cell_clip": 0.0, "proj_clip": 0.0}
    yield Row(B.LSTM, (fed(batch, size), *gates, *biases, *states), {**_TANH, **clips})
    sequence = (fed(3, batch, size), *gates, *biases, *states, *(None,) * 4)
    yield Row(B.UNIDIRECTIONAL_SEQUENCE_LSTM, sequence, {**_TANH, **clips, "time_major": True})
    cell = (held(cells, size), held(cells, cells), held(cells), state(batch, cells))
    yield Row(B.RNN, (fed(batch, size), *cell), _TANH)
    yield Row(B.UNIDIRECTIONAL_SEQUENCE_RNN, (fed(3, batch, size), *cell), {**_TANH, "time_major": True})
    memory, rank = 4, 2
    filters = (held(rank * cells, size), held(rank * cells, memory), held(cells))
    remembered = state(batch, rank * cells * memory)
    yield Row(B.SVDF, (fed(batch, size), *filters, remembered), {**_RELU, "rank": rank})
    integers = (
        levels(batch, size, scale=0.02),
        levels(rank * cells, size, scale=0.01, role="held"),
        levels(rank * cells, memory, scale=1 / 32768, dtype=np.int16, role="held"),
        levels(cells, scale=1e-9, dtype=np.int32, role="held"),
        levels(batch, rank * cells * memory, scale=1e-3, dtype=np.int16, role="state"),
    )
    out = Quantization((0.05,), (-3,))
    yield Row(B.SVDF, integers, {**_RELU, "rank": rank}, (np.int8,), quantization=out, version=3)


def _reductions() -> Iterator[Row]:
    for op in _REDUCING:
        yield Row(op, (fed(3, 5, 19), given([2])), {"keep_dims": True})
        yield Row(op, (fed(2, 4, 5, 7), given([1, 2])), {"keep_dims": False})
    yield from (
        Row(op, (flags(5, 19, 2), given([2])), {"keep_dims": False}, (np.bool_,))
        for op in (B.REDUCE_ALL, B.REDUCE_ANY)
    )
    yield Row(B.SOFTMAX, (fed(5, 37),), {"beta": 1.0})
    yield Row(B.LOG_SOFTMAX, (fed(5, 37),))
    yield Row(B.L2_NORMALIZATION, (fed(3, 19),))
    local = {"radius": 2, "alpha": 0.5, "beta": 0.75, "bias": 1.0}
    yield Row(B.LOCAL_RESPONSE_NORMALIZATION, (fed(1, 3, 5, 9),), local)
    yield Row(B.CUMSUM, (fed(3, 19), given(1)), {"exclusive": False, "reverse": False})
    for op, name in ((B.ARG_MAX, "output_type"), (B.ARG_MIN, "output_type")):
        yield Row(op, (fed(5, 19), given(1)), {name: TensorType.INT32}, (np.int32,))
    yield Row(B.TOPK_V2, (fed(5, 19), given(4)), results=(np.float32, np.int32))


def _moving() -> Iterator[Row]:
    image, rows = fed(2, 4, 6, 5), fed(5, 19)
    block = given([[0, 0], [0, 0]])
    yield Row(B.BATCH_TO_SPACE_ND, (fed(4, 2, 3, 5), given([2, 2]), block))
    yield Row(B.SPACE_TO_BATCH_ND, (image, given([2, 2]), block))
    yield Row(B.BROADCAST_TO, (fed(4, 1, 7), given([3, 4, 5, 7])), version=2)
    places = {"broadcast_dimensions": [1, 2]}
    yield Row(B.STABLEHLO_BROADCAST_IN_DIM, (fed(4, 7),), places, shapes=((3, 4, 7),))
    yield Row(B.CONCATENATION, (rows, fed(5, 3), fed(5, 16)), {"axis": 1})
    yield Row(B.DEPTH_TO_SPACE, (fed(1, 3, 4, 12),), {"block_size": 2})
    yield Row(B.SPACE_TO_DEPTH, (image,), {"block_size": 2})
    yield Row(B.DYNAMIC_UPDATE_SLICE, (rows, fed(2, 7), whole(2, low=1, high=3)))
    yield Row(B.EXPAND_DIMS, (rows, given(1)))
    yield Row(B.FILL, (given([3, 7]), Operand(np.full((), 1.5, np.float32))))
    yield Row(B.GATHER, (rows, whole(4, low=0, high=4)), {"axis": 0, "batch_dims": 0})
    yield Row(B.GATHER_ND, (rows, whole(3, 2, low=0, high=4)))
    yield Row(B.MIRROR_PAD, (rows, given([[1, 2], [3, 1]])), {"mode": MirrorPadMode.REFLECT})
    on_off = (given(2.0, np.float32), given(-1.0, np.float32))
    yield Row(B.ONE_HOT, (whole(6, low=0, high=4), given(5), *on_off), {"axis": -1})
    yield Row(B.PACK, (rows, fed(5, 19, high=2.0)), {"axis": 1, "values_count": 2})
    yield Row(B.PAD, (image, given([[0, 0], [1, 2], [2, 1], [0, 3]])))
    yield Row(B.PADV2, (rows, given([[1, 2], [3, 1]]), given(0.5, np.float32)))
    yield Row(B.RESHAPE, (image, given([6, 40])), {"new_shape": [6, 40]})
    yield Row(B.REVERSE_V2, (image, given([2])))
    yield Row(B.SLICE, (rows, given([1, 3]), given([3, 11])))
    yield Row(B.SPLIT, (given(1), fed(5, 18)), {"num_splits": 2}, (np.float32,) * 2)
    yield Row(B.SPLIT_V, (rows, given([7, 12]), given(1)), {"num_splits": 2}, (np.float32,) * 2)
    yield Row(B.SQUEEZE, (fed(1, 5, 1, 7),), {"squeeze_dims": [0, 2]})
    yield Row(B.STRIDED_SLICE, (rows, given([0, 1]), given([5, 18]), given([2, 3])))
    yield Row(B.TILE, (rows, given([2, 3])))
    yield Row(B.TRANSPOSE, (image, given([0, 3, 1, 2])))
    yield Row(B.UNPACK, (fed(3, 5, 7),), {"num": 3, "axis": 0}, (np.float32,) * 3)
