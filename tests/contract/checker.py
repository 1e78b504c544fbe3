"""The invariants of a farm, checked after whatever was done to it.

The ground truth is what the runners wrote under their lock, not the database.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from sqlmodel import select

from orchestrator.config.home import FarmHome
from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.policy.attempt_ends import MAX_ATTEMPTS
from orchestrator.policy.lifecycle import ENDED, LIVE_ATTEMPT


def truth(home: FarmHome) -> list[dict[str, Any]]:
    """Return the starts and ends of runners, in the order in which they were written."""
    path = home.agent / "truth.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def starts(home: FarmHome) -> Counter[str]:
    """Cell id -> how often a runner started for it."""
    return Counter(line["cell_id"] for line in truth(home) if line["what"] == "start")


def check(home: FarmHome, database_url: str | None = None, *, all_ended: bool = True) -> None:
    """Assert every invariant that holds at rest; `all_ended`: nothing is left to do."""
    database = Database.connect(database_url or home.database, home.root)
    try:
        with database.read() as session:
            cells = {cell.cell_id: cell for cell in session.exec(select(tables.Cell))}
            attempts = list(session.exec(select(tables.Attempt)))
            results = list(session.exec(select(tables.Result)))
            _every_cell_has_ended(cells, all_ended)
            _nothing_counts_twice(cells, attempts, results)
            _attempts_are_bounded(attempts)
        assert database.integrity() == "ok"
    finally:
        database.close()
    _runs_never_overlap(truth(home))
    _every_run_is_an_attempt(truth(home), attempts)


def _every_cell_has_ended(cells: dict[str, tables.Cell], all_ended: bool) -> None:
    """I1: exactly one terminal state, with a reason."""
    for cell in cells.values():
        assert cell.state in ENDED or not all_ended, f"{cell.cell_id} is {cell.state}"
        if cell.state in ENDED:
            assert cell.reason_code, f"{cell.cell_id} ended {cell.state} without a reason"
            assert cell.ended_at is not None


def _nothing_counts_twice(
    cells: dict[str, tables.Cell], attempts: list[tables.Attempt], results: list[tables.Result]
) -> None:
    """I3: one counted result for each cell that was measured to its end, and it is the one shown."""
    counted = [result for result in results if result.counted]
    assert len({result.cell_id for result in counted}) == len(counted)
    known = {attempt.attempt_id: attempt for attempt in attempts}
    for result in counted:
        cell = cells[result.cell_id]
        assert cell.shown_attempt_id == result.attempt_id
        assert known[result.attempt_id].state == result.status == cell.state
    done = [cell for cell in cells.values() if cell.state == "done"]
    own = {result.cell_id for result in counted if result.status == "done"}
    reused = {cell.cell_id for cell in done if cell.reused_from}
    assert own | reused == {cell.cell_id for cell in done}
    assert not own & reused


def _attempts_are_bounded(attempts: list[tables.Attempt]) -> None:
    """I5: at most three failed attempts of a cell; every one has an end and a reason."""
    failures = Counter(attempt.cell_id for attempt in attempts if attempt.state == "failed")
    assert all(count <= MAX_ATTEMPTS for count in failures.values()), failures
    for attempt in attempts:
        assert attempt.state not in LIVE_ATTEMPT, f"{attempt.attempt_id} is still {attempt.state}"
        assert attempt.reason_code
        assert attempt.ended_at is not None
    numbers: dict[str, list[int]] = defaultdict(list)
    for attempt in attempts:
        numbers[attempt.cell_id].append(attempt.attempt_no)
    assert all(sorted(found) == list(range(1, len(found) + 1)) for found in numbers.values())


def _runs_never_overlap(lines: list[dict[str, Any]]) -> None:
    """I4: between a start and its end, or its runner's death, nothing else starts on the host.

    The lock is the kernel's: a line written under it while another runner lives would be out of order.
    """
    running: str | None = None
    for line in lines:
        if line["what"] == "start":
            running = line["attempt_id"]
        else:
            assert running == line["attempt_id"], f"{line} while {running} ran"
            running = None


def _every_run_is_an_attempt(lines: list[dict[str, Any]], attempts: list[tables.Attempt]) -> None:
    known = {attempt.attempt_id: attempt for attempt in attempts}
    for line in lines:
        assert known[line["attempt_id"]].cell_id == line["cell_id"]
    started = Counter(line["attempt_id"] for line in lines if line["what"] == "start")
    assert all(count == 1 for count in started.values())


def alive_agents(home: FarmHome) -> list[int]:
    """Return the processes that work in this home's agent folder."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit() and (folder / "cwd").readlink() == home.agent.resolve():
                found.append(int(folder.name))
    return found
