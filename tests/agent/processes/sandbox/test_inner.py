"""An arm writes, signals and slows no other: each way works without its boundary and is refused by it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.processes.descendants import processes_of
from agent.processes.left_files import LOG_FILE
from agent.processes.sandbox import bpf, inner, landlock
from agent.processes.sandbox.boundary import TEMPORARY_FOLDER, boundary_for
from agent.processes.sandbox.inner import InnerBoundary
from agent.processes.sandbox.namespaces import Namespaces
from agent.processes.sandbox.reach import Reach
from agent.processes.sandbox.survey import survey
from agent.processes.supervisor import Launch, Runner, start
from tests.agent.embedded_agent import PATIENCE_S, alive, eventually
from tests.agent.processes.sandbox import arms
from tests.needs import REPOSITORY, absent

SCRIPT = str(Path(arms.__file__))
LIMIT_S = 20.0
"""Seconds in which processes start, stop or end, so that a fault is noticed well before a mutant's time."""
SPINS = [sys.executable, "-S", "-c", "import os\nif os.fork() == 0: pass\nwhile True: pass"]


def deciding(folder: Path, *, closed: bool, whole: bool = True) -> dict[str, str]:
    """Return what an attacker found beside its victim, `closed`: in its inner boundary, `whole`: in both."""
    word = "closed" if closed else "open"
    command = [sys.executable, "-P", SCRIPT, "decide", str(folder), word]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder / TEMPORARY_FOLDER)}
    (folder / TEMPORARY_FOLDER).mkdir()
    read = [REPOSITORY / "tests", REPOSITORY / "agent", REPOSITORY / "runtime"]
    reach = Reach(command, environment, read=read, write=[folder])
    boundary = boundary_for(reach, folder) if closed and whole else None
    runner = Runner.start(f"arms-{folder.name}", Launch(command, environment, folder, boundary=boundary))
    try:
        runner.process.wait(PATIENCE_S)
        found = folder / "attacker/found"
        logs = "\n".join(path.read_text() for path in sorted(folder.rglob(LOG_FILE)))
        assert found.exists(), logs
        return json.loads(found.read_text())
    finally:
        assert runner.reap() == set()


@pytest.fixture(scope="module")
def free() -> dict[str, str]:
    """Return the findings of an arm without an inner boundary."""
    with tempfile.TemporaryDirectory(prefix="farm-test-") as folder:
        return deciding(Path(folder), closed=False)


@pytest.fixture(scope="module")
def caught() -> dict[str, str]:
    """Return an arm in its inner boundary, inside a runner's."""
    if landlock.supported_abi() == 0:
        absent("no Landlock in this kernel")
    with tempfile.TemporaryDirectory(prefix="farm-test-") as folder:
        return deciding(Path(folder), closed=True)


@pytest.fixture(scope="module")
def caught_alone() -> dict[str, str]:
    """Return an arm in its inner boundary alone, where no view of its own hides the others' processes."""
    if landlock.supported_abi() == 0:
        absent("no Landlock in this kernel")
    with tempfile.TemporaryDirectory(prefix="farm-test-") as folder:
        return deciding(Path(folder), closed=True, whole=False)


@pytest.mark.parametrize("way", arms.WAYS_OUT)
def test_a_way_to_another_arm_works_without_the_inner_boundary_and_is_refused_by_it(free, caught, way):
    assert free[way] == "done"
    if way.startswith("empty") and landlock.supported_abi() < landlock.TRUNCATE_ABI:
        pytest.skip("this kernel's Landlock does not keep files from being emptied")
    assert caught[way].startswith("refused"), way


@pytest.mark.parametrize("way", ["killed first", "pages"])
def test_facts_of_another_arm_are_closed_where_proc_lists_it(caught_alone, way):
    assert caught_alone[way].startswith("refused: [Errno 13]")


@pytest.mark.parametrize("need", arms.NEEDS)
def test_an_arm_still_has_what_it_needs(caught, need):
    if need == "peak of memory" and os.geteuid() == 0 and survey().namespaces is not Namespaces.DIRECT:
        pytest.skip("root may write no file of a /proc that is not its own")
    assert caught[need] == "done"


