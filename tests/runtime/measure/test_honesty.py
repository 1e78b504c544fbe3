"""A delegate reveals itself while it is not timed: answers from memory, and work left to the reader."""

from __future__ import annotations

import pytest

from runtime.measure.honesty import Waited, cached, early_return

MS = 1_000_000


@pytest.mark.parametrize(
    ("loop", "known", "new", "accused"),
    [
        ([1, 1, 1], [1, 1, 1, 1], [5, 6, 5, 6], True),
        ([1, 1, 1], [1, 1, 1, 1], [5, 6, 5, 1.5], False),
        # Among several one may be disturbed.
        ([1, 1, 1], [1, 9, 1, 1], [5, 6, 5, 6], True),
        ([1, 1, 1], [1, 1], [5, 6], True),
        ([1, 1, 1], [1, 9], [5, 6], False),
        # A busy machine: everything is slow, known inputs too.
        ([1, 1, 1], [4, 4], [5, 6], False),
        ([3, 3, 3], [1, 1], [5, 6], False),
        ([1, 1, 1], [1], [5], False),
        ([1, 1, 1], [], [], False),
    ],
)
def test_new_inputs_that_take_far_longer_show_a_memory(loop, known, new, accused):
    loop, known, new = ([int(value * MS) for value in values] for values in (loop, known, new))
    flag = cached(loop, known, new)
    assert (flag is not None) == accused
    if accused:
        assert flag.startswith("cached: new inputs take")


@pytest.mark.parametrize(
    ("invokes", "accused"),
    [
        ([(1.0, 0.9, 0.0)] * 3, True),
        # A large output takes as long to copy again.
        ([(1.0, 0.9, 0.9)] * 3, False),
        ([(1.0, 0.4, 0.0)] * 3, False),
        ([(0.05, 0.045, 0.0)] * 3, False),
        # One hiccup of the machine neither accuses nor excuses.
        ([(1.0, 0.9, 0.0), (1.0, 0.1, 0.1), (1.0, 0.1, 0.1)], False),
        ([(1.0, 0.9, 0.0), (9.0, 0.9, 0.0), (1.0, 0.9, 0.0)], True),
        ([], False),
    ],
)
def test_outputs_that_are_waited_for_show_an_invoke_that_returned_early(invokes, accused):
    flag = early_return([Waited(*(int(value * MS) for value in one)) for one in invokes])
    assert (flag is not None) == accused
    if accused:
        assert flag.startswith("early_return: invoke returns before the work is done; 90% of the time")
