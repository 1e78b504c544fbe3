"""Each protection taken away, one at a time, in the processes of a test: a scenario must then fail.

`FAULT_MUTATION` names one. No source is touched: a process that has it set patches itself at its start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from orchestrator.db.engine.sessions import Database

VARIABLE: Final = "FAULT_MUTATION"
ENTRY: Final = Path(__file__).with_name("entry.py")
UNIQUE_INDEX: Final = "unique-index"
"""Taken away in the database, once it is there (`drop_unique_indexes`)."""


def apply(name: str) -> None:
    """Take the protection away. An empty name takes nothing; raises `KeyError` for one that is not known."""
    if name and name != UNIQUE_INDEX:
        MUTATIONS[name]()


def without_claim() -> None:
    """Let the agent's journal forget an ended attempt with its epoch, and its link what it opened: a repeated
    job runs again.
    """
    from agent import serve_lab
    from agent.attempt.journal import Journal
    from agent.wire.envelope import Freshness

    def state_of(self: Any, attempt_id: str) -> str | None:
        known = "SELECT state FROM attempt WHERE attempt_id = ? AND state = 'open'"
        return "open" if self._db.execute(known, (attempt_id,)).fetchone() else None

    def accept(self: Any, job: Any) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO attempt (attempt_id, state, job) VALUES (?, 'open', ?)",
            (job.attempt_id, job.model_dump_json()),
        )

    def link(command: list[str], *rest: Any) -> Any:
        _python, _isolated, _module, name, *options = command
        return link_process([sys.executable, str(ENTRY), name, *options], *rest)

    link_process = serve_lab.LinkProcess
    vars(serve_lab)["LinkProcess"] = link
    vars_of(Freshness, accept=lambda _self, _envelope: None)
    vars_of(Journal, state_of=state_of, accept=accept)


def without_flock() -> None:
    """Grant a device's lock to everybody who asks."""
    from agent.attempt import lease, running

    def granted(_folder: Any, exclusion_group: str) -> Any:
        return lease.Lease(exclusion_group, (), (os.open(os.devnull, os.O_RDONLY),))

    for module in (lease, running):
        assert callable(module.try_lease)
        module.try_lease = granted  # type: ignore[attr-defined]  # the one place that takes leases


def without_epoch() -> None:
    """Whatever epoch a result carries, it is taken for the newest of its device."""
    from orchestrator.policy import attempt_ends
    from orchestrator.policy.lifecycle import ATTEMPT_MOVES, LIVE_ATTEMPT, CellState

    def decides(known: Any, end: Any) -> bool:
        waits = known.cell is CellState.QUEUED
        return end.state in ATTEMPT_MOVES[known.state] and (known.state in LIVE_ATTEMPT or waits)

    assert callable(attempt_ends._decides)
    vars(attempt_ends)["_decides"] = decides


def drop_unique_indexes(database: Database) -> None:
    """Let the database take two live attempts of a device, and two counted results of a cell."""
    with database.write() as session:
        for name in ("live_cell", "live_device", "live_group"):
            session.connection().exec_driver_sql(f"DROP INDEX IF EXISTS uq_attempt_{name}")
        session.connection().exec_driver_sql("DROP INDEX IF EXISTS uq_result_counted_cell")


def vars_of(owner: type, **replacements: Callable[..., Any]) -> None:
    for name, replacement in replacements.items():
        assert callable(getattr(owner, name)), f"{owner.__name__}.{name} is gone: nothing would be taken away"
        setattr(owner, name, replacement)


MUTATIONS: Final[dict[str, Callable[[], None]]] = {
    "claim": without_claim,
    "flock": without_flock,
    "epoch": without_epoch,
}
