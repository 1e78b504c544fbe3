"""A check that fails ends its run alone, whatever schedule and memory a device has."""

import numpy as np
import pytest

from delegate_farm import load_delegate
from runtime.api.interpreter import Interpreter
from runtime.errors import InvocationError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Builder

TABLE = np.arange(35, dtype=np.float32).reshape(7, 5)


def gathered_twice() -> bytes:
    """Rows of a constant table at computed indices, then one of these rows: two launches in a row."""
    b = Builder()
    first, last = b.input(np.int32, (3,)), b.input(np.int32, (1,))
    rows, y = b.tensor(np.float32, (3, 5)), b.tensor(np.float32, (1, 5))
    b.operator(Op.GATHER, [b.constant(TABLE), first], [rows])
    b.operator(Op.GATHER, [rows, last], [y])
    return b.write([y])


@pytest.mark.parametrize("device", ["enqueued", "persistent", "own memory"])
def test_a_failed_check_ends_its_run_and_no_other(device, tmp_path, monkeypatch):
    """`own memory`: a device that calls itself a GPU, whose checks are copied to the host and back."""
    if device == "own memory":
        monkeypatch.setattr("runtime.delegates.gpu.backends.opencl.device.is_gpu", lambda device: True)
    options = {"persistent": "on" if device == "persistent" else "off", "cache_dir": str(tmp_path)}
    delegate = load_delegate("gpu", {"tuning": "none", **options})
    interpreter = Interpreter(model_content=gathered_twice(), experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    assert not interpreter.delegation.fallbacks
    for first, last in (([6, 0, 3], 2), ([6, 7, 3], 2), ([6, 0, 3], 3), ([6, -1, 3], 3), ([6, 0, 3], 0)):
        interpreter.set_tensor(0, np.int32(first))
        interpreter.set_tensor(1, np.int32([last]))
        culprit = 0 if not all(0 <= i < 7 for i in first) else 1 if last > 2 else None
        if culprit is None:
            interpreter.invoke()
            np.testing.assert_array_equal(interpreter.get_tensor(3), TABLE[first][[last]])
            continue
        with pytest.raises(InvocationError, match=f"operator {culprit} GATHER: an index is outside the axis"):
            interpreter.invoke()