def test_this_kernel_lacks_nothing_that_the_tests_need():
    if landlock.supported_abi() < landlock.SCOPED_ABI:
        pytest.skip("an older Landlock")
    assert inner.lacking() == ()


@pytest.mark.parametrize(
    ("abi", "filters", "said"),
    [
        (7, True, ()),
        (6, True, ()),
        (5, True, ()),
        (3, True, ()),
        (2, True, ("emptied",)),
        (0, True, ("closed files",)),
        (7, False, ("priorities",)),
        (6, False, ("priorities",)),
        (5, False, ("signals", "priorities")),
        (0, False, ("closed files", "signals", "priorities")),
    ],
)
def test_what_a_kernel_leaves_open_between_arms_is_said(monkeypatch, abi, filters, said):
    monkeypatch.setattr(landlock, "supported_abi", lambda: abi)
    monkeypatch.setattr(bpf, "is_available", lambda: filters)
    inner.lacking.cache_clear()
    try:
        found = inner.lacking()
    finally:
        inner.lacking.cache_clear()
    assert len(found) == len(said)
    assert all(word in text for word, text in zip(said, found, strict=True))


def test_a_folder_that_became_a_link_is_no_folder_to_write(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "own").symlink_to("victim")
    launch = Launch(["/bin/true"], {}, tmp_path, inner=InnerBoundary((tmp_path / "own",)))
    if landlock.supported_abi() == 0:
        absent("no Landlock in this kernel")
    with pytest.raises(subprocess.SubprocessError):
        start(launch)
    assert "sandbox: [Errno 20] Not a directory" in (tmp_path / LOG_FILE).read_text()


@pytest.mark.parametrize("named", ["kill", "leave", "kill group", "kill by a descriptor", "socket"])
def test_an_older_kernel_is_helped_by_the_filter(tmp_path, monkeypatch, named):
    """Without Landlock's scope, signals reach the process itself and its group, and nobody else."""
    if not bpf.is_available():
        absent("no filters of system calls")
    monkeypatch.setattr(landlock, "supported_abi", lambda: 0)
    target = {
        "kill": "os.kill(os.getpid(), 0); os.kill(os.getppid(), 0)",
        "leave": "os.kill(os.getpid(), 0); os.setpgid(0, os.getpgid(os.getppid()))",
        "kill group": "os.killpg(0, 0); os.killpg(os.getpgrp(), 0); os.killpg(os.getpgid(os.getppid()), 0)",
        # A folder of /proc serves as a handle, and 0 is also the number of the own group.
        "kill by a descriptor": (
            "os.dup2(os.open(f'/proc/{os.getppid()}', os.O_RDONLY), 0); signal.pidfd_send_signal(0, 0)"
        ),
        # FIOSETOWN: by F_SETSIG, whoever is named gets any signal once something arrives.
        "socket": (
            "import fcntl, socket, struct; "
            "fcntl.ioctl(socket.socketpair()[0], 0x8901, struct.pack('i', os.getppid()))"
        ),
    }[named]
    command = [sys.executable, "-S", "-c", f"import os, signal; {target}"]
    assert start(Launch(command, {}, tmp_path, own_group=True)).wait(PATIENCE_S) == 0
    closed = Launch(command, {}, tmp_path, own_group=True, inner=InnerBoundary((tmp_path,)))
    assert start(closed).wait(PATIENCE_S) == 1
    last = (tmp_path / LOG_FILE).read_text().splitlines()
    assert last[-1].startswith("PermissionError")


