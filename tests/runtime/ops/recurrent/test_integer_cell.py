"""Integer cells of forms that LiteRT's 8x8_16 kernel does not have are refused, by either path."""

from __future__ import annotations

import re

import numpy as np
import pytest

from runtime.api.interpreter import Interpreter
from runtime.errors import UnsupportedOperatorError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import per_tensor
from tests.runtime.ops.recurrent.runs import BATCH, CELLS, lstm_options
from tests.runtime.ops.recurrent.test_integer_lstm import integer_cell


@pytest.mark.parametrize(
    ("count", "cell_scale", "text"),
    [
        (12, 2.0**-11, "12 intermediates; integer cells here have 5"),
        (5, 0.001, "a cell of scale 0.001"),
        (5, 2.0**-16, "a power of two from 2^-15 to 2^-9 is needed"),
    ],
)
def test_integer_cells_of_other_forms_are_refused(count, cell_scale, text):
    cell, out, intermediates = integer_cell((BATCH,))
    cell.state(19, BATCH, CELLS, dtype=np.int16, quantization=per_tensor(cell_scale))
    y = cell.builder.tensor(np.int8, (), out)
    made = [*intermediates, *intermediates, *intermediates][:count]
    file = cell.finish(Op.LSTM, 24, [y], lstm_options({})[1], 2, made)
    with pytest.raises(UnsupportedOperatorError, match=re.escape(text)):
        Interpreter(model_content=file).allocate_tensors()
