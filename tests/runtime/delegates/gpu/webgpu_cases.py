"""Models that the backend of WebGPU runs whole: products, chains, softmax, and the copies between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from runtime.delegates.gpu.graph.rounding import rounded
from runtime.delegates.gpu.graph.weights import WeightType
from runtime.model.graph import Tensor
from runtime.model.reader import read_model
from runtime.model.schema import ActivationFunctionType, TensorType
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.writer import write_model
from tests.runtime.delegates.gpu.models import ModelBuilder
from tests.runtime.models import Arg, Out, const
from tests.runtime.ops.cases import Case, case, constant, random
from tests.runtime.ops.every_type import fed
from tests.runtime.ops.matmul.test_conv import RELU6, conv
from tests.runtime.ops.operands import flags, whole

SPECIAL = np.float32([[np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5, 1.5, 90.0, -90.0, 1e-6, 7.25, -3.5]])
"""Numbers at which formulas differ from each other."""


PRODUCTS = {Op.CONV_2D, Op.CONV_3D, Op.DEPTHWISE_CONV_2D, Op.FULLY_CONNECTED, Op.TRANSPOSE_CONV}
"""Operators whose second input, where it is constant, is their weights."""


INT32 = {"output_type": 2}
"""The type of the indices of an extremum."""


def values(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def with_rounded_weights(content: bytes, kind: WeightType) -> bytes:
    """Return the model with the weights of products rounded to a type, in float32; F32 changes nothing."""
    if kind is WeightType.F32:
        return content
    model = read_model(content)
    (graph,) = model.subgraphs
    weights = {one.inputs[1] for one in graph.operators if one.opcode in PRODUCTS}
    tensors = tuple(_rounded(one, kind) if one.index in weights else one for one in graph.tensors)
    return write_model(replace(model, subgraphs=(replace(graph, tensors=tensors),)))


def _rounded(tensor: Tensor, kind: WeightType) -> Tensor:
    if tensor.data is None or tensor.type is not TensorType.FLOAT32:
        return tensor
    found = rounded(np.frombuffer(tensor.data, np.float32), kind)
    return tensor if found is None else replace(tensor, data=memoryview(found.widened().tobytes()))


def chain(name: str, rows: int, depth: int, columns: int) -> Case:
    """Build a product with a bias and an activation, a sum, a factor for each channel, a curve, and a
    softmax.
    """
    build = ModelBuilder()
    x, shape = build.input(rows, depth), (rows, columns)
    weights, bias = build.constant(values(columns, depth, seed=1)), build.constant(values(columns, seed=2))
    relu = {"fused_activation_function": ActivationFunctionType.RELU}
    product = build.op(Op.FULLY_CONNECTED, [x, weights, bias], shape, **relu)
    scaled = build.op(Op.MUL, [product, build.constant(values(columns, seed=3))], shape)
    shifted = build.op(Op.ADD, [scaled, build.constant(values(rows, 1, seed=4))], shape)
    bent = build.op(Op.TANH, [shifted], shape)
    alone = build.op(Op.SUB, [bent, product], shape)
    rows_of_one = build.op(Op.SOFTMAX, [alone], shape, beta=0.5)
    return Case(name, write_model(build.build(rows_of_one, alone)), (values(rows, depth, seed=5),))


def unary(name: str, opcode: Op, low: float = -3.0, special: bool = True, **options: object) -> Case:
    operand = (
        Arg(np.concatenate([SPECIAL, random(6, 12, low=low).value])) if special else random(7, 12, low=low)
    )
    return case(name, opcode, [operand], options=options, resolver="BUILTIN")


PRODUCT = case(
    "product", Op.FULLY_CONNECTED, [random(5, 32), *(constant(random(*s)) for s in ((48, 32), (48,)))]
)
"""A product whose weights take 6 KiB."""

FEW = (chain("chain_aligned", 5, 32, 48),)
"""What the default suite runs: each kernel is compiled for each adapter."""

MANY = (
    chain("chain_one_row", 1, 20, 12),
    chain("chain_odd", 19, 255, 7),
    chain("chain_split", 3, 1500, 33),
    conv("pointwise_relu6", (1, 5, 4, 16), (7, 1, 1, 16), activation=RELU6),
    conv("pointwise_batch", (2, 9, 7, 5), (70, 1, 1, 5)),
    conv("window_3x3", (1, 9, 11, 5), (7, 3, 3, 5)),
    conv("window_stride2", (2, 8, 7, 3), (20, 3, 3, 3), stride=(2, 2)),
    case(
        "product_without_bias", Op.FULLY_CONNECTED, [random(17, 64), constant(random(65, 64, seed=1)), None]
    ),
    case(
        "product_of_images", Op.FULLY_CONNECTED, [random(2, 3, 3, 5), constant(random(4, 45, seed=1)), None]
    ),
    case("softmax_wide", Op.SOFTMAX, [random(3, 1001, low=-20, high=20)], options={"beta": 1.0}),
    case("softmax_rank4", Op.SOFTMAX, [random(2, 3, 5, 17, low=-20, high=20)], options={"beta": 2.0}),
    case("softmax_of_one", Op.SOFTMAX, [random(4, 1)], options={"beta": 1.0}),
    case("log_softmax", Op.LOG_SOFTMAX, [random(3, 17, low=-20, high=20)]),
    case("add_general", Op.ADD, [random(2, 3, 5, 7), random(3, 1, 7, seed=1)]),
    case("maximum", Op.MAXIMUM, [Arg(SPECIAL), Arg(SPECIAL[:, ::-1].copy())]),
    case("floor_mod", Op.FLOOR_MOD, [random(3, 17, low=-9, high=9), random(3, 17, low=0.5, high=4, seed=1)]),
    case("pow", Op.POW, [random(3, 17, low=0.1, high=4), random(3, 17, seed=1)]),
    case("pow_of_three", Op.POW, [random(3, 17), constant(Arg(np.float32([3.0])))]),
    case("prelu", Op.PRELU, [random(2, 3, 4, 5), constant(random(5, seed=1))]),
    unary("logistic", Op.LOGISTIC),
    unary("tanh", Op.TANH),
    unary("gelu", Op.GELU, special=False, approximate=False),
    unary("elu", Op.ELU),
    unary("hard_swish", Op.HARD_SWISH),
    unary("leaky_relu", Op.LEAKY_RELU, alpha=0.25),
    unary("round", Op.ROUND),
    unary("sign", Op.SIGN),
    unary("rsqrt", Op.RSQRT, low=0.1, special=False),
    unary("sin", Op.SIN, special=False),
    case("exp", Op.EXP, [Arg(SPECIAL)]),
    unary("log", Op.LOG, low=0.1, special=False),
    case("cast_of_bool", Op.CAST, [flags(3, 17)], [Out(np.int32)]),
    case("cast_to_bool", Op.CAST, [whole(3, 17)], [Out(np.bool_)]),
    case("cast_of_float", Op.CAST, [Arg(SPECIAL * 1e9)], [Out(np.int32)]),
    case("cast_to_float", Op.CAST, [whole(3, 17)]),
    case("select", Op.SELECT_V2, [flags(3, 1), random(17), random(2, 1, 17, seed=1)]),
    case("select_of_bool", Op.SELECT_V2, [flags(3, 17), flags(17), flags(3, 1)], [Out(np.bool_)]),
    case("greater_equal", Op.GREATER_EQUAL, [Arg(SPECIAL), Arg(SPECIAL[:, ::-1].copy())], [Out(np.bool_)]),
    case("logical_and", Op.LOGICAL_AND, [flags(3, 5, 7), flags(7)], [Out(np.bool_)]),
    case("sum_of_integers", Op.ADD, [whole(3, 17), whole(17)], [Out(np.int32)]),
    case("gather_rows", Op.GATHER, [random(7, 33), fed([6, 0, 3])]),
    case("gather_nd_of_bool", Op.GATHER_ND, [flags(3, 5), fed([[2, 3], [0, 0]])], [Out(np.bool_)]),
    case("gather_nd_of_int32", Op.GATHER_ND, [whole(3, 5, 7), fed([[2, 3], [0, 0]])], [Out(np.int32)]),
    case("running_sum", Op.CUMSUM, [random(3, 18), const(1, np.int32)], options={"reverse": True}),
    case(
        "running_sum_of_integers",
        Op.CUMSUM,
        [whole(3, 5, 7), const(1, np.int32)],
        [Out(np.int32)],
        {"exclusive": True},
    ),
    case("greatest_of_rows", Op.ARG_MAX, [random(3, 300), const(1, np.int32)], [Out(np.int32)], INT32),
    case("least_of_columns", Op.ARG_MIN, [whole(5, 3, 21), const(0, np.int32)], [Out(np.int32)], INT32),
    case("greatest_few", Op.TOPK_V2, [random(3, 33), const(5, np.int32)], [Out(), Out(np.int32)]),
    case("embedding", Op.EMBEDDING_LOOKUP, [fed([3, 0, 1, 1]), constant(random(5, 18))]),
)
"""What `make test-exhaustive` runs besides."""
