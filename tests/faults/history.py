"""A small sound history: what three runners wrote, and the database's rows that belong to it.

`test_invariants.py` breaks it, one way at a time.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.attempt import runlog
from agent.attempt.artifacts import put_artifact
from agent.attempt.journal import Journal
from orchestrator.db import tables
from orchestrator.db.migrate import HEAD
from tests.faults.invariants import Evidence

RUNNER = Path(__file__).with_name("runner.py")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GROUP = "agA-0"


@dataclass(frozen=True)
class Run:
    """One attempt as its runner did it; `result` is its `result.json`, None where it left none."""

    cell: str
    number: int
    epoch: int
    result: dict[str, Any] | None

    @property
    def attempt_id(self) -> str:
        return f"{self.cell}-{self.number}"


def play(folder: Path) -> list[Run]:
    """Let runners make four attempts: `a` ends at once, `b` after a crash, `c` is wrong."""
    state, store = folder / "state", folder / "store"
    state.mkdir(parents=True)
    Journal(state / "journal.db").close()
    (folder / "log").write_text("scheduling\n")
    return [
        _run(state, store, "a", 1, 1, "done"),
        _run(state, store, "b", 1, 2, "crash"),
        _run(state, store, "b", 2, 3, "done"),
        _run(state, store, "c", 1, 4, "wrong"),
    ]


def evidence(folder: Path, runs: Sequence[Run]) -> Evidence:
    """Return what a check looks at: the files of `play`, or a copy of them, and three results of its runs."""
    ends = {"a": ("done", "a-1"), "b": ("done", "b-2"), "c": ("failed", "c-1")}
    return Evidence(
        cells={name: _cell(name, *end) for name, end in ends.items()},
        attempts={run.attempt_id: _attempt(run) for run in runs},
        results={run.attempt_id: _result(run, run.result) for run in runs if run.result is not None},
        hosts=((folder / "state",),),
        store=folder / "store",
        logs=(folder / "log",),
        revision=HEAD,
        integrity="ok",
    )


def owe(journal: Path, attempt_id: str) -> None:
    """Add a result that nobody has acknowledged to the agent's journal."""
    with sqlite3.connect(journal) as database:
        database.execute("INSERT INTO attempt VALUES (?, 'spooled', '{}', '{}')", (attempt_id,))
    database.close()


def _run(state: Path, store: Path, cell: str, number: int, epoch: int, behave: str) -> Run:
    """Let the runner of the scenarios do one attempt."""
    attempt_id = f"{cell}-{number}"
    folder = state / "work" / attempt_id
    folder.mkdir(parents=True)
    job = {
        "attempt_id": attempt_id,
        "cell_id": cell,
        "device_id": "agA.0",
        "epoch": epoch,
        "attempt_no": number,
        "delegate_options": {"behave": behave, "seconds": 0.01},
    }
    spec = {"job": job, "device": {"exclusion_group": GROUP}}
    (folder / "job.json").write_text(json.dumps(spec))
    ran = subprocess.run([sys.executable, str(RUNNER), str(folder / "job.json"), str(folder)], check=False)
    assert ran.returncode == (-signal.SIGSEGV if behave == "crash" else 0), f"the runner of {attempt_id}"
    runlog.take(state / "runs.log", folder / "runs.log", attempt_id, GROUP)
    runlog.append(state / "runs.log", "gone", attempt_id, GROUP, "attempt")
    path = folder / "result.json"
    result = json.loads(path.read_text()) if path.exists() else None
    if result is not None:
        put_artifact(store, folder / "samples.json", result["samples_sha256"])
    return Run(cell, number, epoch, result)


def _attempt(run: Run) -> tables.Attempt:
    state, code = ("failed", "crash") if run.result is None else (run.result["status"], _code(run.result))
    return tables.Attempt(
        attempt_id=run.attempt_id, cell_id=run.cell, attempt_no=run.number, device_id="agA.0",
        exclusion_group=GROUP, epoch=run.epoch, state=state, reason_code=code, dispatched_at=NOW,
        ended_at=NOW,
    )  # fmt: skip


def _code(result: dict[str, Any]) -> str:
    return "completed" if result["reason"] is None else str(result["reason"]["code"])


def _cell(name: str, state: str, shown: str) -> tables.Cell:
    code = "completed" if state == "done" else "wrong_output"
    return tables.Cell(
        cell_id=name, campaign_no=1, key=name, series="s", position=0, model="m", model_sha256="0" * 64,
        delegate="gpu", delegate_kind="gpu", delegate_options={}, target="agA.0", level="quick", plan={},
        inputs={}, soft_limit_s=900, state=state, reason_code=code, ended_at=NOW,
        line="agA.0", shown_attempt_id=shown,
    )  # fmt: skip


def _result(run: Run, found: dict[str, Any]) -> tables.Result:
    return tables.Result(
        attempt_id=run.attempt_id, cell_id=run.cell, device_id="agA.0", epoch=run.epoch,
        status=found["status"], reason_code=_code(found), reason_text="",
        measurement=json.dumps(found["measurement"]), samples_sha256=found["samples_sha256"],
        environment_id="e", facts={}, log_tail="", duration_ns=1, series="s", fingerprint="f", content="c",
        counted=True, late=False, received_at=NOW,
    )  # fmt: skip
