"""A tiny model and a folder for an embedded agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.agent.embedded_agent import EmbeddedAgent, put_model

SHAPE = (1, 8, 8, 16)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x -> relu(x * gain), float32 [1, 8, 8, 16]."""
    gain = np.linspace(0.5, 2.0, 16, dtype=np.float32)
    tensors = (
        Tensor(0, "image", TensorType.FLOAT32, SHAPE),
        Tensor(1, "gain", TensorType.FLOAT32, (16,), buffer=1, data=memoryview(gain.tobytes())),
        Tensor(2, "scaled", TensorType.FLOAT32, SHAPE),
        Tensor(3, "positive", TensorType.FLOAT32, SHAPE),
    )
    operators = (
        Operator(0, BuiltinOperator.MUL, 1, (0, 1), (2,)),
        Operator(1, BuiltinOperator.RELU, 1, (2,), (3,)),
    )
    path = tmp_path_factory.mktemp("models") / "tiny.tflite"
    path.write_bytes(write_model(Model(3, "", (Subgraph(0, "main", tensors, (0,), (3,), operators),))))
    return path


StartAgent = Callable[..., EmbeddedAgent]


@pytest.fixture(scope="session")
def probed(probe_answer: Path) -> list[str]:
    """Return a command that answers as this host's probe did, without the time it takes."""
    return ["/bin/sh", "-c", 'cat "$0"', str(probe_answer)]


@pytest.fixture
def start_agent(tmp_path: Path, probed: list[str]) -> Iterator[StartAgent]:
    """Start agents on one folder; each must go by itself when its orchestrator hangs up."""
    started: list[EmbeddedAgent] = []

    def start(**options: Any) -> EmbeddedAgent:
        started.append(EmbeddedAgent(tmp_path, **{"probe_command": probed, **options}))
        return started[-1]

    yield start
    for agent in started:
        agent.close()


@pytest.fixture(scope="module")
def shared_agent(
    tmp_path_factory: pytest.TempPathFactory, probed: list[str], tiny: Path
) -> Iterator[EmbeddedAgent]:
    """One agent for the tests of a file that need no settings of their own; see `agent`."""
    started = EmbeddedAgent(tmp_path_factory.mktemp("shared"), probe_command=probed)
    put_model(started.store, tiny)
    yield started
    started.close()


@pytest.fixture
def agent(shared_agent: EmbeddedAgent) -> EmbeddedAgent:
    """Return an agent that has the tiny model, and may have made its references for an earlier test of the
    file.
    """
    shared_agent.seen.clear()
    return shared_agent


@pytest.fixture
def stored(tmp_path: Path, tiny: Path) -> tuple[str, int]:
    """Put the tiny model into the store of `start_agent`; return its sha256 and size."""
    return put_model(tmp_path / "store", tiny)
