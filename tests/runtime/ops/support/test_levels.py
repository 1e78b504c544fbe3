"""int8 rules against LiteRT's reference kernels: every level, every pair of levels, many scales."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import UnsupportedOperatorError
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Arg, Out, one_operator, per_tensor
from tests.runtime.ops.cases import Case, case, check

LEVELS = np.arange(-128, 128).astype(np.int8)


def every_level(opcode, q_in, q_out, options=None, version=2) -> Case:
    name = f"{opcode.lower()}_{q_in[0]:.3g}_{q_in[1]}_{q_out[0]:.3g}_{q_out[1]}"
    args = [Arg(LEVELS.reshape(1, 16, 16), per_tensor(*q_in))]
    return case(name, BuiltinOperator[opcode], args, [Out(np.int8, per_tensor(*q_out))], options, version)


def prelu(q_in, q_alpha, q_out) -> Case:
    """Levels down, slopes across: all pairs."""
    args = [
        Arg(np.broadcast_to(LEVELS[:, None], (1, 1, 256, 256)).copy(), per_tensor(*q_in)),
        Arg(LEVELS.reshape(1, 1, 256), per_tensor(*q_alpha), constant=True),
    ]
    name = f"prelu_{q_in[0]:.3g}_{q_alpha[0]:.3g}_{q_out[0]:.3g}"
    return case(name, BuiltinOperator.PRELU, args, [Out(np.int8, per_tensor(*q_out))])


def scales(seed: int, low: float, high: float):
    rng = np.random.default_rng(seed)
    return [
        (float(np.exp(rng.uniform(np.log(low), np.log(high)))), int(rng.integers(-128, 128)))
        for _ in range(5)
    ]


CASES = [
    *(every_level("LOGISTIC", q, (1 / 256, -128)) for q in scales(0, 0.01, 0.2)),
    *(every_level("TANH", q, (1 / 128, 0)) for q in scales(1, 0.01, 0.1)),
    *(every_level("HARD_SWISH", q, (q[0] * 0.8, -90), version=1) for q in scales(2, 0.01, 0.12)),
    *(every_level("HARD_SWISH", q, (q[0] * 1.7, 30), version=1) for q in scales(3, 0.0001, 0.5)),
    *(every_level("LEAKY_RELU", q, (q[0] * 1.1, 5), {"alpha": 0.3}) for q in scales(4, 0.01, 0.2)),
    *(every_level("LEAKY_RELU", q, (q[0] * 0.7, 5), {"alpha": -1.4}) for q in scales(5, 0.01, 0.2)),
    prelu((0.05, 3), (0.011, -20), (0.06, 10)),
    prelu((0.02, -128), (0.004, 0), (0.02, -128)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rule_matches_litert(case, backend):
    check(case, backend)


def test_values_without_a_scale_are_refused():
    model = one_operator(BuiltinOperator.LOGISTIC, [Arg(LEVELS)], [Out(np.int8)], version=2)
    with pytest.raises(UnsupportedOperatorError, match="no per-tensor scale and zero point"):
        Interpreter(model_content=model).allocate_tensors()
