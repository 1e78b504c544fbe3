"""An agent that cannot start says in one line why, and what to do."""

from __future__ import annotations

import fcntl
import resource
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from agent.attempt.journal import Journal
from agent.config import AgentConfig
from agent.daemon import serve_over
from tests.agent.embedded_agent import PATIENCE_S, job, put_model


class NoLink:
    """Stands for a link that an agent which cannot start never uses."""


def configured(tmp_path: Path, probed: list[str]) -> AgentConfig:
    return AgentConfig("a", tmp_path / "state", tmp_path / "store", tmp_path / "leases", probe_command=probed)


def start(tmp_path: Path, probed: list[str], caplog: pytest.LogCaptureFixture) -> str:
    """Return the one line with which an agent refuses to start."""
    assert serve_over(configured(tmp_path, probed), NoLink) == 1  # type: ignore[arg-type]  # see `NoLink`
    (record,) = caplog.records
    assert record.exc_info is None
    return record.getMessage()


def overwritten(path: Path) -> None:
    path.write_bytes(b"no database of SQLite" * 200)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 8192)


def of_another_form(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE attempt SET job = '{}'")
    database.close()


@pytest.mark.parametrize("damage", [overwritten, cut, of_another_form])
def test_a_damaged_journal_is_named_with_what_is_lost(tmp_path, probed, caplog, tiny, damage):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    journal = Journal(state / "journal.db")
    journal.accept(job(put_model(tmp_path / "store", tiny)))
    journal.close()
    damage(state / "journal.db")
    said = start(tmp_path, probed, caplog)
    assert said.startswith(f"the journal {state / 'journal.db'} is damaged (")
    assert "move it away and start the agent again" in said
    (state / "journal.db").rename(state / "damaged.db")
    Journal(state / "journal.db").close()


def test_a_journal_that_cannot_be_opened_is_not_called_damaged(tmp_path, probed, caplog):
    (tmp_path / "state" / "journal.db").mkdir(parents=True)
    (tmp_path / "state").chmod(0o700)
    said = start(tmp_path, probed, caplog)
    assert "journal.db cannot be used: unable to open" in said


@pytest.mark.parametrize(("soft", "hard", "starts"), [(20, 20, False), (20, 4096, True)])
def test_an_agent_takes_the_open_files_that_it_needs_or_says_what_is_missing(
    tmp_path, probed, caplog, monkeypatch, soft, hard, starts
):
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    if not starts:
        said = start(tmp_path, probed, caplog)
        assert "may open 20 files here and needs 256" in said
        return
    (tmp_path / "state" / "journal.db").mkdir(parents=True)
    (tmp_path / "state").chmod(0o700)
    assert "journal" in start(tmp_path, probed, caplog), "it got as far as its journal"
    assert limits[-1] == (256, 4096)


def test_an_agent_waits_until_its_predecessor_has_left_the_state_folder(tmp_path, probed):
    connected = Event()

    def connect():
        connected.set()
        raise ConnectionRefusedError

    (tmp_path / "state").mkdir(mode=0o700)
    with (tmp_path / "state" / "agent.lock").open("w") as lock, ThreadPoolExecutor(1) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        served = pool.submit(serve_over, configured(tmp_path, probed), connect)
        assert not connected.wait(1)
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert connected.wait(PATIENCE_S)
        assert served.result(PATIENCE_S) == 1
