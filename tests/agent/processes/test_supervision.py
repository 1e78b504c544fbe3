"""Runners that crash, hang, hide and hoard: each ends with its reason, and nobody is left alive."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.attempt import runlog
from agent.attempt.journal import Journal
from agent.attempt.lease import try_lease
from agent.processes.descendants import processes_of
from agent.wire.messages import (
    AgentHello,
    CancelJob,
    Heartbeat,
    JobRefused,
    JobResult,
    JobStarted,
    ReasonCode,
    Receipt,
    Shutdown,
    Status,
    encode,
)
from tests import needs
from tests.agent.embedded_agent import BRIEF, PATIENCE_S, alive, eventually, job
from tests.faults import forms
from tests.services import known

SCRIPT = str(Path(__file__).with_name("bad_runners.py"))


def bad(kind: str) -> list[str]:
    return [sys.executable, SCRIPT, kind]


def noted(agent) -> list[int]:
    return [int(line) for line in (agent.state / "notes/pids").read_text().split()]


def started_stubborn(agent, spec) -> list[int]:
    """Send the job and wait until the runner and both its descendants live; their ids."""
    agent.send(spec)
    agent.expect(Heartbeat, lambda beat: beat.phase == "stubborn")
    eventually(lambda: len(noted(agent)) == 3, "the runner did not start its descendants")
    assert all(alive(pid) for pid in noted(agent))
    return noted(agent)


@pytest.mark.slow
def test_runner_that_ignores_sigterm_is_gone_with_all_its_descendants_after_the_hard_limit(
    start_agent, stored
):
    agent = start_agent(runner=bad("stubborn"))
    for limit_s in (1.0, 8.0, 64.0):
        (agent.state / "notes/pids").write_text("")
        spec = job(stored, soft_limit_s=limit_s, hard_limit_s=limit_s + 0.5)
        result = agent.run(spec)
        pids = noted(agent)
        assert not any(alive(pid) for pid in pids)
        if len(pids) == 3:
            break
    assert len(pids) == 3, "the runner did not start its descendants within its limit"
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.TIMEOUT)
    assert f"{limit_s:.0f} s" in result.reason.text
    assert result.duration_ns >= (limit_s + 0.5) * 1e9
    assert processes_of(spec.attempt_id) == set()


@pytest.mark.parametrize(
    ("kind", "code", "said"),
    [
        ("segfault", ReasonCode.CRASH, "SIGSEGV"),
        ("killed", ReasonCode.RUNNER_KILLED, "SIGKILL"),
        ("raising", ReasonCode.RUNNER_ERROR, "boom"),
        ("silent", ReasonCode.RUNNER_ERROR, "without a result"),
        ("garbage", ReasonCode.RUNNER_ERROR, "cannot be used"),
    ],
)
def test_misbehaving_runner_fails_its_attempt_and_the_agent_serves_on(start_agent, stored, kind, code, said):
    agent = start_agent(runner=bad(kind))
    for _ in range(2):
        result = agent.run(job(stored))
        assert (result.status, result.reason.code) == (Status.FAILED, code)
        assert said in result.reason.text
        assert result.environment["cpu"]


def test_runner_that_runs_out_of_memory_says_so(start_agent, stored):
    agent = start_agent(runner=bad("hungry"), memory_limit_bytes=512 << 20)
    result = agent.run(job(stored))
    assert result.reason.code is ReasonCode.OUT_OF_MEMORY
    assert "MemoryError" in result.log_tail


def test_runner_that_cannot_be_started_is_a_result(start_agent, stored):
    agent = start_agent(runner=["/nonexistent/python"])
    result = agent.run(job(stored))
    assert result.reason.code is ReasonCode.RUNNER_ERROR
    assert "cannot be started" in result.reason.text


def test_daemon_left_behind_by_a_finished_runner_is_killed(start_agent, stored):
    agent = start_agent(runner=bad("daemon"))
    result = agent.run(job(stored))
    assert result.status is Status.DONE
    (pid,) = noted(agent)
    eventually(lambda: not alive(pid), "the daemon outlived its attempt")


@pytest.mark.slow
def test_orphans_of_a_finished_runner_are_killed_without_control_groups_too(start_agent, stored):
    needs.network_namespaces()  # whoever may make one may make the mount namespace that hides the groups
    agent = start_agent(runner=bad("daemon"), inside=forms.WITHOUT_GROUPS)
    assert agent.run(job(stored)).status is Status.DONE
    (pid,) = noted(agent)
    try:
        eventually(lambda: not alive(pid), "the orphan outlived its attempt")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_orphans_are_killed_while_another_attempt_runs(start_agent, stored):
    needs.network_namespaces()
    agent = start_agent(runner=bad("daemon_once"), inside=forms.WITHOUT_GROUPS)
    first, second = job(stored), job(stored)
    agent.send(first)
    agent.send(second)
    assert agent.expect(JobResult).attempt_id == first.attempt_id
    agent.send(Receipt(attempt_id=first.attempt_id))
    (pid,) = noted(agent)
    try:
        eventually(lambda: not alive(pid), "the orphan outlived its attempt", 10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    agent.send(CancelJob(attempt_id=second.attempt_id))
    agent.expect(JobResult)


def test_a_process_dies_with_the_one_that_started_it(tmp_path):
    code = (
        "import sys, time; from pathlib import Path\n"
        "from agent.processes.supervisor import Launch, start\n"
        "command = [sys.executable, '-S', '-c', 'import time; time.sleep(600)']\n"
        "print(start(Launch(command, {}, Path(sys.argv[1]))).pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    try:
        eventually(lambda: not alive(pid), "the child outlived its parent")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_cancel_ends_the_attempt_as_cancelled(start_agent, stored):
    agent = start_agent(runner=bad("stubborn"))
    spec = job(stored)
    pids = started_stubborn(agent, spec)
    agent.send(CancelJob(attempt_id=spec.attempt_id))
    result = agent.expect(JobResult)
    assert (result.status, result.reason.code) == (Status.CANCELLED, ReasonCode.CANCELLED)
    assert not any(alive(pid) for pid in pids)


def test_cancel_of_an_unknown_attempt_is_ignored(start_agent, stored):
    agent = start_agent(runner=bad("silent"))
    agent.send(CancelJob(attempt_id="unknown"))
    assert agent.run(job(stored)).status is Status.FAILED


@pytest.mark.slow
def test_shutdown_reports_what_ran_as_interrupted_and_exits_0(start_agent, stored):
    agent = start_agent(runner=bad("stubborn"))
    pids = started_stubborn(agent, job(stored))
    agent.send(Shutdown())
    result = agent.expect(JobResult)
    assert (result.status, result.reason.code) == (Status.FAILED, ReasonCode.INTERRUPTED)
    assert agent.process.wait(PATIENCE_S) == 0
    assert not any(alive(pid) for pid in pids)


@pytest.mark.slow
def test_sigterm_ends_the_agent_as_a_shutdown_does(start_agent, stored):
    agent = start_agent(runner=bad("stubborn"))
    pids = started_stubborn(agent, job(stored))
    agent.process.terminate()
    assert agent.expect(JobResult).reason.code is ReasonCode.INTERRUPTED
    assert agent.process.wait(PATIENCE_S) == 0
    assert not any(alive(pid) for pid in pids)


@pytest.mark.slow
def test_sigint_of_the_terminal_does_not_reach_the_attempt(start_agent, stored):
    agent = start_agent(runner=bad("stubborn"))
    pids = started_stubborn(agent, job(stored))
    os.killpg(agent.process.pid, signal.SIGINT)
    agent.expect(Heartbeat)
    agent.expect(Heartbeat)
    assert all(alive(pid) for pid in pids)
    assert agent.process.poll() is None


@pytest.mark.slow
def test_orchestrator_that_hangs_up_stops_the_runner_and_gets_the_result_later(start_agent, stored):
    agent = start_agent(runner=bad("stubborn"))
    spec = job(stored)
    pids = started_stubborn(agent, spec)
    agent.close()
    assert agent.process.returncode == 0
    assert not any(alive(pid) for pid in pids)
    again = start_agent(runner=bad("silent"))
    owed = again.expect(JobResult)
    assert (owed.attempt_id, owed.reason.code) == (spec.attempt_id, ReasonCode.INTERRUPTED)


@pytest.mark.slow
def test_killed_agent_takes_its_runner_along_and_the_next_one_reports_it(start_agent, stored):
    agent = start_agent(runner=bad("stubborn"))
    spec = job(stored)
    runner, _child, _daemon = started_stubborn(agent, spec)
    agent.kill()
    eventually(lambda: not alive(runner), "the runner outlived its killed agent")
    again = start_agent(runner=bad("silent"))
    assert not any(alive(pid) for pid in noted(agent)), "the next agent buries what was left"
    owed = again.expect(JobResult)
    assert (owed.attempt_id, owed.epoch) == (spec.attempt_id, spec.epoch)
    assert (owed.status, owed.reason.code) == (Status.FAILED, ReasonCode.INTERRUPTED)
    again.send(Receipt(attempt_id=spec.attempt_id))
    assert again.run(job(stored)).reason.code is ReasonCode.RUNNER_ERROR


def test_device_stays_locked_while_a_process_of_a_killed_agents_attempt_lives(start_agent, stored):
    agent = start_agent(runner=bad("stubborn"))
    runner, _child, daemon = started_stubborn(agent, job(stored))
    agent.kill()
    eventually(lambda: not alive(runner), "the runner outlived its killed agent")
    leases = agent.folder / "leases"
    try:
        assert alive(daemon)
        assert try_lease(leases, "host-cpu") is None
    finally:
        for pid in noted(agent):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    eventually(lambda: try_lease(leases, "host-cpu") is not None, "the device stayed locked")


@pytest.mark.slow
def test_measuring_process_holds_the_lock_of_its_device(start_agent, stored, monkeypatch):
    """It may outlive its runner by a moment, in a driver: the device is not free then."""
    monkeypatch.setenv(known.VARIABLE, "")
    agent = start_agent()
    spec = job(stored, plan=BRIEF.model_copy(update={"rounds": 10, "slice_seconds": 6.0}))
    agent.send(spec)
    agent.expect(Heartbeat, lambda beat: beat.phase.startswith("block 1 of at most 1"))

    def measuring() -> list[int]:
        return [pid for pid in processes_of(spec.attempt_id) if b"--measure" in command_line(pid)]

    eventually(measuring, "no process measures")
    for pid in measuring():
        assert holds(pid, agent.folder / "leases/farm-host-cpu.held")


def command_line(pid: int) -> bytes:
    """Of a process; empty where it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def holds(pid: int, path: Path) -> bool:
    """Whether a process has this file open, by whatever name it opened it."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.samefile(entry):
                return True
    return False


@pytest.mark.slow
def test_result_that_was_finished_when_the_agent_was_killed_is_not_lost(start_agent, stored):
    agent = start_agent(runner=bad("late"))
    spec = job(stored)
    agent.send(spec)
    agent.expect(JobStarted)
    eventually((agent.state / "work" / spec.attempt_id / "result.json").exists, "no result")
    agent.kill()
    again = start_agent(runner=bad("silent"))
    owed = again.expect(JobResult)
    assert (owed.attempt_id, owed.status) == (spec.attempt_id, Status.DONE)


@pytest.mark.slow
def test_folders_of_no_attempt_are_removed_at_the_start(start_agent):
    agent = start_agent(runner=bad("silent"))
    agent.hang_up()
    agent.process.wait(PATIENCE_S)
    (agent.state / "work/unknown/closed").mkdir(parents=True, mode=0)
    start_agent(runner=bad("silent"))
    eventually(lambda: not any((agent.state / "work").iterdir()), "the folder of no attempt is still there")


@pytest.mark.slow
def test_the_only_copy_of_a_result_is_kept_until_it_is_in_the_journal(
    start_agent, stored, tmp_path, monkeypatch
):
    monkeypatch.setenv("FARM_FAILPOINT", f"agent.after_result_file@{tmp_path / 'died'}")
    agent = start_agent(runner=bad("daemon"))
    spec = job(stored)
    agent.send(spec)
    assert agent.process.wait(PATIENCE_S) == -signal.SIGKILL
    agent.hang_up()
    owed = start_agent(runner=bad("silent")).expect(JobResult)
    assert (owed.attempt_id, owed.status) == (spec.attempt_id, Status.DONE)


def test_a_result_is_in_the_journal_before_it_is_sent(start_agent, stored, tmp_path, monkeypatch):
    monkeypatch.setenv("FARM_FAILPOINT", f"agent.after_send@{tmp_path / 'died'}")
    agent = start_agent(runner=bad("segfault"))
    spec = job(stored)
    agent.send(spec)
    assert agent.process.wait(PATIENCE_S) == -signal.SIGKILL
    agent.hang_up()
    journal = Journal(agent.state / "journal.db")
    assert [result.reason.code for result in journal.spooled()] == [ReasonCode.CRASH]
    journal.close()


@pytest.mark.slow
def test_result_is_sent_again_until_its_receipt(start_agent, stored):
    agent = start_agent(runner=bad("segfault"))
    spec = job(stored)
    agent.send(spec)
    first = agent.expect(JobResult)
    agent.send(spec)
    assert agent.expect(JobResult) == first
    agent.close()
    again = start_agent(runner=bad("segfault"), patience_s=20.0)
    assert again.expect(JobResult) == first
    again.send(Receipt(attempt_id=spec.attempt_id))
    refused = again.refusal(spec)
    assert "already ended" in refused.reason.text


def test_job_for_an_unknown_device_or_a_missing_model_is_refused(start_agent, stored):
    agent = start_agent(runner=bad("silent"))
    unknown = agent.refusal(job(stored, device="gpu-of-my-dreams"))
    assert unknown.reason.code is ReasonCode.NO_DEVICE
    assert "host-cpu" in unknown.reason.text
    missing = agent.refusal(job(("1" * 64, 1)))
    assert missing.reason.code is ReasonCode.ARTIFACT
    escaping = agent.refusal(job(stored, attempt_id="../../evil"))
    assert "cannot be used as a file name" in escaping.reason.text


def test_a_farm_that_hands_out_old_epochs_is_told_the_newest(start_agent, stored):
    agent = start_agent(runner=bad("segfault"))
    spec = job(stored)
    agent.run(spec)
    late = job(stored).model_copy(update={"epoch": spec.epoch})
    agent.send(late)
    hello = agent.expect(AgentHello)
    assert hello.epochs == {spec.device_id: spec.epoch}
    assert "obsolete" in agent.expect(JobRefused).reason.text


@pytest.mark.slow
def test_message_that_is_not_understood_ends_the_agent(start_agent, stored):
    agent = start_agent(runner=bad("stubborn"))
    pids = started_stubborn(agent, job(stored))
    agent.send_bytes(b'{"type": "job", "attempt_id": 7}\n')
    assert agent.process.wait(PATIENCE_S) == 1
    assert not any(alive(pid) for pid in pids)


@pytest.mark.slow
def test_two_farms_of_one_host_take_turns(start_agent, stored, tmp_path):
    """The second agent waits for the first one's attempt; the runners' own log shows no overlap."""
    first = start_agent(runner=bad("stubborn"))
    running = job(stored)
    started_stubborn(first, running)
    second = start_agent(runner=bad("silent"), state="agent2")
    waiting = job(stored)
    second.send(waiting)
    second.expect(Heartbeat, lambda beat: beat.phase.startswith("waiting"))
    first.send(CancelJob(attempt_id=running.attempt_id))
    ended = first.expect(JobResult)
    second.expect(JobStarted)
    assert ended.reason.code is ReasonCode.CANCELLED
    assert second.expect(JobResult).attempt_id == waiting.attempt_id


@pytest.mark.slow
def test_messages_sent_in_pieces_and_together_are_understood(start_agent, stored):
    agent = start_agent(runner=bad("silent"))
    specs = [job(stored), job(stored)]
    data = b"".join(encode(spec) for spec in specs)
    for start in range(0, len(data), 97):
        agent.send_bytes(data[start : start + 97])
        time.sleep(0.001)
    ended = {agent.expect(JobResult).attempt_id for _ in specs}
    assert ended == {spec.attempt_id for spec in specs}


def test_gone_is_logged_when_all_processes_are_dead(start_agent, stored):
    agent = start_agent(runner=bad("segfault"))
    spec = job(stored)
    agent.run(spec)
    lines = runlog.read(agent.state / "runs.log")
    assert [(line.event, line.attempt_id, line.exclusion_group) for line in lines] == [
        ("gone", spec.attempt_id, "host-cpu")
    ]
