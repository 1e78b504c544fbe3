"""Where one agent works and what it starts. Read once, at the edge; passed on as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.devices import RUNNER_COMMAND


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Folders and commands. `runner_command` gets `JOB.json FOLDER` appended, `probe_command` `--probe`.

    agent.lock    held (flock) by the one agent that uses this state folder
    journal.db    attempts taken on, and results without a receipt
    runs.log      the ground truth of what ran when (`agent.runlog`)
    references/   reference outputs by hash
    work/         one folder per live attempt
    """

    agent_id: str
    state: Path
    store: Path
    leases: Path
    heartbeat_s: float = 1.0
    runner_command: Sequence[str] = RUNNER_COMMAND
    probe_command: Sequence[str] = RUNNER_COMMAND
    memory_limit_bytes: int | None = None

    @property
    def lock(self) -> Path:
        """Lock file of the agent."""
        return self.state / "agent.lock"

    @property
    def journal(self) -> Path:
        """The journal's SQLite file."""
        return self.state / "journal.db"

    @property
    def runs_log(self) -> Path:
        """The log of starts and ends."""
        return self.state / "runs.log"

    @property
    def references(self) -> Path:
        """Cached reference outputs."""
        return self.state / "references"

    def folder(self, attempt_id: str) -> Path:
        """Work folder of an attempt."""
        return self.state / "work" / attempt_id
