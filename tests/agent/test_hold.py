"""`farm lab lock`: a command of the user's has a device or the host to itself, for as long as it lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.attempt.lease import LEASES_VARIABLE, try_lease
from tests.agent.embedded_agent import eventually
from tests.services.forks import run

HOLD = [sys.executable, "-P", "-m", "agent.hold"]


@pytest.fixture
def leases(tmp_path: Path) -> Path:
    folder = tmp_path / "leases"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(leases: Path, tmp_path: Path) -> dict[str, str]:
    return os.environ | {LEASES_VARIABLE: str(leases), "FARM_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}


@pytest.fixture
def taken(leases: Path) -> Iterator[None]:
    """Hold the device of a GPU, as an attempt does."""
    lease = try_lease(leases, "host-cpu/gpu-0")
    assert lease is not None
    yield
    lease.release()


def free(leases: Path, group: str = "host-cpu/gpu-0") -> bool:
    lease = try_lease(leases, group)
    if lease is not None:
        lease.release()
    return lease is not None


def hold(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*HOLD, *words], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_the_command_gets_its_arguments_and_its_exit_code_is_that_of_farm_lock(environment, leases, tmp_path):
    script = 'test "$1 $2" = "-x --" && exit 7'
    done = run(
        "farm",
        "lab",
        "lock",
        "--host",
        "--",
        "sh",
        "-c",
        script,
        "sh",
        "-x",
        "--",
        cwd=tmp_path,
        env=environment,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
    assert free(leases)


def test_no_attempt_runs_beside_it_until_it_is_dead_however_it_died(environment, leases):
    held = hold(environment, "--device", "host-cpu", "--", "sh", "-c", "echo runs; exec sleep 600")
    assert held.stdout is not None
    assert held.stdout.readline() == "runs\n"
    assert not free(leases)
    assert not free(leases, "host-cpu")
    held.kill()
    held.communicate()
    eventually(lambda: free(leases), "the lock outlived the command")


@pytest.mark.usefixtures("taken")
def test_it_waits_tells_who_holds_the_device_and_gives_up_in_time(environment):
    done = subprocess.run(
        [*HOLD, "--host", "--timeout", "0.3", "--", "true"], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    waiting, gave_up = done.stderr.splitlines()
    assert done.returncode == 75
    assert waiting.startswith(f"farm lab lock: waiting for this host: in use by process {os.getpid()} (")
    assert gave_up.startswith(f"farm lab lock: this host is still in use by process {os.getpid()} (")


def test_it_runs_once_the_attempt_has_ended_and_ctrl_c_ends_the_waiting(environment, leases):
    lease = try_lease(leases, "host-cpu/gpu-0")
    assert lease is not None
    first, second = (hold(environment, "--host", "--", "echo", "at last") for _ in range(2))
    for waiting in (first, second):
        assert waiting.stderr is not None
        assert "waiting for this host" in waiting.stderr.readline()
    first.send_signal(signal.SIGINT)
    assert (*first.communicate(), first.returncode) == ("", "", 130)
    lease.release()
    assert (*second.communicate(), second.returncode) == ("at last\n", "", 0)


def test_what_cannot_be_done_is_one_line(environment, tmp_path):
    for words, code, told in (
        (["--host", "--", "no-such-command"], 127, "farm lab lock: no-such-command: no such command\n"),
        (["--host", "--", str(tmp_path / "leases")], 127, "no such command\n"),
        (["rack-3.gpu-0", "--", "true"], 2, "this host has no device 'rack-3.gpu-0'; it has: host-cpu"),
        (["gpu-0"], 2, "a device and a command are needed: farm lab lock gpu-0 -- COMMAND"),
        (["--host", "--timeout", "soon", "--", "true"], 2, "--timeout soon: expected seconds, minutes"),
    ):
        done = run("farm", "lab", "lock", *words, cwd=tmp_path, env=environment)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
        assert told in done.stderr
