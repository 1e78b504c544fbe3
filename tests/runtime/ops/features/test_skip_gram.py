"""SKIP_GRAM against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.oracle import run_litert
from tests.runtime.models import Arg, Out, one_operator
from tests.runtime.ops.cases import CPU, Case, run_ours

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


def test_a_group_may_be_longer_than_the_stack_is_deep():
    sentence = b" ".join(b"w%d" % i for i in range(1500))
    test_word_groups_are_those_of_litert(sentence, 1499, 0, shorter=False)


def test_only_beginnings_of_groups_are_looked_at():
    """All 2^31 choices of words would take hours."""
    options = {"ngram_size": 30, "max_skip_size": 30, "include_all_ngrams": False}
    value = np.array([b" ".join(b"%d" % i for i in range(31))], object)
    model = one_operator(Op.SKIP_GRAM, [Arg(value)], [Out(object)], options)
    (ours,) = run_ours(Case("groups", model, (value,)), CPU)
    assert len(ours) == 31
