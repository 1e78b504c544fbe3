"""Random numbers against LiteRT's kernels: the same streams from the same seeds."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import RngAlgorithm
from tests.oracle import call_in_litert, run_litert
from tests.runtime.models import Arg, Out, const
from tests.runtime.ops.cases import CPU, Case, case, check, run_ours
from tests.runtime.ops.every_type import fed


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
    theirs = call_in_litert(
        "tests.runtime.ops.random.test_distributions:second_run", case.model, list(case.inputs)
    )
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


BITS = [
    bits(RngAlgorithm.PHILOX, STATE[:2], np.uint32, (3, 5)),
    bits(RngAlgorithm.PHILOX, STATE, np.int64, (7,)),
    bits(RngAlgorithm.DEFAULT, STATE, np.uint64, (2, 2)),
    bits(RngAlgorithm.THREEFRY, STATE[:2], np.int32, (9,)),
    bits(RngAlgorithm.THREEFRY, STATE[:2], np.uint64, (4,)),
]


@pytest.mark.parametrize("case", BITS, ids=str)
def test_bits_of_a_state_are_those_of_litert(case):
    check(case, CPU)
