"""Attacks by a runner of its own making on the agent that started it, without a lab."""

from __future__ import annotations

import sys
import time

import pytest

from agent.attempt.lease import try_lease
from agent.wire.messages import CancelJob, JobResult, JobStarted, ReasonCode, Status
from tests.agent import conftest as agents
from tests.agent.embedded_agent import EmbeddedAgent, job, put_model
from tests.agent.processes import test_sandbox
from tests.needs import absent

pytestmark = pytest.mark.attack

SAYS_CANCELLED = """
import json, pathlib, sys
reason = {"code": "cancelled", "text": "by the user"}
made = pathlib.Path(sys.argv[2], "made")
made.write_text(json.dumps({"status": "cancelled", "reason": reason}))
made.rename(made.with_name("result.json"))
"""
UNLOCKS = """
import fcntl, os, pathlib, sys, time
for name in os.environ["FARM_LEASE_DESCRIPTOR"].split(","):
    fcntl.flock(int(name), fcntl.LOCK_UN)
pathlib.Path(sys.argv[2], "progress").write_text("unlocked")
time.sleep(600)
"""


def runner(tmp_path, code: str) -> list[str]:
    script = tmp_path / "runner.py"
    script.write_text(code)
    return [sys.executable, "-P", str(script)]


def test_a_runner_that_says_it_was_cancelled(tmp_path, probed, tiny):
    """Its attempt has failed: a cancel that nobody asked for is not tried again."""
    agent = EmbeddedAgent(tmp_path, runner(tmp_path, SAYS_CANCELLED), probe_command=probed)
    result = agent.run(job(put_model(agent.store, tiny)))
    agent.close()
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.RUNNER_ERROR)


def test_a_runner_that_unlocks_its_device(tmp_path, probed, tiny):
    """The device stays locked for everybody else until the attempt is over."""
    agent = EmbeddedAgent(tmp_path, runner(tmp_path, UNLOCKS), probe_command=probed)
    asked = job(put_model(agent.store, tiny))
    agent.send(asked)
    agent.expect(JobStarted)
    progress = agent.state / "work" / asked.attempt_id / "progress"
    while not progress.exists():
        time.sleep(0.05)
    assert try_lease(tmp_path / "leases", "host-cpu") is None
    agent.send(CancelJob(attempt_id=asked.attempt_id))
    agent.expect(JobResult)
    agent.close()


def test_a_container_without_namespaces(probed, tiny, outside):
    """The result names each part that is missing, and everybody's shared memory is closed."""
    if not test_sandbox.usable(test_sandbox.WITHOUT_NAMESPACES):
        absent("no user namespace to make a container of")
    found = test_sandbox.attacked(probed, tiny, outside, on=True, inside=test_sandbox.WITHOUT_NAMESPACES)
    assert "own folders for temporary files, and an own view of processes" in found["sandbox_without"]
    assert found["own_shared_memory"].startswith("refused")
    assert "namespaces" not in found["sandbox"]


probed, tiny, outside = agents.probed, agents.tiny, test_sandbox.outside
"""Fixtures of the tests of agents."""
