"""PAD and PADV2 against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.errors import ShapeError
from runtime.interpreter import Interpreter
from runtime.model.schema import BuiltinOperator
from tests.runtime.models import Out, const, one_operator, per_tensor
from tests.runtime.ops.cases import case, check, levels, random

PAD, PADV2 = BuiltinOperator.PAD, BuiltinOperator.PADV2
IMAGE = [[0, 0], [1, 2], [3, 0], [0, 0]]
Q = per_tensor(0.1, 7)

CASES = [
    case("pad_image", PAD, [random(2, 5, 6, 7), const(IMAGE, np.int32)]),
    case("pad_channels", PAD, [random(1, 5, 6, 7), const([[0, 0], [0, 0], [0, 0], [0, 9]], np.int32)]),
    case("pad_vector", PAD, [random(5), const([[2, 3]], np.int32)]),
    case("pad_nothing", PAD, [random(5, 4), const([[0, 0], [0, 0]], np.int32)]),
    case("pad_int64", PAD, [random(1, 3, 4, 2), const(IMAGE, np.int64)]),
    case("padv2", PADV2, [random(1, 5, 6, 7), const(IMAGE, np.int32), const([-3.5])]),
    case("padv2_lowest", PADV2, [random(1, 5, 6, 7), const(IMAGE, np.int32), const([-3.4028235e38])]),
    case("pad_int8", PAD, [levels(1, 5, 6, 7, quantization=Q), const(IMAGE, np.int32)], [Out(np.int8, Q)],
         version=2),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_pad_matches_litert(case, backend):
    check(case, backend)


def test_a_negative_padding_is_refused():
    model = one_operator(PAD, [random(5), const([[-1, 0]], np.int32)])
    with pytest.raises(ShapeError, match="operator 0 PAD: paddings"):
        Interpreter(model_content=model).allocate_tensors()
