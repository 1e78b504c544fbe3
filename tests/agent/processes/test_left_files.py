"""A runner owns its folder: under the names that its agent reads it may leave links, pipes and folders."""

from __future__ import annotations

import os
import sys

import pytest

from agent.attempt.artifacts import put_artifact
from agent.attempt.files import log_tail, read_progress
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
