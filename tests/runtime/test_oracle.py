"""The oracle survives what it runs."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator
from tests.oracle import LiteRtError, OracleDiedError, call_in_litert, run_litert
from tests.runtime.models import Arg, one_operator

VALUE = np.array([-1, 2], np.float32)
RELU = one_operator(BuiltinOperator.RELU, [Arg(VALUE)])


def test_a_dead_worker_is_reported_and_replaced():
    with pytest.raises(OracleDiedError, match="SIGSEGV"):
        call_in_litert("tests.runtime.scripts:crash")
    assert run_litert(RELU, [VALUE])[0].tolist() == [0, 2]


def test_an_error_of_litert_comes_back():
    with pytest.raises(LiteRtError, match="ValueError: The model is not a valid Flatbuffer buffer"):
        run_litert(b"0123456789", [])
    assert run_litert(RELU, [VALUE])[0].tolist() == [0, 2]
