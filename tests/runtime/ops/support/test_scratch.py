"""Scratch memory: aligned, disjoint within an operator, shared between operators."""

from __future__ import annotations

import numpy as np

from runtime.ops.support.scratch import Scratch


def test_arrays_of_one_operator_do_not_overlap_and_are_aligned():
    scratch = Scratch(4096)
    first, second = scratch.take((3, 5), np.float32), scratch.take((7,), np.float64)
    assert not np.shares_memory(first, second)
    assert (first.shape, first.dtype, second.shape) == ((3, 5), np.float32, (7,))
    assert first.ctypes.data % 64 == second.ctypes.data % 64 == 0


def test_the_next_operator_has_the_same_memory():
    scratch = Scratch(4096)
    first = scratch.take((10,), np.float32)
    scratch.begin()
    assert np.shares_memory(first, scratch.take((10,), np.float32))


def test_what_does_not_fit_has_memory_of_its_own():
    scratch = Scratch(256)
    first, large = scratch.take((10,), np.float32), scratch.take((1000,), np.float32)
    assert large.shape == (1000,)
    assert not np.shares_memory(first, large)
    assert not np.shares_memory(first, scratch.take((60,), np.float32))
