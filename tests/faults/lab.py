"""A whole lab for one scenario: server, broker and database, two hosts with agents, each on its own machine.

Times are compressed by the product's own settings. Every scenario has a seed; `FAULT_SEED` sets another.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.processes.sandbox.boundary import READ_VARIABLE, WRITE_VARIABLE
from agent.wire.credentials import FILE
from orchestrator.config.address import Address
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db.engine.sessions import Database
from orchestrator.trust.credentials_service import CredentialsService
from tests.faults import invariants, mutations, truth
from tests.faults.machines import ENTRY, AgentMachine, Held, Machine, fake_devices, plain_environment
from tests.faults.runner import DEVICES_VARIABLE, TRUTH_FILE
from tests.faults.view import View
from tests.services.network import Network, Node
from tests.services.postgres import PostgresCluster
from tests.services.redis import RedisServer

BOUND_S = 60.0
"""I1 and I9: everything has ended, and work goes on, within so long."""

TIMES = {
    "FARM_HEARTBEAT_S": "0.5",
    "FARM_SUSPECT_S": "2.5",
    "FARM_LOST_S": "6",
    "FARM_PATIENCE_S": "2",
    "FARM_SWEEP_S": "0.3",
    "FARM_REAPER_S": "0.5",
    "FARM_BACKOFF_S": "1",
    "FARM_WATCHDOG_S": "4",
    "FARM_RESEND_S": "3",
}
LISTEN_PORT = 8460
SUBMIT = Path(__file__).with_name("submit.py")


def until(happens: Callable[[], Any], what: str, limit_s: float = BOUND_S) -> Any:
    """Wait until something is truthy; its value."""
    deadline = time.monotonic() + limit_s
    while not (found := happens()):
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)
    return found


@dataclass
class FaultLab:
    """Redis and the database have a machine, `farm lab serve` has one, and so has every agent.

    Without `postgres` the database is SQLite in the server's home.
    """

    folder: Path
    network: Network
    redis: RedisServer
    seed: int
    postgres: PostgresCluster | None = None
    database_name: str = ""
    mutation: str = ""
    times: dict[str, str] = field(default_factory=TIMES.copy)
    agents: dict[str, AgentMachine] = field(default_factory=dict)
    campaign_count: int = 0
    at_rest: dict[int, Held] = field(default_factory=dict)
    """Process id -> what it had before any fault."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        environment = {
            **self.times,
            "FARM_BROKER_URL": self.redis.url,
            "FARM_LISTEN": f"{self.server_node.address}:{LISTEN_PORT}",
        }
        self.server = Machine(self.server_node, self.folder / "server", ("farm", "lab", "serve"), environment)
        self.live_in(self.folder / "server" / "home")

    def take_time(self, **seconds: float) -> None:
        """Before the start: other times than `TIMES`, by the name of their variable."""
        self.times |= {name: str(value) for name, value in seconds.items()}
        self.server.environment |= self.times

    def live_in(self, home: Path) -> None:
        """Before the start: where the server keeps its data."""
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        environment = self.server.environment
        environment["FARM_HOME"] = str(home)
        if self.postgres is None:
            self.database = Database.connect(home / "farm.db")
        else:
            self.database = Database.connect(self.postgres.socket_url(self.database_name), self.folder)
            environment["FARM_DATABASE_URL"] = self.postgres.url(self.database_name)
        self.view = View(self.database, lambda: [state for host in self.hosts for state in host])

    @property
    def server_node(self) -> Node:
        return self.network.nodes["server"]

    @property
    def hosts(self) -> list[list[Path]]:
        """State folders of agents by host: agents on one machine share its devices' locks."""
        found: dict[str, list[Path]] = defaultdict(list)
        for agent in self.agents.values():
            found[agent.silicon].append(agent.state)
        return list(found.values())

    @property
    def machines(self) -> list[Machine]:
        return [self.server, *self.agents.values()]

    @property
    def logs(self) -> list[Path]:
        return [machine.log for machine in self.machines]

    def start(self, *names: str, devices: int = 2) -> FaultLab:
        """Bring up the server and agents (`agA`, `agB`), and wait until their devices are known."""
        self.start_server()
        for name in names or ("agA", "agB"):
            self.add_agent(name, devices=devices).start()
        self.until_heard(*self.agents)
        return self

    def start_server(self, **environment: str) -> None:
        """Start `farm lab serve` and wait until it schedules."""
        self.server.start(**{mutations.VARIABLE: self.mutation, **environment})
        until(self._schedules, "farm lab serve schedules")
        if self.mutation == mutations.UNIQUE_INDEX:
            mutations.drop_unique_indexes(self.database)

    def add_agent(
        self,
        name: str,
        node: str = "",
        devices: int = 2,
        folder: Path | None = None,
        *,
        real: bool = False,
    ) -> AgentMachine:
        """Add an enrolled agent that does not run yet, on its own machine or on `node`.

        `real`: with the product's runner on the CPU of this machine, which such agents share.
        """
        folder = folder or self.folder / name
        host = self.network.nodes[node or name]
        silicon = "this-machine" if real else host.name
        environment = {
            **self.times,
            "FARM_AGENT_STATE": str(folder / "state"),
            "FARM_LEASES": str(self.folder / f"leases-{silicon}"),
            WRITE_VARIABLE: str(folder / "state" / TRUTH_FILE),
            mutations.VARIABLE: self.mutation,
        }
        agent = AgentMachine(host, folder, ("farm-agent", "start"), environment, name=name, silicon=silicon)
        if not real:
            environment[DEVICES_VARIABLE] = environment[READ_VARIABLE] = str(folder / "devices.json")
            agent.plug_in(*fake_devices(name, devices))
        self.agents[name] = agent
        self._enrol(agent)
        return agent

    def add_copy(self, name: str, node: str) -> AgentMachine:
        """Copy an agent's disk to another machine: its name and its secrets, silicon of its own."""
        original, folder = self.agents[name], self.folder / f"copy-of-{name}"
        own = {"FARM_AGENT_STATE": str(folder / "state"), "FARM_LEASES": str(folder / "leases")}
        own[DEVICES_VARIABLE] = own[READ_VARIABLE] = str(folder / "devices.json")
        environment = {**original.environment, **own}
        host = self.network.nodes[node]
        copy = AgentMachine(host, folder, original.arguments, environment, name=name, silicon=node)
        copy.plug_in(*fake_devices(name, 1))
        copy.state.mkdir()
        shutil.copy(original.state / FILE, copy.state)
        self.agents[folder.name] = copy
        return copy

    def call(self, *arguments: str, limit_s: float = BOUND_S) -> subprocess.CompletedProcess[str]:
        """Run a `farm` command on the server's machine."""
        return self._call(self.server, ["farm", *arguments], limit_s)

    def farm(self, *arguments: str, limit_s: float = BOUND_S) -> Any:
        """Run a `farm` command that must end well; return its JSON."""
        done = self.call(*arguments, "--json", limit_s=limit_s)
        assert done.returncode == 0, f"farm {' '.join(arguments)}: {done.stderr or done.stdout}"
        return json.loads(done.stdout)

    def until_heard(self, *names: str) -> None:
        """Until every device of these agents is there."""
        ids = {device_id for name in names for device_id in self.agents[name].device_ids()}

        def present() -> bool:
            for name in names:
                assert self.agents[name].running, self.agents[name].log.read_text()[-3000:]
            return ids <= self.view.device_ids()

        until(present, f"the devices of {', '.join(names)}")
        self.at_rest |= {machine.pid: machine.held() for machine in self.machines if machine.running}

    def start_farm(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a `farm` command that nobody waits for."""
        return self._start([str(ENTRY), "farm", *arguments])

    def stop_links(self, name: str, number: signal.Signals) -> None:
        """SIGSTOP or SIGCONT to the process that speaks with the broker for this agent."""
        until(self.agents[name].link_pids, f"{name} has a link")
        for pid in self.agents[name].link_pids():
            os.kill(pid, number)

    def submit(
        self,
        models: int = 5,
        *,
        soft_limit_s: float = 900.0,
        model_bytes: int = 20,
        **delegates: dict[str, Any],
    ) -> str:
        """Store a campaign, one cell per model, delegate and device; its id.

        Delegate name -> what its runner does (`runner.py`); all are of kind `gpu`.
        """
        submitting = self.start_submitting(
            models, soft_limit_s=soft_limit_s, model_bytes=model_bytes, **delegates
        )
        told, errors = submitting.communicate(timeout=BOUND_S)
        assert submitting.returncode == 0, errors
        return told.strip()

    def start_submitting(
        self,
        models: int,
        *,
        soft_limit_s: float = 900.0,
        model_bytes: int = 20,
        **delegates: dict[str, Any],
    ) -> subprocess.Popen[str]:
        """Submit as `submit` does, without waiting for the end."""
        self.campaign_count += 1
        wanted = {
            "name": f"campaign-{self.campaign_count}",
            "soft_limit_s": soft_limit_s,
            "model_bytes": model_bytes,
            "models": [f"m{self.campaign_count}-{index:03}" for index in range(models)],
            "delegates": {name: {"kind": "gpu", **options} for name, options in delegates.items()}
            or {"gpu": {}},
        }
        return self._start([str(SUBMIT), json.dumps(wanted)])

    def until_running(self, agent: str = "agA", limit_s: float = BOUND_S) -> truth.Fact:
        """Wait for a measurement on this agent, and return it."""
        found: list[truth.Fact] = until(self.agents[agent].running_attempts, f"{agent} measures", limit_s)
        return found[0]

    def until_done(self, count: int, limit_s: float = BOUND_S) -> None:
        """Until so many cells are done."""
        until(lambda: self.view.counts()["done"] >= count, f"{count} cells are done", limit_s)

    def finish(self, limit_s: float = BOUND_S) -> Counter[str]:
        """Wait until every cell has ended and hold the invariants against it; states -> cells."""
        deadline = time.monotonic() + limit_s
        while (left := self.view.open_cells()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, (
            f"I1, I9 (seed {self.seed}): {len(left)} open after {limit_s:g} s, {self._last_words()}"
        )
        until(lambda: not any(map(self.owed, self.agents)), "every result has its receipt")
        self.check()
        return self.view.counts()

    def hoarders(self) -> dict[str, tuple[Held, Held]]:
        """Machines that have far more than before the faults: then and now."""
        known = [machine for machine in self.machines if machine.running and machine.pid in self.at_rest]
        had = {machine.folder.name: (self.at_rest[machine.pid], machine.held()) for machine in known}
        return {name: (then, now) for name, (then, now) in had.items() if now.is_far_above(then)}

    def owed(self, name: str) -> set[str]:
        """Results that a running agent keeps for want of a receipt."""
        return self.kept(name) if self.agents[name].running else set()

    def kept(self, name: str) -> set[str]:
        """Results without a receipt in an agent's journal, whether it runs or not."""
        return truth.spooled(self.agents[name].state)

    def check(self) -> None:
        """Hold every invariant against what is there now."""
        self._until_all_is_given_back()
        found = invariants.gather(self.database, self.home / "store", self.hosts, self.logs)
        broken = invariants.violations(found)
        assert not broken, f"seed {self.seed}: " + "\n".join(broken)

    def close(self) -> None:
        """End everything that this lab started, however it left its parents."""
        known = {fact.attempt_id for fact in self.view.facts()}
        for machine in reversed(self.machines):
            machine.close()
        for attempt_id, pids in truth.alive().items():
            for pid in pids if attempt_id in known else ():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.database.close()

    def _until_all_is_given_back(self, limit_s: float = 20.0) -> None:
        deadline = time.monotonic() + limit_s
        while hoarders := self.hoarders():
            assert time.monotonic() < deadline, f"I8 (seed {self.seed}): {hoarders}"
            time.sleep(0.2)

    def _enrol(self, agent: AgentMachine) -> None:
        """Give an agent its credentials; models and samples go over HTTP."""
        lab = LabConfig(
            broker_url=self.redis.socket_url,
            agent_broker_url=self.redis.url,
            address=Address.read({"listen": self.server.environment["FARM_LISTEN"]}),
        )
        CredentialsService.open(FarmHome(self.home), lab, self.database).enrol_here(agent.name, agent.state)

    def _call(
        self, machine: Machine, arguments: list[str], limit_s: float, program: Path = ENTRY
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            machine.node.command([sys.executable, str(program), *arguments]),
            env={**plain_environment(), **machine.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.server.node.command([sys.executable, *command]),
            env={**plain_environment(), **self.server.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _schedules(self) -> bool:
        assert self.server.running, self.server.log.read_text()[-3000:]
        return self.server.says("scheduling on")

    def _last_words(self) -> str:
        words = [f"{path.parent.name}: {path.read_text(errors='replace')[-1500:]}" for path in self.logs]
        return "\n".join([str(self.view.counts()), *words])
