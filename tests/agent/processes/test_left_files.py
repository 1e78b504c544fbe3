"""A runner owns its folder: under the names that its agent reads it may leave links, pipes and folders."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from agent.attempt.artifacts import put_artifact
from agent.attempt.files import is_cancelled, log_tail, mark_cancelled, read_progress
from agent.link.artifact_client import files_of_running
from agent.processes import left_files
from agent.processes.left_files import bytes_left, remove_left
from agent.processes.log_tailer import OutputReader
from agent.wire.messages import ReasonCode, Status
from tests.agent.embedded_agent import job

SECRET = "the agent's token"


@pytest.fixture
def folder(tmp_path):
    """Return the folder of an attempt; beside it is a file that only the agent may read."""
    (tmp_path / "credentials.json").write_text(f'{{"token": "{SECRET}"}}')
    made = tmp_path / "attempt"
    made.mkdir()
    return made


def leave(path, kind):
    target = path.parent.parent / "credentials.json"
    if kind == "link":
        path.symlink_to(target)
    elif kind == "second name":
        path.hardlink_to(target)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


@pytest.mark.parametrize("kind", ["link", "second name", "folder", "pipe"])
def test_agent_reads_regular_files_of_the_runner_alone(folder, tmp_path, kind):
    for name in ("log", "progress", "samples.json"):
        leave(folder / name, kind)
    assert "cannot be read" in log_tail(folder)
    assert SECRET not in log_tail(folder)
    assert read_progress(folder) == ""
    assert OutputReader(folder / "log").piece(0.0) is None
    with pytest.raises(OSError, match=r"regular|symbolic links|directory"):
        put_artifact(tmp_path / "store", folder / "samples.json", "0" * 64)


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_result_that_is_no_file_ends_the_attempt_and_quotes_nothing(start_agent, stored, tmp_path, kind):
    secret = tmp_path / "credentials.json"
    secret.write_text(f'{{"token": "{SECRET}"}}')
    make = f"os.symlink({str(secret)!r}, path)" if kind == "link" else "os.mkfifo(path)"
    script = f"import os, sys; path = os.path.join(sys.argv[2], 'result.json'); {make}"
    agent = start_agent(runner=[sys.executable, "-c", script])
    found = agent.run(job(stored))
    assert found.status is Status.FAILED
    assert found.reason.code in (ReasonCode.RUNNER_ERROR, ReasonCode.CRASH)
    assert SECRET not in found.model_dump_json()


def test_a_mark_goes_through_no_link(folder, tmp_path):
    (folder / "cancelled").symlink_to(tmp_path / "nologin")
    mark_cancelled(folder)
    assert not (tmp_path / "nologin").exists()
    assert is_cancelled(folder)


def test_a_job_file_that_is_a_pipe_keeps_nobody_waiting(tmp_path):
    for name in ("pipe", "honest"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipe/job.json")
    (tmp_path / "honest/job.json").write_text('{"job": {"model_sha256": "a", "plan": {"labelled": null}}}')
    assert files_of_running(tmp_path) == {"a"}


def deep(folder):
    """Folders in each other, too many for a path or for a function that calls itself."""
    held = os.open(folder, os.O_RDONLY)
    for _ in range(2500):
        os.mkdir("d", dir_fd=held)
        inner = os.open("d", os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = inner
    os.close(held)


def closed(folder):
    (folder / "closed/inner").mkdir(parents=True)
    (folder / "closed/inner/file").touch()
    (folder / "closed/inner").chmod(0)
    (folder / "closed").chmod(0)


def linked(folder):
    (folder / "out").symlink_to(folder.parent)
    (folder / "own").mkdir()
    (folder / "own/out").symlink_to(folder.parent)


@pytest.mark.parametrize("fill", [deep, closed, linked])
@pytest.mark.parametrize("user", [0, 1000])
def test_whatever_a_runner_leaves_is_removed_and_nothing_else(folder, tmp_path, fill, user):
    if os.geteuid() != 0 and user == 0:
        pytest.skip("root alone can be root")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0 and user:
                os.chown(folder, user, -1)
                tmp_path.chmod(0o777)
            if user:
                # By a relative name: a user of its own cannot walk down to a folder of root's tests.
                os.chdir(tmp_path)
            if os.geteuid() == 0 and user:
                os.setuid(user)
            inside = Path(folder.name) if user else folder
            fill(inside)
            code = 0 if remove_left(inside) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (tmp_path / "credentials.json").exists()
    assert not folder.exists()


def test_a_removal_is_bounded(folder):
    for number in range(10):
        (folder / str(number)).touch()
    assert not remove_left(folder, most=5)
    assert remove_left(folder)


def test_a_folder_that_became_a_link_goes_alone(folder, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    folder.rmdir()
    folder.symlink_to(tmp_path / "kept")
    assert remove_left(folder)
    assert (tmp_path / "kept/file").exists()


@pytest.fixture
def caches():
    """Make a folder with ten bytes in two files and a broken link; root becomes nobody meanwhile."""
    with tempfile.TemporaryDirectory() as made:
        inner = Path(made) / "inner"
        inner.mkdir()
        for file in (Path(made) / "one", inner / "two"):
            file.write_bytes(bytes(5))
        (Path(made) / "gone").symlink_to("/nowhere")
        uid = os.geteuid()
        if uid == 0:
            for path in (made, inner):
                os.chown(path, 65534, -1)
            os.seteuid(65534)
        yield Path(made)
        inner.chmod(0o700)
        os.seteuid(uid)


def test_bytes_in_caches_are_unknown_where_a_folder_is_closed_or_holds_too_much(caches, monkeypatch):
    size = 10 + len("/nowhere")
    assert bytes_left(caches) == size
    assert bytes_left(caches / "none") == 0
    (caches / "inner").chmod(0o400)
    assert bytes_left(caches) is None
    (caches / "inner").chmod(0o700)
    monkeypatch.setattr(left_files, "MOST_COUNTED", 4)
    assert bytes_left(caches) == size
    monkeypatch.setattr(left_files, "MOST_COUNTED", 3)
    assert bytes_left(caches) is None
