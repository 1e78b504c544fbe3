"""A farm with fake runners, and other processes that use it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.config import FarmHome
from orchestrator.events import FarmEvent
from orchestrator.farm import Farm
from orchestrator.results.records import CellRecord
from tests.contract import checker
from tests.needs import REPOSITORY
from tests.orchestrator.asked import asked, model_files

PATIENCE_S = 60.0


def agent_command(home: FarmHome) -> list[str]:
    fake = Path(__file__).with_name("fake_agent.py")
    return [sys.executable, str(fake), "--state", str(home.agent), "--store", str(home.store)]


def delegates(**behaviours: str) -> dict[str, dict[str, Any]]:
    """Delegate name -> what its fake runner does; all of kind `cpu`."""
    return {name: {"kind": "cpu", "behave": how} for name, how in behaviours.items()}


@dataclass
class Driver:
    """Another process that runs a campaign."""

    process: subprocess.Popen[str]
    lines: list[dict[str, Any]] = field(default_factory=list)
    errors: str = ""

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first event that fits; fails where the process ends before."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self.lines.append(json.loads(text))
            if wanted(self.lines[-1]):
                return self.lines[-1]
        raise AssertionError(f"ended with {self.end()} after {self.lines}: {self.errors}")

    def until_kind(self, kind: str) -> dict[str, Any]:
        return self.until(lambda line: line["kind"] == kind)

    def until_started(self, delegate: str) -> str:
        """The id of this delegate's cell, once its runner has started."""
        found = self.until(lambda line: line["kind"] == "started" and line["delegate"] == delegate)
        return str(found["cell"])

    def signal(self, number: signal.Signals) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        """Wait for the end; the exit code."""
        out, self.errors = self.process.communicate(timeout=PATIENCE_S)
        self.lines += [json.loads(text) for text in out.splitlines()]
        return self.process.returncode

    def kinds(self) -> list[str]:
        return [line["kind"] for line in self.lines]


@dataclass
class Lab:
    """One farm home under test."""

    home: FarmHome
    drivers: list[Driver] = field(default_factory=list)

    def open(self) -> Farm:
        return Farm.open(self.home, command=agent_command(self.home))

    def submit(self, farm: Farm, *models: str, **how: Any) -> str:
        campaign = asked(models, how.pop("delegates"), **how)
        return farm.submit(campaign, model_files(*models))

    def run(self, *models: str, **how: Any) -> tuple[list[CellRecord], list[FarmEvent]]:
        """Submit and run to the end in this process."""
        told: list[FarmEvent] = []
        with self.open() as farm:
            campaign_id = self.submit(farm, *models, **how)
            farm.run(campaign_id, told.append)
            return farm.cells(campaign_id), told

    def start(self, *models: str, **how: Any) -> Driver:
        """Submit and run in another process."""
        command = [sys.executable, "-m", "tests.contract.drive", str(self.home.root)]
        process = subprocess.Popen(
            [*command, json.dumps({"models": models, **how})],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        self.drivers.append(Driver(process))
        return self.drivers[-1]

    def check(self, *, all_ended: bool = True) -> None:
        """Assert the invariants, and that no agent is left."""
        deadline = time.monotonic() + PATIENCE_S
        while checker.alive_agents(self.home) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert checker.alive_agents(self.home) == []
        checker.check(self.home, all_ended=all_ended)

    def close(self) -> None:
        for driver in self.drivers:
            driver.process.kill()
            driver.process.communicate()
