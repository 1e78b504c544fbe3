"""The farm under test as a lab: `farm lab serve`, Redis, and one machine with the fake agent."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from sqlmodel import select

from agent.wire.messages import Device
from orchestrator.db import tables
from orchestrator.db.engine.sessions import Database
from orchestrator.farm import Farm
from orchestrator.trust.credentials_service import CredentialsService
from tests.contract import checker
from tests.contract.lab import PATIENCE_S, Lab
from tests.services.forks import Program
from tests.services.processes import Server

AGENT_ID = "fake"
TIMES = {
    "FARM_HEARTBEAT_S": "1",
    "FARM_PATIENCE_S": "0.5",
    "FARM_SWEEP_S": "0.2",
    "FARM_RESEND_S": "3",
    "FARM_REAPER_S": "0.5",
}


@dataclass
class CeleryLab(Lab):
    """The services start with the first use of the farm."""

    agent_is_well: ClassVar[str] = f"working: {AGENT_ID}"
    trusts_its_agent: ClassVar[bool] = False
    services: list[Server] = field(default_factory=list)

    def open(self) -> Farm:
        if not self.services:
            self._start()
        return super().open()

    def device_id(self, name: str) -> str:
        """Devices of a lab carry their agent's name."""
        return f"{AGENT_ID}.{name}"

    def plug(self, *devices: Device) -> None:
        """Plug in devices and restart the machine, so that its agent looks for devices again."""
        super().plug(*devices)
        if self.services:
            self.services.pop().kill()
            self._start_machine()

    def check(self, *, all_ended: bool = True) -> None:
        checker.check(self.home, self.config.database_url, all_ended=all_ended)

    def close(self) -> None:
        super().close()
        for service in self.services:
            service.kill()

    def _start(self) -> None:
        self.home.root.mkdir(parents=True, exist_ok=True)
        environment = os.environ | self.environment | TIMES
        server = Program("farm", ["lab", "serve"], self.home.root / "serve.log", environment)
        self.services.append(server)
        server.until(lambda: "scheduling on" in server.tail(), "farm lab serve")
        self._start_machine()

    def _start_machine(self) -> None:
        state = self.home.agent
        state.mkdir(parents=True, exist_ok=True)
        if not (state / "credentials.json").exists():
            self._enrol(state)
        before = self._hello_at()
        host = [sys.executable, str(Path(__file__).with_name("host.py"))]
        command = [*host, "--state", str(state), "--store", str(self.home.store)]
        machine = Server(command, self.home.root / "machine.log", os.environ | self.environment)
        self.services.append(machine)
        deadline = time.monotonic() + PATIENCE_S
        while self._hello_at() == before:
            assert time.monotonic() < deadline, machine.tail() + self.services[0].tail()
            time.sleep(0.05)

    def _enrol(self, state: Path) -> None:
        database = Database.connect(self.config.database_url or self.home.database, self.home.root)
        CredentialsService.open(self.home, self.config, database).enrol_here(AGENT_ID, state)
        database.close()

    def _hello_at(self) -> float:
        """When the agent said hello last; 0: never."""
        database = Database.connect(self.config.database_url or self.home.database, self.home.root)
        with database.read() as session:
            said = [seen_at.timestamp() for seen_at in session.exec(select(tables.Agent.seen_at))]
        database.close()
        return max(said, default=0.0)
