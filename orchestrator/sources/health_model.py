"""Makes the calibration workload: a small model that any device can run, without a download.

Health checks run it, and the noise of a device is measured with it: matrix products, so that its time follows
clocks and memory as that of real models does.
"""

import hashlib
import io
from array import array
from functools import cache
from typing import Final

from agent.wire.plan import MeasurePlan
from orchestrator.sources.store import Store
from runtime.model.graph import Model, Operator, Signature, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model

MODEL_ID: Final = "health-check"
PLAN: Final = MeasurePlan(
    min_blocks=1, max_blocks=1, warmup_runs=1, warmup_seconds=0, rounds=3, slice_runs=5, slice_seconds=0
)
SOFT_LIMIT_S: Final = 120.0
"""Seconds after which a health check is given up. Chosen: the check measures for seconds; the rest is for a
first build of OpenCL programs on a loaded host.
"""

EXPECTED_S: Final = 3.0
"""Seconds that the scheduler expects a check to take: `PLAN` starts one process, which makes a few runs."""

_ROWS: Final = 64
"""Rows of the input: enough that the products are of matrices and not of vectors."""

_WIDTH: Final = 256
"""Numbers of a row. The three products take 25 million operations, a millisecond or a few on a CPU: enough
for clocks and caches to show, little enough for the slowest device."""


@cache
def model() -> bytes:
    """Build a `.tflite` file: y = x Wᵀ Wᵀ Wᵀ on x of float32[64, 256], W of float32[256, 256]."""
    names = ("x", "h1", "h2", "y")
    tensors = tuple(Tensor(i, name, TensorType.FLOAT32, (_ROWS, _WIDTH)) for i, name in enumerate(names))
    matrix = Tensor(
        len(names), "W", TensorType.FLOAT32, (_WIDTH, _WIDTH), buffer=1, data=memoryview(_matrix())
    )
    products = tuple(
        # The third input, -1, is the bias that it does not have.
        Operator(i, BuiltinOperator.FULLY_CONNECTED, 1, inputs=(i, matrix.index, -1), outputs=(i + 1,))
        for i in range(len(names) - 1)
    )
    graph = Subgraph(
        0, "main", (*tensors, matrix), inputs=(0,), outputs=(len(names) - 1,), operators=products
    )
    signature = Signature("serving_default", 0, inputs=(("x", 0),), outputs=(("y", len(names) - 1),))
    return write_model(Model(3, "calibration workload of a device", (graph,), (signature,)))


def _matrix() -> bytes:
    """Return fixed values of about 1/16 without a pattern: outputs keep the scale of their inputs."""
    state, values = 1, array("f")
    for _ in range(_WIDTH * _WIDTH):
        # Park and Miller's generator (1988): the same numbers wherever the file is made.
        state = 48271 * state % 2147483647
        # The standard deviation of a uniform number in an interval of width w is w / sqrt(12). The factor
        # sqrt(12) / 16 makes it 1 / sqrt(_WIDTH), with which a product keeps the scale of its input.
        values.append((state / 2147483647 - 0.5) * 3.4641 / 16)
    return values.tobytes()


@cache
def model_sha256() -> str:
    """Return the model's hash."""
    return hashlib.sha256(model()).hexdigest()


def provide(store: Store) -> None:
    """Put the model into the store, from which agents fetch it, unless it has it already."""
    if store.find(model_sha256()) is None:
        store.put(io.BytesIO(model()), MODEL_ID, model_sha256())
