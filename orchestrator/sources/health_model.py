"""Makes the model of the health check: a tiny one that any device can run, without a download."""

from __future__ import annotations

import hashlib
import io
from functools import cache
from typing import Final

from agent.wire.messages import MeasurePlan
from orchestrator.sources.store import Store
from runtime.model.graph import Model, Operator, Signature, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model

MODEL_ID: Final = "health-check"
PLAN: Final = MeasurePlan(
    processes=1, warmup_runs=1, warmup_seconds=0, min_runs=5, max_runs=20, min_seconds=0, max_seconds=2
)
SOFT_LIMIT_S: Final = 120.0
"""Seconds after which a health check is given up. Chosen: the check measures for seconds; the rest is for a
first build of OpenCL programs on a loaded host.
"""

EXPECTED_S: Final = 3.0
"""Seconds that the scheduler expects a check to take: `PLAN` measures for two at most, in one process."""


@cache
def model() -> bytes:
    """A `.tflite` file: y = a + b on float32[1, 16]."""
    names = ("a", "b", "y")
    tensors = tuple(Tensor(i, name, TensorType.FLOAT32, (1, 16)) for i, name in enumerate(names))
    add = Operator(0, BuiltinOperator.ADD, 1, inputs=(0, 1), outputs=(2,))
    graph = Subgraph(0, "main", tensors, inputs=(0, 1), outputs=(2,), operators=(add,))
    signature = Signature("serving_default", 0, inputs=(("a", 0), ("b", 1)), outputs=(("y", 2),))
    return write_model(Model(3, "health check of a device", (graph,), (signature,)))


@cache
def model_sha256() -> str:
    """The model's hash."""
    return hashlib.sha256(model()).hexdigest()


def provide(store: Store) -> None:
    """Put the model into the store, from which agents fetch it, unless it has it already."""
    if store.find(model_sha256()) is None:
        store.put(io.BytesIO(model()), MODEL_ID, model_sha256())