@pytest.fixture
def spinning(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in an inner boundary and its child, which both use a processor."""
    boundary = InnerBoundary((tmp_path,))
    process = start(Launch(SPINS, {}, tmp_path, own_group=True, inner=boundary))
    eventually(lambda: len(members(process.pid)) == 2, "no child", LIMIT_S)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_S)


def members(group: int) -> dict[int, str]:
    """Return the states of the processes of a group, by their ids."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            found[int(path.parent.name)] = fields[0]
    return found


def test_who_started_an_arm_stops_and_continues_it_as_a_whole(spinning):
    for number, state in ((signal.SIGSTOP, "T"), (signal.SIGCONT, "R"), (signal.SIGSTOP, "T")):
        os.killpg(spinning.pid, number)
        eventually(lambda: set(members(spinning.pid).values()) == {state}, f"not all are {state}", LIMIT_S)  # noqa: B023


DECIDER = """
import os, signal, sys, time
from pathlib import Path
from agent.processes.sandbox.inner import InnerBoundary
from agent.processes.supervisor import Launch, start
folder = Path(sys.argv[1])
if sys.argv[3] == "patient":
    signal.signal(signal.SIGTERM, lambda *_: None)
command = [sys.executable, "-S", "-c", sys.argv[2]]
arm = start(Launch(command, dict(os.environ), folder, own_group=True, inner=InnerBoundary((folder,))))
while len(list(folder.glob("ready*"))) < 2:
    time.sleep(0.01)
os.killpg(arm.pid, signal.SIGSTOP)
os.waitpid(arm.pid, os.WUNTRACED)
(folder / "new").write_text(str(arm.pid))
(folder / "new").rename(folder / "stopped")
while True:
    time.sleep(600)
"""
ARM = """
import os, signal, sys, time
child = os.fork()
name = "child" if child == 0 else "arm"
def end(*_):
    open(f"ended-{name}", "w").close()
    os._exit(0)
signal.signal(signal.SIGTERM, end)
open(f"ready-{name}", "w").close()
while True:
    time.sleep(600)
"""


@pytest.fixture
def runner_with_a_stopped_arm(tmp_path, request) -> Iterator[tuple[Runner, int, Path]]:
    command = [
        sys.executable,
        "-P",
        "-c",
        DECIDER,
        str(tmp_path),
        f"import os; os.chdir({str(tmp_path)!r}){ARM}",
    ]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    runner = Runner.start("attempt-of-arms", Launch([*command, request.param], environment, tmp_path))
    try:
        eventually((tmp_path / "stopped").exists, "the arm was not stopped", LIMIT_S)
        arm = int((tmp_path / "stopped").read_text())
        assert set(members(arm).values()) == {"T"}
        yield runner, arm, tmp_path
    finally:
        assert runner.reap() == set()
    assert not any(map(alive, members(arm)))


@pytest.mark.parametrize("runner_with_a_stopped_arm", ["patient"], indirect=True)
def test_the_agent_asks_a_stopped_arm_to_end_too(runner_with_a_stopped_arm):
    runner, _, folder = runner_with_a_stopped_arm
    runner.terminate()
    eventually(lambda: len(list(folder.glob("ended-*"))) == 2, "an arm did not hear the signal", LIMIT_S)


@pytest.mark.parametrize("runner_with_a_stopped_arm", ["patient"], indirect=True)
def test_the_agent_finds_and_kills_a_stopped_arm(runner_with_a_stopped_arm):
    runner, arm, _ = runner_with_a_stopped_arm
    assert set(members(arm)) <= processes_of("attempt-of-arms", runner.process.pid)
    runner.kill()
    eventually(lambda: not any(map(alive, members(arm))), "the arm lives on", LIMIT_S)


@pytest.mark.parametrize("runner_with_a_stopped_arm", ["ends"], indirect=True)
def test_a_stopped_arm_dies_with_the_process_that_started_it(runner_with_a_stopped_arm):
    runner, arm, _ = runner_with_a_stopped_arm
    os.kill(runner.process.pid, signal.SIGKILL)
    eventually(lambda: not alive(arm), "the arm outlived its runner", LIMIT_S)


def test_an_arm_writes_the_files_and_folders_that_the_user_chose_as_far_as_they_exist(tmp_path):
    if landlock.supported_abi() == 0:
        absent("no Landlock in this kernel")
    own, folder, file = tmp_path / "own", tmp_path / "driver", tmp_path / "driver.log"
    own.mkdir()
    folder.mkdir()
    file.touch()
    boundary = InnerBoundary((own,), chosen=(folder, file, tmp_path / "absent"))
    writes = f"echo a > {own}/a && echo b > {folder}/b && echo c > {file} && ! echo d > {tmp_path}/d"
    done = subprocess.run(
        ["sh", "-c", writes], preexec_fn=boundary.enter, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in (own / "a", folder / "b", file)] == ["a\n", "b\n", "c\n"]
    assert not (tmp_path / "d").exists()
