"""Random numbers, spectra, suppression, tables and words against LiteRT's kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.interpreter import Interpreter
from runtime.model.graph import BlockQuantization, Quantization
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import CombinerType, LSHProjectionType, RngAlgorithm, TensorType
from tests.oracle import run_litert
from tests.runtime.models import Arg, Builder, Out, const, one_operator, per_channel, per_tensor
from tests.runtime.ops.cases import CPU, Case, case, check, random, run_ours


def fed(values, dtype=np.int32) -> Arg:
    return Arg(np.asarray(values, dtype))


def draws(name, opcode, shape, seeds=(7, 11)) -> Case:
    options = {"seed": seeds[0], "seed2": seeds[1]}
    return case(name, opcode, [const(shape, np.int32)], [Out()], options)


def bits(algorithm, state, dtype, shape) -> Case:
    outs = [Out(np.uint64, shape=np.shape(state)), Out(dtype, shape=shape)]
    name = f"{algorithm.name}_{len(state)}_{np.dtype(dtype).name}"
    return case(name, Op.STABLEHLO_RNG_BIT_GENERATOR, [fed(state, np.uint64)], outs, {"algorithm": algorithm})


SPREAD = np.random.default_rng(5).normal(0, 2, (3, 9)).astype(np.float32)
SPREAD[1, 4] = -np.inf
STATE = [0x1234_5678_9ABC_DEF0, 0xFFFF_FFFF_FFFF_FFFE, 0x0FED_CBA9_8765_4321]

RANDOM = [
    draws("uniform", Op.RANDOM_UNIFORM, [3, 7]),
    draws("uniform_long_seeds", Op.RANDOM_UNIFORM, [1000], (-3, 2**40 + 1)),
    draws("normal", Op.RANDOM_STANDARD_NORMAL, [5, 8]),
    draws("normal_rest", Op.RANDOM_STANDARD_NORMAL, [101], (0, 1)),
    case(
        "multinomial",
        Op.MULTINOMIAL,
        [Arg(SPREAD), const(37, np.int32)],
        [Out(np.int64)],
        {"seed": 3, "seed2": 4},
    ),
    case(
        "multinomial_computed",
        Op.MULTINOMIAL,
        [Arg(SPREAD), fed(6)],
        [Out(np.int32)],
        {"seed": 1, "seed2": 0},
    ),
]


@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_seeded_numbers_are_those_of_litert(case):
    first = run_litert(case.model, case.inputs)
    ours = run_once(case)
    np.testing.assert_allclose(ours, first[0], rtol=3e-7, atol=1e-7)


def run_once(case: Case) -> np.ndarray:
    interpreter = Interpreter(model_content=case.model)
    interpreter.allocate_tensors()
    for details, value in zip(interpreter.get_input_details(), case.inputs, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_the_second_run_goes_on_in_the_stream(case):
    """`run_ours` runs twice, as the script here does with LiteRT."""
    from tests.oracle import call_in_litert

    theirs = call_in_litert("tests.runtime.ops.test_second_tier:second_run", case.model, list(case.inputs))
    np.testing.assert_allclose(run_ours(case, CPU)[0], theirs, rtol=3e-7, atol=1e-7)


def second_run(litert, model, inputs):
    interpreter = litert.Interpreter(
        model_content=model, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    for details, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])


def test_without_seeds_every_interpreter_draws_its_own_numbers():
    case = draws("uniform", Op.RANDOM_UNIFORM, [64], (0, 0))
    assert not np.array_equal(run_once(case), run_once(case))


SPECTRA = [
    case("rfft2d", Op.RFFT2D, [random(2, 4, 8), const([4, 8], np.int32)], [Out(np.complex64)]),
    case("rfft2d_padded", Op.RFFT2D, [random(3, 5), const([8, 4], np.int32)], [Out(np.complex64)]),
    case("rfft2d_one", Op.RFFT2D, [random(2, 3, 4), const([1, 2], np.int32)], [Out(np.complex64)]),
]
PARTS = [
    case(
        f"{opcode.name}_{dtype.__name__}",
        opcode,
        [Arg((SPREAD[2] + 1j * SPREAD[0]).astype(dtype))],
        [Out(part)],
    )
    for opcode in (Op.REAL, Op.IMAG, Op.COMPLEX_ABS)
    for dtype, part in ((np.complex64, np.float32), (np.complex128, np.float64))
]


@pytest.mark.parametrize("case", SPECTRA, ids=str)
def test_a_spectrum_is_that_of_litert(case):
    (theirs,), (ours,) = run_litert(case.model, case.inputs), run_ours(case, CPU)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-5)


BITS = [
    bits(RngAlgorithm.PHILOX, STATE[:2], np.uint32, (3, 5)),
    bits(RngAlgorithm.PHILOX, STATE, np.int64, (7,)),
    bits(RngAlgorithm.DEFAULT, STATE, np.uint64, (2, 2)),
    bits(RngAlgorithm.THREEFRY, STATE[:2], np.int32, (9,)),
    bits(RngAlgorithm.THREEFRY, STATE[:2], np.uint64, (4,)),
]


def boxes(count, seed, decimals=None) -> tuple[Arg, Arg]:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 1, (count, 2))
    sizes = rng.uniform(-0.1, 0.5, (count, 2))
    scores = rng.uniform(0, 1, count)
    scores = scores if decimals is None else scores.round(decimals)
    return Arg(np.hstack([corners, corners + sizes]).astype(np.float32)), Arg(scores.astype(np.float32))


def suppression(name, count, most, overlap, score, sigma=None, decimals=None, seed=0) -> Case:
    thresholds = [const(v) for v in (overlap, score) + (() if sigma is None else (sigma,))]
    outs = [Out(np.int32), *([] if sigma is None else [Out()]), Out(np.int32)]
    opcode = Op.NON_MAX_SUPPRESSION_V4 if sigma is None else Op.NON_MAX_SUPPRESSION_V5
    return case(name, opcode, [*boxes(count, seed, decimals), const(most, np.int32), *thresholds], outs)


SUPPRESSIONS = [
    suppression("few", 20, 5, 0.5, 0.1),
    suppression("padded", 20, 40, 0.2, 0.4),
    suppression("none", 10, 4, 0.5, 2.0),
    suppression("above_one", 10, 12, 1.5, 0.2),
    suppression("equal_scores", 60, 60, 0.3, 0.0, decimals=1, seed=4),
    suppression("soft", 40, 20, 1.0, 0.05, sigma=0.5, seed=2),
    suppression("soft_and_hard", 40, 40, 0.6, 0.1, sigma=0.2, seed=3),
    suppression("soft_off", 30, 10, 0.5, 0.1, sigma=0.0, decimals=1, seed=5),
]

TABLE = np.random.default_rng(1).integers(-128, 127, (6, 8)).astype(np.int8)
NARROW = (TABLE >> 4).astype(np.int8)
ROW_SCALES = per_channel([0.1 * (i + 1) for i in range(6)])


def rows(name, table, out=None, quantization=None, tensor_type=None, version=1) -> Case:
    held = Arg(table, quantization, constant=True, type=tensor_type)
    return case(
        name, Op.EMBEDDING_LOOKUP, [fed([4, 0, 4, 5]), held], [out or Out(table.dtype)], version=version
    )


def combined(combiner) -> Case:
    args = [
        fed([1, 3, 0, 1, 2]),
        fed([[0, 0], [0, 1], [1, 0], [3, 2], [3, 3]]),
        const([5, 4], np.int32),
        fed([2.0, 0.5, 1.0, 3.0, -1.5], np.float32),
        random(4, 2, 3),
    ]
    return case(
        f"combined_{combiner.name}", Op.EMBEDDING_LOOKUP_SPARSE, args, [Out()], {"combiner": combiner}
    )


def projected(kind, items, weights=None, bits=4) -> Case:
    seeds = np.random.default_rng(8).uniform(-1, 1, (3, bits)).astype(np.float32)
    args = [Arg(seeds), Arg(items), *([] if weights is None else [Arg(weights)])]
    name = f"{kind.name}_{items.dtype.name}_{items[0].nbytes}_{'even' if weights is None else 'weighted'}"
    return case(name, Op.LSH_PROJECTION, args, [Out(np.int32)], {"type": kind})


def items(count, length, dtype=np.int32) -> np.ndarray:
    return np.random.default_rng(length).integers(0, 100, (count, length)).astype(dtype)


SPARSE, DENSE = LSHProjectionType.SPARSE, LSHProjectionType.DENSE
KEYS = const([-4, 0, 3, 9, 20], np.int32)
WORDS = np.array([b"a", b"", b"see", b"d", b"e"], object)

TABLES = [
    rows("float", np.arange(12, dtype=np.float32).reshape(3, 4)[[0, 1, 2, 0, 1, 2]]),
    rows("three_axes", np.arange(24, dtype=np.float32).reshape(6, 2, 2)),
    rows("int8_as_it_is", TABLE, Out(np.int8, per_tensor(0.1)), per_tensor(0.1)),
    rows("int8", TABLE, Out(), per_tensor(0.1), version=3),
    rows("int8_rows", TABLE, Out(), ROW_SCALES, version=3),
    rows("uint8", TABLE.view(np.uint8), Out(), per_tensor(0.1)),
    rows("int4_rows", NARROW, Out(), ROW_SCALES, TensorType.INT4, version=4),
    rows("int2", (TABLE >> 6).astype(np.int8), Out(), per_tensor(0.3), TensorType.INT2, version=5),
    rows("to_float16", TABLE, Out(np.float16), ROW_SCALES, version=5),
    *(combined(c) for c in CombinerType),
    case("hashtable", Op.HASHTABLE_LOOKUP, [fed([3, 4, 20, -4]), KEYS, random(5, 2)], [Out(), Out(np.uint8)]),
    case(
        "hashtable_words",
        Op.HASHTABLE_LOOKUP,
        [fed([3, 4, 20]), KEYS, Arg(WORDS)],
        [Out(object), Out(np.uint8)],
    ),
    projected(DENSE, items(5, 1)),
    projected(SPARSE, items(5, 1), np.array([1, -2, 0.5, 3, -1], np.float32)),
    projected(SPARSE, items(2, 3, np.uint8), bits=31),
    projected(DENSE, items(4, 2)),
    projected(DENSE, items(4, 5)),
    projected(DENSE, items(4, 12)),
    projected(DENSE, items(4, 15)),
    projected(DENSE, items(4, 31)),
    projected(DENSE, items(4, 100)),
]


def test_blockwise_rows_are_dequantised_by_their_blocks():
    scales = np.linspace(0.5, 2, 12).astype(np.float16).reshape(6, 2)
    builder = Builder()
    ids = builder.input(np.int32, (4,))
    held = builder.constant(scales)
    table = builder.constant(
        NARROW,
        Quantization((), (), blocks=BlockQuantization(scales=held, zero_points=-1, block_size=4)),
        type=TensorType.INT4,
    )
    y = builder.tensor(np.float32)
    builder.operator(Op.EMBEDDING_LOOKUP, [ids, table], [y], version=4)
    model = builder.write([y])
    wanted = np.array([5, 0, 3, 3], np.int32)
    (ours,) = run_ours(Case("blocks", model, (wanted,)), CPU)
    expected = (NARROW * np.repeat(scales.astype(np.float32), 4, axis=1))[wanted]
    np.testing.assert_array_equal(ours, expected)
    np.testing.assert_array_equal(run_litert(model, [wanted])[0], expected)


@pytest.mark.parametrize("case", PARTS + BITS + SUPPRESSIONS + TABLES, ids=str)
def test_the_second_tier_matches_litert(case):
    check(case, CPU)


def test_a_declared_empty_output_does_not_keep_the_operator_from_running():
    model = one_operator(Op.WHERE, [fed([[1, 0], [0, 3]])], [Out(np.int64, shape=(0, 2))])
    check(Case("where", model, (np.array([[1, 0], [0, 3]], np.int32),)), CPU)


SENTENCES = [b"the quick brown  fox\tjumps", b" leading and trailing ", b"one", b"", b"a b c d e f"]


@pytest.mark.parametrize("sentence", SENTENCES, ids=str)
@pytest.mark.parametrize(
    ("size", "skip", "shorter"), [(2, 0, False), (2, 1, True), (3, 2, False), (3, 2, True)]
)
def test_word_groups_are_those_of_litert(sentence, size, skip, shorter):
    options = {"ngram_size": size, "max_skip_size": skip, "include_all_ngrams": shorter}
    model = one_operator(Op.SKIP_GRAM, [Arg(np.array([sentence], object))], [Out(object)], options)
    value = np.array([sentence], object)
    (theirs,), (ours,) = run_litert(model, [value]), run_ours(Case("groups", model, (value,)), CPU)
    assert ours.tolist() == theirs.tolist()
