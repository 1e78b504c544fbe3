"""The pool of inputs: the same for every delegate, of the right ranges, refused where it could mislead."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.measure.inputs import (
    POOL_SIZE,
    InputRule,
    InputRules,
    InputSpecNeededError,
    StoredValues,
    make_pool,
)

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


def stored(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    return InputRule(stored=StoredValues(str(tmp_path / "a.npy"), "0" * 64))


def test_stored_samples_are_taken_in_turn(tmp_path):
    samples = np.arange(300, dtype=np.float32).reshape(2, 3, 50)
    rules = InputRules({"x": stored(tmp_path, samples)}, sets=5)
    pool = make_pool([detail(np.float32)], SHA, rules)
    np.testing.assert_array_equal([values for (values,) in pool.sets], samples[[0, 1, 0, 1, 0]])


def test_a_single_sample_is_shifted_in_further_sets_unless_another_input_varies(tmp_path):
    sample = np.arange(150, dtype=np.float32).reshape(1, 3, 50)
    rule = stored(tmp_path, sample)
    alone = make_pool([detail(np.float32)], SHA, {"x": rule})
    np.testing.assert_array_equal(alone.sets[0][0], sample[0])
    assert len({values.tobytes() for (values,) in alone.sets}) == POOL_SIZE
    assert all(sorted(values.reshape(-1)) == sorted(sample.reshape(-1)) for (values,) in alone.sets)
    beside = make_pool([detail(np.float32), detail(np.float32, "y")], SHA, {"x": rule})
    assert {x.tobytes() for x, _ in beside.sets} == {sample[0].tobytes()}


def test_stored_values_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(InputSpecNeededError, match=r"data of input 'x' is int32 \[3\]; the input is float32"):
        make_pool([detail(np.float32)], SHA, {"x": stored(tmp_path, np.zeros((1, 3), np.int32))})


def test_normal_values_lie_around_the_middle_of_their_range():
    found = values(np.float32, InputRule(low=2.0, high=4.0, distribution="normal"), shape=(100, 100))
    assert 2.0 <= found.min() < 2.05
    assert 3.95 < found.max() < 4.0
    assert abs(found.mean() - 3.0) < 0.02
    assert 0.4 < found.std() < 0.5, "a third of the range is 0.67; without what lies outside, less"
    assert set(np.unique(values(np.int32, InputRule(low=5, high=7, distribution="normal")))) == {5, 6, 7}
