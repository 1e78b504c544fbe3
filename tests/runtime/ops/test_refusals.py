"""Operators refuse shapes, types and values, in words that tell a user what was wrong.

A row is an operator whose operands do not fit together; each is refused when the model is planned, or by the
run where only values show it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import FarmRuntimeError, InvocationError, ShapeError
from runtime.model.graph import Quantization
from runtime.model.schema import ActivationFunctionType as Activation
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import FullyConnectedOptionsWeightsFormat as Format
from runtime.model.schema import MirrorPadMode, Padding, TensorType
from tests.runtime.models import Arg, Out, const, one_operator, per_tensor
from tests.runtime.ops.cases import levels

F32, I8, I16, I32, I64 = np.float32, np.int8, np.int16, np.int32, np.int64
EIGHTH = per_tensor(1 / 8)
SAME = {"padding": Padding.SAME}
STEPS = {"stride_h": 1, "stride_w": 1}
STEPS_3D = STEPS | {"stride_d": 1}
OF_INPUTS = Quantization((0.1, 0.2, 0.3), (0, 0, 0), 3)


def x(*shape: int, dtype: Any = F32, q: Quantization | None = None, value: float = 0) -> Arg:
    """Return an operand that is fed; every element has one value."""
    return Arg(np.full(shape, value, dtype), q)


def given(values: Any, dtype: Any = I32) -> Arg:
    """Return an operand that is fed, with these values."""
    return Arg(np.asarray(values, dtype))


def kept(*shape: int, dtype: Any = F32, q: Quantization | None = None) -> Arg:
    """Return a constant of ones."""
    return Arg(np.ones(shape, dtype), q, constant=True)


@dataclass(frozen=True)
class Refusal:
    text: str
    opcode: Op
    args: Sequence[Arg | None]
    options: Mapping[str, Any] = field(default_factory=dict)
    outs: Sequence[Out] = (Out(),)
    version: int = 1

    def __str__(self) -> str:
        return f"{self.opcode.name}-{self.text}"


R = Refusal
ELEMENTWISE = [
    R("input 1 of shape [3] beside [2]", Op.ADD_N, [x(2), x(3)]),
    R("differ in scale", Op.MAXIMUM, [x(2, dtype=I8, q=EIGHTH), x(2, dtype=I8, q=per_tensor(1))],
      outs=[Out(I8, EIGHTH)]),
    R("DIV: division by zero", Op.DIV, [x(2, dtype=I32), x(2, dtype=I32)], outs=[Out(I32)]),
    R("DIV: division by zero", Op.DIV, [x(2, dtype=np.uint8, q=EIGHTH), x(2, dtype=np.uint8, q=EIGHTH)],
      outs=[Out(np.uint8, EIGHTH)]),
    R("FLOOR_DIV: division by zero", Op.FLOOR_DIV, [x(2, dtype=I32), x(2, dtype=I32)], outs=[Out(I32)]),
    R("an integer to a negative power", Op.POW, [x(2, dtype=I32), x(2, dtype=I32, value=-1)],
      outs=[Out(I32)]),
    R("17 bits", Op.FAKE_QUANT, [x(2)], {"min": -1.0, "max": 1.0, "num_bits": 17}),
    R("an empty range", Op.FAKE_QUANT, [x(2)], {"min": 1.0, "max": 1.0, "num_bits": 8}),
    R("output of type INT32", Op.QUANTIZE, [x(2)], outs=[Out(I32)]),
    R("has no scales", Op.DEQUANTIZE, [x(2, dtype=I8)]),
    R("values of shapes [2] and [3]", Op.SELECT, [x(2, dtype=np.bool_), x(2), x(3)]),
    R("a condition of shape [3]", Op.SELECT, [x(3, dtype=np.bool_), x(2), x(2)]),
    R("other than 1/32768", Op.LOGISTIC, [x(2, dtype=I16, q=EIGHTH)], outs=[Out(I16, EIGHTH)]),
    R("a root of a negative value", Op.RSQRT, [x(2, dtype=I8, q=EIGHTH, value=-1)], outs=[Out(I8, EIGHTH)]),
    R("SIGN_BIT", Op.ADD, [x(2), x(2)], {"fused_activation_function": Activation.SIGN_BIT}),
    R("mixed types", Op.ADD, [x(2), x(2, dtype=I32)]),
    R("input 1 is missing", Op.ADD, [x(2)]),
]  # fmt: skip
FEATURES = [
    R("boundaries are not sorted", Op.BUCKETIZE, [x(2)], {"boundaries": (2.0, 1.0)}, [Out(I32)]),
    R("a row outside the 3 of the table", Op.EMBEDDING_LOOKUP, [given([3]), kept(3, 2)]),
    R("ids of [1, 1]", Op.EMBEDDING_LOOKUP, [given([[0]]), kept(3, 2)]),
    R("rows of FLOAT32 as INT32", Op.EMBEDDING_LOOKUP, [given([0]), kept(3, 2)], outs=[Out(I32)]),
    R("a table without scales", Op.EMBEDDING_LOOKUP, [given([0]), kept(3, 2, dtype=I8)]),
    R("[2] keys among [3]", Op.HASHTABLE_LOOKUP, [given([1, 2]), const([1, 2, 3], I32), kept(2, 2)],
      outs=[Out(), Out(np.uint8)]),
    R("hash functions", Op.LSH_PROJECTION, [kept(2), kept(4, 2)], {"type": 1}, [Out(I32)]),
    R("fft lengths [3, 4]", Op.RFFT2D, [x(2, 4, 4), const([3, 4], I32)], outs=[Out(np.complex64)]),
    R("a spectrum of type FLOAT32", Op.RFFT2D, [x(2, 4, 4), const([4, 4], I32)]),
    R("FLOAT32", Op.REAL, [x(2)]),
]  # fmt: skip
IMAGES = [
    R("size [3] is not", Op.RESIZE_BILINEAR, [x(1, 2, 2, 1), const([3], I32)]),
    R("exclude each other", Op.RESIZE_BILINEAR, [x(1, 2, 2, 1), const([3, 3], I32)],
      {"align_corners": True, "half_pixel_centers": True}),
    R("a block of 0", Op.SPACE_TO_DEPTH, [x(1, 2, 2, 1)], {"block_size": 0}),
    R("3 channels do not fill blocks of 2", Op.DEPTH_TO_SPACE, [x(1, 2, 2, 3)], {"block_size": 2}),
    R("blocks [2] and edges", Op.SPACE_TO_BATCH_ND, [x(1, 2, 2, 1), const([2], I32), kept(2, 2, dtype=I32)]),
    R("boxes [3, 3]", Op.NON_MAX_SUPPRESSION_V4,
      [x(3, 3), x(3), const(2, I32), const(0.5), const(0.5)], outs=[Out(I32), Out(I32)]),
    R("does not fit an input of 2", Op.MAX_POOL_2D, [x(1, 2, 2, 1)],
      {"padding": Padding.VALID, "filter_height": 3, "filter_width": 3, "stride_h": 1, "stride_w": 1}),
    R("has no pixels", Op.AVERAGE_POOL_2D, [x(1, 0, 2, 1)],
      {**SAME, "filter_height": 1, "filter_width": 1, "stride_h": 1, "stride_w": 1}),
]  # fmt: skip
MATMUL = [
    R("rank 2 at least", Op.BATCH_MATMUL, [x(3), x(3, 2)]),
    R("do not chain", Op.BATCH_MATMUL, [x(2, 3), x(4, 2)]),
    R("bias of shape [3] for 2", Op.CONV_2D, [x(1, 4, 4, 1), kept(2, 1, 1, 1), kept(3)], SAME | STEPS),
    R("do not divide into 2 groups", Op.CONV_2D, [x(1, 4, 4, 2), kept(3, 1, 1, 1)], SAME | STEPS),
    R("the filter has no scales", Op.CONV_2D, [x(1, 4, 4, 1), kept(2, 1, 1, 1, dtype=I8)], SAME | STEPS),
    R("several zero points", Op.CONV_2D,
      [x(1, 4, 4, 1), kept(2, 1, 1, 1, dtype=I8, q=Quantization((0.1, 0.2), (0, 1), 0))], SAME | STEPS),
    R("one for each output channel", Op.CONV_2D, [x(1, 4, 4, 3), kept(2, 1, 1, 3, dtype=I8, q=OF_INPUTS)],
      SAME | STEPS),
    R("per-channel scales", Op.CONV_2D,
      [x(1, 4, 4, 3, dtype=I8, q=EIGHTH), kept(2, 1, 1, 3, dtype=I8, q=OF_INPUTS)], SAME | STEPS,
      [Out(I8, EIGHTH)]),
    R("has no cells", Op.CONV_3D, [x(1, 0, 2, 2, 1), kept(1, 1, 1, 1, 2)], SAME | STEPS_3D),
    R("bias of shape [3] for 2", Op.CONV_3D, [x(1, 2, 2, 2, 1), kept(1, 1, 1, 1, 2), kept(3)],
      SAME | STEPS_3D),
    R("3 input channels for a filter of 1", Op.CONV_3D, [x(1, 2, 2, 2, 3), kept(1, 1, 1, 1, 2)],
      SAME | STEPS_3D),
    R("3 input channels for a filter of 1", Op.CONV_3D_TRANSPOSE,
      [const([1, 2, 2, 2, 2], I32), kept(1, 1, 1, 2, 1), x(1, 2, 2, 2, 3)], SAME | STEPS_3D),
    R("must be positive", Op.CONV_3D_TRANSPOSE,
      [const([1, 2, 2, 2, 2], I32), kept(1, 1, 1, 2, 1), x(1, 2, 2, 2, 1)], SAME | STEPS | {"stride_d": 0}),
    R("input of 6 elements for weights of 4", Op.FULLY_CONNECTED, [x(2, 3), kept(2, 4)]),
    R("for weights of 4 columns", Op.FULLY_CONNECTED, [x(2, 3), kept(2, 4)], {"keep_num_dims": True}),
    R("shuffled weights", Op.FULLY_CONNECTED, [x(2, 4), kept(2, 4)],
      {"weights_format": Format.SHUFFLED4x16INT8}),
    R("3 input channels for a filter of 1", Op.TRANSPOSE_CONV,
      [const([1, 2, 2, 1], I32), kept(1, 1, 1, 1), x(1, 2, 2, 3)], SAME | STEPS),
    R("strides must be positive", Op.TRANSPOSE_CONV,
      [const([1, 2, 2, 1], I32), kept(1, 1, 1, 1), x(1, 2, 2, 1)], SAME | {"stride_h": 0, "stride_w": 1}),
]  # fmt: skip
MOVEMENT = [
    R("shapes [2], [3] do not broadcast", Op.BROADCAST_TO, [x(2), const([3], I32)]),
    R("a fused activation", Op.CONCATENATION, [x(2), x(2)],
      {"axis": 0, "fused_activation_function": Activation.RELU}),
    R("do not stack", Op.PACK, [x(2), x(3)], {"values_count": 2}),
    R("filled with a value of shape", Op.FILL, [const([2], I32), x(2)]),
    R("depth -1 along axis", Op.ONE_HOT, [given([1]), const(-1, I32), const(1.0), const(0.0)], {"axis": -1}),
    R("a scalar has no diagonal", Op.MATRIX_DIAG, [x()]),
    R("3 batch dimensions", Op.GATHER, [x(2, 2), given([0])], {"batch_dims": 3}),
    R("index vectors of", Op.GATHER_ND, [x(2), given([[0, 1]])]),
    R("dilations [1, 1] for shape [2]", Op.DILATE, [x(2), const([1, 1], I32), const(0.0)]),
    R("paddings", Op.STABLEHLO_PAD, [x(2), x()],
      {"edge_padding_low": (1, 1), "edge_padding_high": (0, 0), "interior_padding": (0, 0)}),
    R("are not all 1", Op.SQUEEZE, [x(2, 1)], {"squeeze_dims": (0,)}),
    R("2 axes where one is needed", Op.EXPAND_DIMS, [x(2), const([0, 1], I32)]),
    R("BITCAST", Op.BITCAST, [x(3)], outs=[Out(I64)]),
    R("is not a shape", Op.SCATTER_ND, [given([[0]]), x(1), const([-2], I32)]),
    R("indices [1, 2] and updates [1]", Op.SCATTER_ND, [given([[0, 1]]), x(1), const([2], I32)]),
    R("axes [0, 0] repeat", Op.REVERSE_V2, [x(2), const([0, 0], I32)]),
    R("lengths of [3]", Op.REVERSE_SEQUENCE, [x(2, 4), given([1, 1, 1])], {"seq_dim": 1}),
    R("a sequence of 5 in an axis of 4", Op.REVERSE_SEQUENCE, [x(2, 4), given([5, 1])], {"seq_dim": 1}),
    R("are not the shapes of two lists", Op.BROADCAST_ARGS,
      [kept(1, 1, dtype=I32), kept(1, dtype=I32)], outs=[Out(I32)]),
    R("begin [1], size [2] leave shape [2]", Op.SLICE, [x(2), const([1], I32), const([2], I32)]),
    R("differ in length", Op.STRIDED_SLICE,
      [x(2), const([0], I32), const([1, 1], I32), const([1], I32)]),
    R("2 entries index shape [2]", Op.STRIDED_SLICE,
      [x(2), const([0, 0], I32), const([1, 1], I32), const([1, 1], I32)]),
    R("index 5 is outside a dimension of 2", Op.STRIDED_SLICE,
      [x(2), const([5], I32), const([6], I32), const([1], I32)], {"shrink_axis_mask": 1}),
    R("an update of [3]", Op.DYNAMIC_UPDATE_SLICE, [x(2), x(3), given([0])]),
    R("2 axes where one is needed", Op.SPLIT, [const([0, 1], I32), x(2)], {"num_splits": 1}),
    R("does not split into 2 parts", Op.SPLIT, [const([0], I32), x(3)], {"num_splits": 2}, [Out(), Out()]),
    R("more than one unknown part", Op.SPLIT_V, [x(3), const([-1, -1], I32), const(0, I32)],
      {"num_splits": 2}, [Out(), Out()]),
    R("do not split 3 into 2 parts", Op.SPLIT_V, [x(3), const([1, 1], I32), const(0, I32)],
      {"num_splits": 2}, [Out(), Out()]),
    R("does not unpack into 2 outputs", Op.UNPACK, [x(3)], {"num": 2, "axis": 0}, [Out(), Out()]),
    R("a list is needed", Op.UNIQUE, [x(2, 2)], outs=[Out(), Out(I32)]),
    R("MIRROR_PAD", Op.MIRROR_PAD, [x(2), const([[2, 0]], I32)], {"mode": MirrorPadMode.REFLECT}),
]  # fmt: skip
NUMBERS = [
    R("is not a shape", Op.RANDOM_UNIFORM, [const([-1], I32)], {"seed": 1}),
    R("numbers of type INT32", Op.RANDOM_UNIFORM, [const([2], I32)], {"seed": 1}, [Out(I32)]),
    R("samples from logits of shape [3]", Op.MULTINOMIAL, [x(3), const(1, I32)], {"seed": 1}, [Out(I32)]),
    R("samples of type FLOAT32", Op.MULTINOMIAL, [x(1, 3), const(1, I32)], {"seed": 1}),
    R("a state of [5]", Op.STABLEHLO_RNG_BIT_GENERATOR, [x(5, dtype=np.uint64)],
      outs=[Out(np.uint64, shape=(5,)), Out(I32, shape=(4,))]),
]  # fmt: skip
REDUCTION = [
    R("2 axes where one", Op.ARG_MAX, [x(2), const([0, 1], I32)], outs=[Out(I64)]),
    R("the axis is empty", Op.ARG_MAX, [x(0), const(0, I32)], outs=[Out(I64)]),
    R("axis 7 is outside rank 2", Op.CUMSUM, [x(2, 3), const(7, I32)]),
    R("axis -3 is outside rank 2", Op.CUMSUM, [x(2, 3), const(-3, I32)]),
    R("axis 2 is outside rank 2", Op.REVERSE_V2, [x(2, 3), const([0, 2], I32)]),
    R("no axis to normalise", Op.LOG_SOFTMAX, [x()]),
    R("no axis to normalise", Op.SOFTMAX, [x()], {"beta": 1.0}),
    R("scale 1/16", Op.LOG_SOFTMAX, [x(2, dtype=I8, q=EIGHTH)], outs=[Out(I8, EIGHTH)]),
    R("scale 1/128", Op.L2_NORMALIZATION, [x(1, 2, dtype=I8, q=EIGHTH)], outs=[Out(I8, EIGHTH)]),
    R("a radius of -1", Op.LOCAL_RESPONSE_NORMALIZATION, [x(1, 2, 2, 1)], {"radius": -1}),
    R("other than with scale", Op.SOFTMAX, [x(2, dtype=I8, q=EIGHTH)], {"beta": 1.0}, [Out(I8, EIGHTH)]),
    R("more than 4096 classes", Op.SOFTMAX, [x(1, 5000, dtype=I8, q=EIGHTH)], {"beta": 1.0},
      [Out(I8, per_tensor(1 / 256, -128))]),
    R("int16 output scale", Op.SOFTMAX, [x(2, dtype=I16, q=EIGHTH)], {"beta": 1.0}, [Out(I16, EIGHTH)]),
    R("mean of an empty tensor", Op.MEAN, [x(0, dtype=I8, q=EIGHTH), const([0], I32)],
      outs=[Out(I8, EIGHTH)]),
    R("are not sorted from 0", Op.SEGMENT_SUM, [x(2, 2), given([1, 0])]),
    R("ids of [3]", Op.UNSORTED_SEGMENT_SUM, [x(2, 2), given([0, 0, 0]), const(2, I32)]),
    R("not named", Op.REDUCE_WINDOW, [x(2), x(), const([1], I64), const([1], I64), const([1], I64)]),
]  # fmt: skip


REFUSALS = [*ELEMENTWISE, *FEATURES, *IMAGES, *MATMUL, *MOVEMENT, *NUMBERS, *REDUCTION]


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_operands_that_do_not_fit_are_refused(refusal):
    model = one_operator(refusal.opcode, refusal.args, refusal.outs, refusal.options, refusal.version)
    with pytest.raises(FarmRuntimeError, match=re.escape(refusal.text)) as raised:
        run(model, [a.value for a in refusal.args if a is not None and not a.constant])
    assert refusal.opcode.name in str(raised.value)


def test_operands_that_do_not_fit_are_refused_where_the_delegate_may_take_the_operator_too(gpu):
    for refusal in REFUSALS:
        # 8-bit operators are simulated with real numbers there, and fit where integer kernels do not.
        if any(arg is not None and arg.quantization is not None for arg in refusal.args):
            continue
        model = one_operator(refusal.opcode, refusal.args, refusal.outs, refusal.options, refusal.version)
        with pytest.raises(FarmRuntimeError, match=re.escape(refusal.text)):
            run(model, [a.value for a in refusal.args if a is not None and not a.constant], gpu.delegate)


def run(model: bytes, values: Sequence[np.ndarray], *delegates: Any) -> None:
    interpreter = Interpreter(model_content=model, experimental_delegates=delegates)
    interpreter.allocate_tensors()
    for details, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()


def test_a_type_without_a_kernel_is_named():
    model = one_operator(Op.RELU, [Arg(np.zeros(2, I32))], [Out(I32, type=TensorType.INT32)])
    with pytest.raises(FarmRuntimeError, match=r"RELU.*INT32"):
        run(model, [np.zeros(2, I32)])


REFUSED = [
    ("zero_step", Op.RANGE, [const(v, np.int32) for v in (0, 3, 0)], {}, "in steps of 0"),
    ("wrong_way", Op.RANGE, [const(v, np.int32) for v in (0, 3, -1)], {}, "do not lead"),
    ("broadcast", Op.BROADCAST_TO, [levels(3), const([2, 2], np.int32)], {}, "do not broadcast"),
    ("multiples", Op.TILE, [levels(3), const([1, 2], np.int32)], {}, "multiples"),
    ("mirror", Op.MIRROR_PAD, [levels(3), const([[3, 0]], np.int32)], {"mode": 0}, "mirror more"),
    ("blocks", Op.SPACE_TO_DEPTH, [levels(1, 3, 4, 1)], {"block_size": 2}, "no blocks of 2"),
    ("bomb", Op.FILL, [const([1 << 20] * 4, np.int64), const(1, np.int8)], {}, "too large"),
    ("diagonal", Op.MATRIX_SET_DIAG, [levels(2, 3), levels(3)], {}, "a diagonal of"),
    ("k", Op.TOPK_V2, [levels(3), const(4, np.int32)], {}, "the first"),
    ("bits", Op.BITCAST, [levels(3)], {}, "does not fill"),
]


@pytest.mark.parametrize(
    ("opcode", "args", "options", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_shapes_that_cannot_be_are_refused_before_the_run(opcode, args, options, text):
    outs = [Out(np.float32 if opcode is Op.BITCAST else args[-1].value.dtype)] * (1 + (opcode is Op.TOPK_V2))
    model = one_operator(opcode, args, outs, options)
    with pytest.raises(ShapeError, match=text):
        Interpreter(model_content=model).allocate_tensors()


def indices(*values: int) -> Arg:
    return Arg(np.array(values, np.int32))


LATE = [
    ("gather_nd", Op.GATHER_ND, [levels(3, 2), Arg(np.array([[3]], np.int32))], "an index is outside"),
    (
        "scatter_nd",
        Op.SCATTER_ND,
        [Arg(np.array([[-1]], np.int32)), levels(1), const([4], np.int32)],
        "outside",
    ),
    ("slice", Op.SLICE, [levels(4), indices(3), const([2], np.int32)], "leave shape"),
    ("args", Op.BROADCAST_ARGS, [indices(2), indices(3)], "do not broadcast"),
    ("segment", Op.UNSORTED_SEGMENT_SUM, [levels(2), indices(0, 2), const(2, np.int32)], "segment 2"),
]


@pytest.mark.parametrize(("opcode", "args", "text"), [r[1:] for r in LATE], ids=[r[0] for r in LATE])
def test_a_wrong_value_at_run_time_is_an_error(opcode, args, text):
    dtype = args[0].value.dtype if opcode is not Op.SCATTER_ND else np.int8
    interpreter = Interpreter(model_content=one_operator(opcode, args, [Out(dtype)]))
    interpreter.allocate_tensors()
    fed = [a for a in args if not a.constant]
    for details, arg in zip(interpreter.get_input_details(), fed, strict=True):
        interpreter.set_tensor(details["index"], arg.value)
    with pytest.raises(InvocationError, match=text):
        interpreter.invoke()
