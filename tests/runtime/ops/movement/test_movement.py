"""Every operator that moves elements, in every type that LiteRT's kernels take: bit for bit the same."""

from __future__ import annotations

import contextlib
import zlib

import numpy as np
import pytest

from runtime.errors import InvocationError, ModelError
from tests.oracle import LiteRtError, OracleDiedError, run_litert
from tests.runtime.models import one_operator
from tests.runtime.ops.cases import CPU, Case, run_ours
from tests.runtime.ops.movement.movements import MOVEMENTS, Movement, Values


def built(movement: Movement, tensor_type) -> Case:
    values = Values(tensor_type, zlib.crc32(str(movement).encode()))
    args, outs, options = movement.build(values)
    model = one_operator(movement.opcode, args, outs, options, movement.version)
    inputs = tuple(a.value for a in args if a is not None and not a.constant)
    return Case(str(movement), model, inputs, movement.resolver)


CASES = [(m, t) for m in MOVEMENTS for t in m.only]


@pytest.mark.parametrize(("movement", "tensor_type"), CASES, ids=str)
def test_moves_as_litert_does(movement, tensor_type):
    case = built(movement, tensor_type)
    try:
        expected = run_litert(case.model, case.inputs, case.resolver)
    except (LiteRtError, OracleDiedError):
        runs_or_refuses(case)
        return
    found = run_ours(case, CPU)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def runs_or_refuses(case: Case) -> None:
    """Where LiteRT has no such kernel, ours may have one, or refuses it as an error of the model."""
    with contextlib.suppress(ModelError, InvocationError):
        run_ours(case, CPU)
