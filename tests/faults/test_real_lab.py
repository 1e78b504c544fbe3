"""The whole thing with real models: nothing is made up but the machines' number."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from agent.attempt import runlog
from runtime.model.graph import Model, Operator, Quantization, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.end_to_end.odd_models import partial_model
from tests.faults import truth
from tests.faults.lab import until
from tests.needs import absent

CALM = {"FARM_LOST_S": 30, "FARM_SUSPECT_S": 10, "FARM_WATCHDOG_S": 20, "FARM_RESEND_S": 8}
MEASURE = """
  measure:
    blocks: 1
    rounds: 3
    slice: {seconds: 0.2}
    warmup: {runs: 2, min_seconds: 0}
"""
ZOO = ("torchvision_mobilenet_v3_small", "torchvision_squeezenet1_1")


@pytest.fixture(autouse=True)
def _peer():
    if find_spec("ai_edge_litert") is None:
        absent("the extra peers is not installed")


def manifest(lab, models: dict[str, str], limits: str = "15m") -> Path:
    """`models`: id -> source. The CPU's delegates."""
    entries = "".join(f"  - {{id: {name}, source: '{source}'}}\n" for name, source in models.items())
    path = lab.folder / "models.yaml"
    path.write_text(
        f"version: 1\ncampaign: real\nlevel: quick\ndefaults:\n  limits: {{job: {limits}}}{MEASURE}"
        f"models:\n{entries}delegates:\n  cpu: {{kind: cpu}}\n  litert: {{kind: litert}}\n"
    )
    return path


def running(lab, name: str) -> list[runlog.Interval]:
    """Measuring processes of an agent that live now."""
    lives = truth.lives([lab.agents[name].state])
    return [life for life in lives if life.end_ns is None and life.what == "measure"]


def test_two_agents_measure_real_models_and_a_pulled_cable_loses_and_doubles_nothing(fault_lab):
    lab = fault_lab
    lab.take_time(**CALM)
    lab.start_server()
    for name in ("agA", "agB"):
        lab.add_agent(name, real=True).start()
    lab.until_heard("agA", "agB")
    path = manifest(lab, {name: f"zoo:{name}" for name in ZOO})
    submitting = lab.start_farm("submit", str(path))
    until(lambda: running(lab, "agA"), "agA measures", limit_s=120)
    node = lab.agents["agA"].node
    node.pull_cable()
    time.sleep(10)
    node.plug_cable()
    told, errors = submitting.communicate(timeout=400)
    assert submitting.returncode == 0, told + errors
    assert lab.finish(limit_s=120) == {"done": 8}
    attempts = Counter(attempt.cell_id for attempt in lab.view.attempts())
    assert set(attempts.values()) == {1}, "nothing was measured twice"
    assert sum(result.counted for result in lab.view.results()) == 8
    agents = Counter(cell.target.split(".")[0] for cell in lab.view.cells())
    assert agents == {"agA": 4, "agB": 4}


def one_operator(operator: Operator, tensors: tuple[Tensor, ...], output: int) -> bytes:
    return write_model(Model(3, "", (Subgraph(0, "main", tensors, (0,), (output,), (operator,)),)))


def aborting_model() -> bytes:
    """int8 ADD with a scale of zero: LiteRT's reference kernel ends its process (SIGABRT)."""
    zero = Quantization((0.0,), (0,))
    tensors = tuple(Tensor(i, f"t{i}", TensorType.INT8, (1, 8), quantization=zero) for i in range(2))
    return one_operator(Operator(0, BuiltinOperator.ADD, 2, (0, 0), (1,)), tensors, 1)


def crashing_model() -> bytes:
    """SPLIT into no parts: LiteRT with XNNPACK crashes (SIGSEGV)."""
    axis = (1).to_bytes(4, "little")
    tensors = (
        Tensor(0, "t0", TensorType.FLOAT32, (1, 8)),
        Tensor(1, "axis", TensorType.INT32, (), buffer=2, data=memoryview(axis)),
        Tensor(2, "t2", TensorType.FLOAT32, (1, 8)),
    )
    return one_operator(Operator(0, BuiltinOperator.SPLIT, 1, (1, 0), (2,), {"num_splits": 0}), tensors, 2)


def hungry_model() -> bytes:
    """TILE to 8 GB."""
    multiples = (1).to_bytes(4, "little") + (250_000_000).to_bytes(4, "little")
    tensors = (
        Tensor(0, "t0", TensorType.FLOAT32, (1, 8)),
        Tensor(1, "multiples", TensorType.INT32, (2,), buffer=2, data=memoryview(multiples)),
        Tensor(2, "t2", TensorType.FLOAT32, (1, 2_000_000_000)),
    )
    return one_operator(Operator(0, BuiltinOperator.TILE, 1, (0, 1), (2,)), tensors, 2)


def test_an_agent_isolates_each_job_and_survives_crashes_memory_and_hangs(fault_lab):
    """Process, time and memory of a job end with it, whatever the model does; the agent serves on."""
    lab = fault_lab
    lab.take_time(**CALM)
    lab.start_server()
    agent = lab.add_agent("agA", real=True)
    agent.start(FARM_RUNNER_MEMORY_BYTES=str(6 << 30))
    lab.until_heard("agA")
    pid = agent.pid
    bad = {"aborts": aborting_model(), "crashes": crashing_model(), "hungry": hungry_model()}
    for name, data in {**bad, "hangs": partial_model(), "good": partial_model()}.items():
        (lab.folder / f"{name}.tflite").write_bytes(data)
    path = manifest(lab, {name: f"{name}.tflite" for name in (*bad, "good")})
    submitting = lab.start_farm("submit", str(path))
    told, errors = submitting.communicate(timeout=400)
    assert submitting.returncode == 1, told + errors
    cells = {(cell.model, cell.delegate): cell for cell in lab.view.cells()}
    assert cells["good", "cpu"].state == cells["good", "litert"].state == "done"
    assert cells["crashes", "litert"].reason_code == "crash"
    assert all(cells[name, "litert"].state in ("failed", "unsupported") for name in bad)

    path = manifest(lab, {"hangs": "hangs.tflite"}, limits="6s")
    submitting = lab.start_farm("submit", str(path), "--force")
    hung = until(lambda: running(lab, "agA"), "a process to hang", limit_s=60)[0]
    os.kill(hung.pid, signal.SIGSTOP)
    until(lambda: any(a.reason_code == "timeout" for a in lab.view.attempts()), "its time is over")
    assert not Path(f"/proc/{hung.pid}").exists()
    submitting.communicate(timeout=200)
    lab.finish(limit_s=120)
    assert agent.running
    assert agent.pid == pid, "the same agent served all of them"
