"""Runs the operator's command for lost devices, beside the loop, and stores the outcome of each."""

from __future__ import annotations

import logging
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Final

from orchestrator.config.child_environment import for_recovery
from orchestrator.config.recovery import Recovery
from orchestrator.db.devices import quarantine as lost_devices
from orchestrator.db.devices import quarantine as recoveries
from orchestrator.db.devices.quarantine import LostDevice
from orchestrator.db.engine.sessions import Database
from orchestrator.results.facts import RecoveryOutcome

MOST_AT_ONCE: Final = 4
"""Commands that run at the same time. Chosen: a rack that lost its power is not switched on all at once;
fewer make the last machine wait longer.
"""

_TEXT_BYTES: Final = 300
"""Bytes of a command's output that are kept, from its end: the last line says what failed."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Recoveries:
    """One command at a time for each agent. `look` is called by the loop's thread alone, and does something
    every `every_s` seconds.
    """

    database: Database
    recovery: Recovery
    every_s: float
    _due_s: float = 0.0
    _running: dict[str, LostDevice] = field(default_factory=dict)
    _ended: queue.SimpleQueue[tuple[LostDevice, RecoveryOutcome, str]] = field(
        default_factory=queue.SimpleQueue
    )

    def look(self, now: datetime, silent_before: datetime | None) -> None:
        """Store what has ended, and start what is due. Raises `UnreachableError`.

        `silent_before`: see `lost_devices.lost`.
        """
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + self.every_s
        self._settle(now)
        with self.database.read() as session:
            found = lost_devices.lost(session, silent_before, now)
        for lost in found:
            if lost.agent_id in self._running or len(self._running) >= MOST_AT_ONCE:
                continue
            # Stored first: a farm that is killed in between must not run it twice within the hour.
            with self.database.write() as turn:
                recoveries.begin(turn, lost, now)
            self._running[lost.agent_id] = lost
            program = self.recovery.command[0]
            log.warning("device %s is lost (%s): running %s", lost.device_id, lost.loss, program)
            # Where the farm stops meanwhile it goes on: a machine must not be left switched off.
            threading.Thread(target=self._run, args=(lost,), name="recovery", daemon=True).start()

    def _settle(self, now: datetime) -> None:
        while not self._ended.empty():
            ended = self._ended.get()
            lost, outcome, text = ended
            try:
                with self.database.write() as turn:
                    recoveries.end(turn, lost, outcome, text, now)
            except BaseException:
                self._ended.put(ended)
                raise
            del self._running[lost.agent_id]
            log.warning("recovery of device %s %s: %s", lost.device_id, outcome, text)

    def _run(self, lost: LostDevice) -> None:
        self._ended.put((lost, *run(self.recovery, lost)))


def run(recovery: Recovery, lost: LostDevice) -> tuple[RecoveryOutcome, str]:
    """Run the command with the device, its agent and the loss as its last arguments, until it ends.

    Returns the outcome and the end of what it printed. Its whole process group ends at the time limit.
    """
    try:
        # A file, not a pipe: who outlives the command could keep a pipe open, and its reader waiting.
        with tempfile.TemporaryFile() as output:
            return _run_into(output, recovery, lost)
    except OSError as error:
        return "failed", f"{recovery.command[0]} cannot be started: {error.strerror}"


def _run_into(output: IO[bytes], recovery: Recovery, lost: LostDevice) -> tuple[RecoveryOutcome, str]:
    process = subprocess.Popen(  # noqa: S603  # the operator's own program, and no shell
        [*recovery.command, lost.device_id, lost.agent_id, lost.loss],
        env=for_recovery(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        status = process.wait(recovery.limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return "timed_out", f"it took longer than {recovery.limit_s:g} s; {_end_of(output)}"
    return ("succeeded" if status == 0 else "failed"), f"exit code {status}; {_end_of(output)}"


def _end_of(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TEXT_BYTES))
    lines = output.read(_TEXT_BYTES).decode(errors="replace").split("\n")
    said = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
    return "".join(character if character.isprintable() else " " for character in said).strip()
