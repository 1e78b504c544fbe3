"""The buffer that holds the constants of a launch."""

from dataclasses import replace

import numpy as np

from runtime.delegates.gpu.layout.constants import divide
from runtime.delegates.gpu.lowering.spec import PackedConstant
from tests.runtime.delegates.gpu.models import launch


def constant(name, elements):
    return PackedConstant(name, elements, lambda: np.zeros(elements, np.float32))


def reading(*constants):
    return replace(launch(), args=constants)


A, B, C = (constant(name, 100) for name in "abc")
"""400 bytes each, of which a buffer spends 448."""


def test_where_everything_fits_there_is_one_buffer_and_nothing_twice():
    found = divide([reading(A, B), reading(B), reading(C, A)], 10_000)
    assert found.offsets == ({A: 0, B: 448, C: 896},)
    assert (found.sizes, found.chosen, found.bytes) == ((1344,), (0, 0, 0), 1344)


def test_a_launch_finds_all_that_it_reads_in_one_buffer_that_is_not_too_large():
    found = divide([reading(A), reading(B), reading(C, A), reading(B, A)], 1000)
    assert found.offsets == ({A: 0, B: 448}, {C: 0, A: 448})
    assert (found.sizes, found.chosen) == ((896, 896), (0, 0, 1, 0))
    assert found.by_launch[2] == {C: 0, A: 448}


def test_what_one_launch_reads_is_never_divided():
    found = divide([reading(A), reading(A, B, C)], 500)
    assert (found.sizes, found.chosen) == ((448, 1344), (0, 1))


def test_without_constants_there_is_an_empty_buffer():
    found = divide([reading()], 1000)
    assert (found.offsets, found.sizes, found.chosen) == (({},), (0,), (0,))
