"""Finds the present devices: as a running scheduler recorded them, or as an agent reports them."""

from __future__ import annotations

import time
from typing import Final

from agent.wire.messages import AgentHello
from orchestrator.config.clock import utc_now
from orchestrator.config.lab import LabConfig
from orchestrator.db.devices import devices
from orchestrator.db.devices import devices as known_devices
from orchestrator.db.engine.sessions import Database
from orchestrator.dispatch.base import MessageReceived
from orchestrator.errors import UnreachableError
from orchestrator.farm.local.one_machine import OneMachine
from orchestrator.scheduling.lock import lock_holder

HELLO_LIMIT_S: Final = 120.0
"""Seconds that an agent has from its start to its hello. Chosen: its two probes of the devices may take 20 s
each (`agent.devices.PROBE_TIMEOUT_S`), the rest is for a loaded host. Less refuses slow hosts; more only
delays the error about a stuck agent.
"""

_LISTEN_S: Final = 1.0
"""Seconds of one wait for the agent's messages. A message ends it: it only bounds how late the limit acts."""

_LOOK_EVERY_S: Final = 0.3
"""Seconds between two looks at what the process that schedules has recorded: short for a person who waits."""


class PresentDevices:
    """The present devices. On one machine it asks once and remembers, so plan and display agree."""

    def __init__(self, lab: LabConfig, database: Database, machine: OneMachine) -> None:
        self._lab = lab
        self._database = database
        self._machine = machine
        self._hello: AgentHello | None = None

    def hello(self) -> AgentHello:
        """Return the agent and its devices; in a lab the devices of every agent together, asked anew each
        time.

        Raises `UnreachableError` where no agent can be reached.
        """
        if self._lab.is_lab:
            return self._lab_hello()
        until = time.monotonic() + HELLO_LIMIT_S
        while self._hello is None:
            lock = self._machine.lock()
            if lock is not None:
                with lock:
                    self._hello = self._ask_agent()
                break
            self._hello = self._recorded_by_holder()
            if self._hello is None and time.monotonic() > until:
                raise UnreachableError(
                    f"another farm process holds {self._machine.home.scheduler_lock} and has not reported "
                    f"its devices for {HELLO_LIMIT_S:.0f} s; see `farm doctor`"
                )
            if self._hello is None:
                time.sleep(_LOOK_EVERY_S)
        return self._hello

    def _lab_hello(self) -> AgentHello:
        with self._database.read() as session:
            hello = known_devices.lab_hello(session)
        if not hello.devices:
            raise UnreachableError(
                "no agent of this lab has reported its devices; start one on a lab machine: farm-agent start"
            )
        return hello

    def _ask_agent(self) -> AgentHello:
        dispatcher = self._machine.start_agent()
        try:
            until = time.monotonic() + HELLO_LIMIT_S
            while time.monotonic() < until:
                for event in dispatcher.events(_LISTEN_S):
                    if isinstance(event, MessageReceived) and isinstance(event.message, AgentHello):
                        with self._database.write() as turn:
                            devices.record_hello(turn, event.message, utc_now(), sole=True)
                        return event.message
        finally:
            dispatcher.close(grace_s=5.0)
        raise UnreachableError(
            f"the agent did not report for {HELLO_LIMIT_S:.0f} s; see {self._machine.agent_log}"
        )

    def _recorded_by_holder(self) -> AgentHello | None:
        """Return the record of the process that schedules now; None until it has made one."""
        holder = lock_holder(self._machine.home.scheduler_lock)
        if holder is None:
            return None
        with self._database.read() as session:
            recorded = known_devices.recorded_hello(session)
        # An older record is of the previous scheduler, whose agent may have had other devices.
        if recorded is None or recorded.seen_at.timestamp() < holder.since_at:
            return None
        return recorded.hello
