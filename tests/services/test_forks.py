"""A fork of a program is given what a new process of it would be, and ends as that would."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent.processes import supervisor
from tests.needs import REPOSITORY
from tests.services.forked_children import CHILDREN
from tests.services.forks import AGENTS, Fork, Program, run
from tests.sweeps import rarely


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "FARM_HOME": str(folder / "home"), "NO_COLOR": "1", **more}


@pytest.mark.parametrize(
    "arguments",
    [
        rarely(("doctor", "--versions", "--json")),
        ("submit", "--check", "there.yaml"),
        ("no-such-verb",),
        rarely(("status",)),
    ],
)
def test_exit_code_and_output_are_those_of_a_new_process(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """The file is found in the working directory, the home by the environment."""
    (tmp_path / "there.yaml").write_text("version: 1\nmodels: []\n")
    program = str(Path(sys.executable).with_name("farm"))
    fresh = subprocess.run(
        [program, *arguments], cwd=tmp_path, env=environment(tmp_path, FARM_HOME=str(tmp_path / "home")),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    forked = run("farm", *arguments, cwd=tmp_path, env=environment(tmp_path))
    assert (forked.returncode, forked.stdout, forked.stderr) == (fresh.returncode, fresh.stdout, fresh.stderr)
    assert forked.stdout + forked.stderr


def test_a_server_is_signalled_waited_for_and_told_apart_by_its_end(tmp_path: Path) -> None:
    settings = environment(tmp_path, FARM_BROKER_URL="redis://127.0.0.1:1/0")
    serving = [
        Program(
            "farm", ["lab", "serve"], tmp_path / f"{i}.log", settings | {"FARM_HOME": str(tmp_path / str(i))}
        )
        for i in range(2)
    ]
    for one in serving:
        one.until(lambda one=one: "broker" in one.tail(), "it complains of its broker")
        assert os.getsid(one.pid) == one.pid
    assert serving[0].stop() == 0, serving[0].tail()
    assert not serving[0].running
    assert serving[1].kill() == -signal.SIGKILL


def test_an_agent_is_a_fork_that_has_its_socket_unless_python_must_be_started_for_it(tmp_path: Path) -> None:
    fake = [
        sys.executable,
        "-m",
        "tests.contract.fake_agent",
        "--state",
        str(tmp_path),
        "--store",
        str(tmp_path),
    ]
    for more, kind in (({}, Fork), ({"PYTHONPATH": str(REPOSITORY)}, subprocess.Popen)):
        ours, theirs = socket.socketpair()
        with ours, (tmp_path / "log").open("ab") as log:
            with theirs:
                agent = AGENTS.Popen(
                    [*fake, "--embedded", "--fd", str(theirs.fileno())],
                    env=environment(tmp_path, **more),
                    cwd=tmp_path,
                    pass_fds=(theirs.fileno(),),
                    stdin=AGENTS.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            assert isinstance(agent, kind)
            assert b'"hello"' in ours.recv(1 << 16)
            assert os.getsid(agent.pid) == agent.pid
            agent.kill()
            assert agent.wait(60) == -signal.SIGKILL
            assert ours.recv(1) == b"", "nobody else has its socket"


def _runs(program: int) -> bool:
    """Return whether it lives; an orphan that nobody has waited for yet is dead as well."""
    try:
        return Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from tests.services.forks import Program\n"
        "log = Path(sys.argv[1])\n"
        "print(Program('farm', ['serve'], log, dict(os.environ)).pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")],
        cwd=REPOSITORY,
        env=os.environ | environment(tmp_path, FARM_BROKER_URL="redis://127.0.0.1:1/0"),
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        program = int(parent.stdout.readline())
        assert Path(f"/proc/{program}").exists()
        parent.kill()
    deadline = time.monotonic() + 60
    while _runs(program):
        assert time.monotonic() < deadline, "it outlived its parent"
        time.sleep(0.02)


TELLS = """
import json, os, signal, sys, tempfile
def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False
handlers = [str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)]
opened = [number for number in range(64) if is_open(number)]
leads = os.getsid(0) == os.getpgid(0) == os.getpid()
print(json.dumps([sys.argv, dict(os.environ), opened, leads, handlers, tempfile.gettempdir()]))
sys.exit(7)
"""


def start_children() -> None:
    """Start a child in each way from a process that has a past, and write what each tells and how it ends."""
    folder = Path(sys.argv[1])
    told, _ = os.pipe(), tempfile.gettempdir()
    signal.signal(signal.SIGTERM, lambda *_: None)
    environment = {"LC_ALL": "C.UTF-8", "TMPDIR": str(folder)}
    command = [sys.executable, "-P", "-c", TELLS, "argument"]
    launch = supervisor.Launch(command, environment, folder, inherited=(told[1],), new_session=True)
    for way in (subprocess, CHILDREN):
        supervisor.subprocess = way  # type: ignore[attr-defined]
        code = supervisor.start(launch).wait(60)
        sys.stdout.write(json.dumps([code, (folder / supervisor.LOG_FILE).read_text()]) + "\n")
        (folder / supervisor.LOG_FILE).unlink()
    try:
        supervisor.start(replace(launch, counted_group=folder / "none"))
    except subprocess.SubprocessError:
        sys.stdout.write((folder / supervisor.LOG_FILE).read_text())


def test_a_child_of_an_agent_is_given_what_a_new_process_is(tmp_path: Path) -> None:
    ran = run(f"{__name__}:start_children", tmp_path, cwd=tmp_path, env=environment(tmp_path))
    assert ran.returncode == 0, ran.stderr
    fresh, forked, refused = ran.stdout.splitlines()
    assert json.loads(forked) == json.loads(fresh)
    assert json.loads(forked)[0] == 7
    assert "No such file" in refused, "what it cannot enter ends it, as between fork and exec"
