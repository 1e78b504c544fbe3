"""A farm with fake runners, and other processes that use it."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar

from agent.wire.messages import Device
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.farm import Farm
from orchestrator.farm.submit.submission import Submitted
from orchestrator.results.events import FarmEvent
from orchestrator.results.records import CellRecord
from tests.contract import checker
from tests.needs import REPOSITORY
from tests.orchestrator.asked import asked, model_files
from tests.services.forks import Fork

PATIENCE_S = 60.0


def agent_command(home: FarmHome) -> list[str]:
    fake = [sys.executable, "-m", "tests.contract.fake_agent"]
    return [*fake, "--state", str(home.agent), "--store", str(home.store)]


def delegates(**behaviours: str) -> dict[str, dict[str, Any]]:
    """Delegate name -> what its fake runner does; all of kind `cpu`."""
    return {name: {"kind": "cpu", "behave": how} for name, how in behaviours.items()}


@dataclass
class Driver:
    """Another process that runs a campaign."""

    process: Fork
    out: IO[str]
    err: IO[str]
    lines: list[dict[str, Any]] = field(default_factory=list)
    errors: str = ""

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first event that fits; fail if the process ends before."""
        for text in self.out:
            self.lines.append(json.loads(text))
            if wanted(self.lines[-1]):
                return self.lines[-1]
        raise AssertionError(f"ended with {self.end()} after {self.lines}: {self.errors}")

    def until_kind(self, kind: str) -> dict[str, Any]:
        return self.until(lambda line: line["kind"] == kind)

    def until_started(self, delegate: str) -> str:
        """Return the id of this delegate's cell, once its runner has started."""
        found = self.until(lambda line: line["kind"] == "started" and line["delegate"] == delegate)
        return str(found["cell"])

    def signal(self, number: signal.Signals) -> int:
        """Send a signal; the exit code."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> int:
        """Wait for the end; the exit code. What it tells until then is less than a pipe holds."""
        code = self.process.wait(PATIENCE_S)
        self.lines += [json.loads(text) for text in self.out]
        self.err.seek(0)
        self.errors = self.err.read()
        return code

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.out.close()
        self.err.close()

    def kinds(self) -> list[str]:
        return [line["kind"] for line in self.lines]


@dataclass
class Lab:
    """One farm home under test. `config` names its database, and its broker where it has one."""

    home: FarmHome
    config: LabConfig = field(default_factory=LabConfig)
    drivers: list[Driver] = field(default_factory=list)

    def open(self) -> Farm:
        return Farm.open(self.home, lab=self.config, command=agent_command(self.home))

    agent_is_well: ClassVar[str] = "host-cpu, pocl"
    """What `farm doctor` says of an agent that is well."""

    trusts_its_agent: ClassVar[bool] = True
    """Whether the farm hands on what its one agent says of references: its own child's word counts."""

    def device_id(self, name: str) -> str:
        """Return the farm's name for a device of the agent."""
        return name

    def plug(self, *devices: Device) -> None:
        """Set the devices that the agent has from its next start on."""
        self.home.agent.mkdir(parents=True, exist_ok=True)
        text = json.dumps([device.model_dump(mode="json") for device in devices])
        (self.home.agent / "devices.json").write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        """The environment with which a process uses this farm."""
        chosen = {"FARM_HOME": str(self.home.root)}
        if self.config.database_url is not None:
            chosen["FARM_DATABASE_URL"] = self.config.database_url
        if self.config.broker_url is not None:
            chosen["FARM_BROKER_URL"] = self.config.broker_url
        return chosen

    def submit(self, farm: Farm, *models: str, **how: Any) -> Submitted:
        campaign = asked(models, how.pop("delegates"), **how)
        return farm.submission.submit(farm.submission.plan(campaign, model_files(*models)))

    def run(self, *models: str, **how: Any) -> tuple[list[CellRecord], list[FarmEvent]]:
        """Submit and run to the end in this process."""
        told: list[FarmEvent] = []
        with self.open() as farm:
            submitted = self.submit(farm, *models, **how)
            farm.running.run(submitted, told.append)
            return farm.reading.cells(submitted.campaign_id), told

    def start(self, *models: str, **how: Any) -> Driver:
        """Submit and run in another process."""
        command = ["tests.contract.drive:main", str(self.home.root), json.dumps({"models": models, **how})]
        reading, writing = os.pipe()
        err = tempfile.TemporaryFile("w+")  # noqa: SIM115  # the driver's: it closes it
        with Path(os.devnull).open("rb") as nothing, os.fdopen(writing, "wb") as out:
            files = (nothing.fileno(), out.fileno(), err.fileno())
            process = Fork(command, files, REPOSITORY, os.environ | self.environment)
        self.drivers.append(Driver(process, os.fdopen(reading), err))
        return self.drivers[-1]

    def until(self, happens: Callable[[], bool], what: str) -> None:
        """Wait for what an agent does by itself."""
        deadline = time.monotonic() + PATIENCE_S
        while not happens():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)

    def check(self, *, all_ended: bool = True) -> None:
        """Assert the invariants, and that no agent is left."""
        self.until(lambda: not checker.alive_agents(self.home), "no agent is left")
        checker.check(self.home, self.config.database_url, all_ended=all_ended)

    def close(self) -> None:
        for driver in self.drivers:
            driver.close()
