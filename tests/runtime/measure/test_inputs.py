"""The pool of inputs: the same for every delegate, of the right ranges, refused where it could mislead."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.measure.inputs import POOL_SIZE, InputRule, InputSpecNeededError, make_pool

SHA = "ab" * 32


def detail(dtype, name="x", shape=(3, 50), scale=0.0):
    return {"name": name, "shape": np.array(shape), "dtype": dtype, "quantization": (scale, 0)}


def values(dtype, rule=None, **fields):
    pool = make_pool([detail(dtype, **fields)], SHA, {} if rule is None else {"x": rule})
    return np.stack([sets[0] for sets in pool.sets])


def test_pool_is_the_same_each_time_and_its_sets_differ():
    first, second = (make_pool([detail(np.float32), detail(np.int8, "y", scale=0.1)], SHA) for _ in range(2))
    assert first.sha256 == second.sha256
    assert len({sets[0].tobytes() for sets in first.sets}) == POOL_SIZE
    assert first.nbytes == POOL_SIZE * 150 * (4 + 1)


def test_pool_depends_on_model_name_and_seed():
    pools = [
        make_pool([detail(np.float32)], SHA),
        make_pool([detail(np.float32)], "cd" * 32),
        make_pool([detail(np.float32, "z")], SHA),
        make_pool([detail(np.float32)], SHA, {"x": InputRule(seed=1)}),
    ]
    assert len({pool.sha256 for pool in pools}) == 4


def test_known_pool_does_not_change_with_the_code():
    assert make_pool([detail(np.float32)], SHA).sha256.startswith("770ba30391415024")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_floats_fill_minus_one_to_one(dtype):
    got = values(dtype)
    assert got.dtype == dtype
    assert -1 <= got.min() < -0.9
    assert 0.9 < got.max() <= 1


def test_a_rule_sets_the_range_of_random_values():
    got = values(np.float32, InputRule(low=2.0, high=3.0))
    assert got.min() >= 2
    assert got.max() < 3
    assert set(np.unique(values(np.int32, InputRule(low=5, high=7)))) == {5, 6, 7}


@pytest.mark.parametrize(("dtype", "low", "high"), [(np.int8, -128, 127), (np.uint8, 0, 255)])
def test_quantised_inputs_span_their_type(dtype, low, high):
    got = values(dtype, shape=(100, 100), scale=0.1)
    assert (got.min(), got.max()) == (low, high)


def test_quantised_int32_needs_no_rule():
    assert values(np.int32, scale=0.1).dtype == np.int32


def test_random_booleans_are_both_true_and_false():
    assert set(np.unique(values(np.bool_))) == {False, True}


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_that_may_be_indices_need_a_rule(dtype):
    with pytest.raises(InputSpecNeededError, match=r"'x' is int(32|64) and may hold indices.*{range: "):
        values(dtype)


def test_strings_are_refused():
    with pytest.raises(InputSpecNeededError, match="cannot be filled"):
        values(np.bytes_)


def test_rule_for_no_input_is_refused():
    with pytest.raises(InputSpecNeededError, match=r"'y' is not an input of the model; it has \['x'\]"):
        make_pool([detail(np.float32)], SHA, {"y": InputRule()})


def test_range_that_does_not_fit_the_type_is_refused():
    with pytest.raises(InputSpecNeededError, match="does not fit int8"):
        values(np.int8, InputRule(low=0, high=300), scale=0.1)
