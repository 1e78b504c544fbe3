"""The processes beside the timed ones: what a delegate does there harms no other arm, nor who decides."""

from __future__ import annotations

import os
import sys
import time

import pytest

from agent.attempt.files import AttemptFile, caches_folder, outputs_path
from agent.processes.sandbox import landlock
from agent.runner.judge.accuracy import OutputsError, _outputs
from agent.runner.passes.throughput import ThroughputReport
from agent.runner.turns import children
from agent.runner.turns.comparison import Clock
from runtime.measure.reference import ReferenceKind
from tests.agent.embedded_agent import BRIEF, alive, eventually, job
from tests.agent.runner.test_throughput import CPU
from tests.needs import absent

HOSTILE = """
import json, os, pathlib, socket, sys, time
found, mode, job_file = {}, sys.argv[1], sys.argv[3 if sys.argv[1] == "--pass" else 2]
other = pathlib.Path(job_file).parent / "other"
own = pathlib.Path(os.environ["TMPDIR"])
def tried(name, action):
    try:
        action()
        found[name] = "done"
    except OSError as error:
        found[name] = "refused"
tried("another arm's report", lambda: (other / "process-0.json").write_text("forged"))
tried("another arm's result", lambda: (other / "result.json").write_text("forged"))
tried("what is decided", lambda: (own.parent / "process-0.json").write_text("forged"))
tried("its own folder", lambda: (own / "mine").write_text("x"))
tried("its caches", lambda: (own.parent / "caches" / "mine").write_text("x"))
(own / "found").write_text(json.dumps(found))
if os.fork() == 0:
    (own / "left").write_text(str(os.getpid()))
    time.sleep(90)
while not (own / "left").exists():
    time.sleep(0.01)
said = KIND
if mode == "--reference":
    os.mkfifo(sys.argv[4])
else:
    socket.socket(fileno=int(sys.argv[5])).sendall(said)
"""
GOOD = b'{"phase": "counts"}\n{"over": true}\n{"runs": 7, "wall_ns": 9}\n'


@pytest.fixture
def arm(stored, tmp_path, monkeypatch):
    """Return a function that makes the children of an arm which run a hostile process."""
    if landlock.supported_abi() == 0:
        absent("no Landlock in this kernel")

    def make(said: bytes = GOOD) -> children.Children:
        folder, spec = tmp_path / "arm", job(stored, plan=BRIEF)
        for name in (folder, tmp_path / "other", caches_folder(folder)):
            name.mkdir()
        attempt = AttemptFile(job=spec, device=CPU, model_path="m", references="r", writable=())
        script = tmp_path / "hostile.py"
        script.write_text(HOSTILE.replace("KIND", repr(said)))
        monkeypatch.setattr(children, "RUNNER_COMMAND", [sys.executable, "-S", str(script)])
        return children.Children(attempt, folder / "job.json", folder, Clock())

    return make


@pytest.mark.parametrize("what", ["throughput", "reference"])
def test_it_writes_into_its_own_folder_alone_and_leaves_no_process(arm, what):
    started = arm()
    if what == "throughput":
        assert started.run_pass(ThroughputReport, {}).runs == 7
    else:
        made = started.folder / "reference-reference.npz"
        assert started.reference(ReferenceKind.REFERENCE_KERNELS, made, 60.0) is not None
        assert not os.path.lexists(made)
    found = (started.folder / what / "found").read_text()
    assert found.count("refused") == (3 if what == "throughput" else 4), found
    left = int((started.folder / what / "left").read_text())
    eventually(lambda: not alive(left), "it left a process", 20.0)


def test_a_reference_process_that_hangs_ends_with_its_time(arm, monkeypatch):
    started, began = arm(), time.monotonic()
    monkeypatch.setattr(
        children, "RUNNER_COMMAND", [sys.executable, "-S", "-c", "import time; time.sleep(30)"]
    )
    made = started.folder / "reference-reference.npz"
    failure = started.reference(ReferenceKind.REFERENCE_KERNELS, made, 1.0)
    assert failure is not None
    assert failure.why.endswith("took more than 1 s")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("said", [b"no json\n" * 4, b'{"over": true}\nnothing\n', b""])
def test_one_that_answers_with_anything_else_has_failed(arm, said):
    began = time.monotonic()
    failure = arm(said).run_pass(ThroughputReport, {}).failure
    assert failure is not None
    assert failure.reason.text.startswith("the throughput process")
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("left", ["nothing", "a pipe", "a link", "garbage", "too few"])
def test_outputs_that_cannot_be_read_are_said_and_end_nothing_else(tmp_path, left):
    path = outputs_path(tmp_path, 0)
    path.parent.mkdir()
    if left == "a pipe":
        os.mkfifo(path)
    elif left == "a link":
        path.symlink_to("/dev/zero")
    elif left == "garbage":
        path.write_bytes(b"PK\x03\x04" + bytes(100))
    elif left == "too few":
        import numpy as np

        np.savez(path, **{"0_0": np.zeros(1)})
    with pytest.raises(OutputsError, match="process 0"):
        _outputs(tmp_path, 0, 1, 2)
