"""Attacks from inside a runner: code of a stranger that an agent runs, here as a delegate."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.processes.sandbox.limits import USERS
from tests.agent.processes.test_sandbox import WITHOUT_NAMESPACES, ordinary, usable
from tests.attack.hostile_delegate import LEFT_OVER
from tests.attack.lab import CAMPAIGN, VICTIM, AttackLab
from tests.needs import REPOSITORY
from tests.orchestrator.cli.models import unary_model
from tests.services.processes import Server

pytestmark = pytest.mark.attack

HOSTS = {"rack-3": (), "rack-4": ordinary(), "rack-5": WITHOUT_NAMESPACES}
"""Agents with the delegate: of this user, of an ordinary one, and in a container that has no namespaces."""
ORDINARY = 1000
"""The user id that `ordinary` runs a command as."""
BAIT = {
    "FARM_DATABASE_URL": "x",
    "FARM_READ_TOKEN": "x",
    "FARM_BROKER_URL": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
}
"""What an agent's environment may hold and no runner may see."""
FACTS = {
    "signal": "signals kept inside",
    "fork bomb": "a limit on processes",
    "reach": "namespaces of network",
}
"""Beginning of an attack's name -> what a result says where this kernel cannot stop it."""

OUTSIDE = (
    Path("/tmp/owned-by-a-runner"),
    REPOSITORY / "owned",
    Path.home() / "owned-by-a-runner",
    Path("/etc/profile.d/owned.sh"),
)
"""What a runner tries to leave behind."""


@dataclass
class Installed:
    """An environment with the delegate in it, and an agent that runs there."""

    lab: AttackLab
    name: str
    agent: Server | None = None

    @property
    def folder(self) -> Path:
        """The environment."""
        return self.lab.folder / f"stranger-{self.name}"

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def state(self) -> Path:
        return self.lab.folder / self.name

    def farm(self, program: str, *arguments: str) -> list[str]:
        return [str(self.python), "-P", "-c", f"from {program}.cli import main; main()", *arguments]

    def start(self) -> None:
        lab, inside = self.lab, HOSTS[self.name]
        lab.enrol(self.name).write(self.state)
        home = lab.folder / f"home-{self.name}"
        home.mkdir(mode=0o700)
        user = ORDINARY if inside == ordinary() else -1
        for path in (home, self.state, *self.state.rglob("*")):
            os.chown(path, user, user)
        times = {name: text for name, text in lab.environment.items() if name.endswith("_S")}
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "FARM_LEASES": str(home / "leases")}
        environment |= {"SSL_CERT_FILE": lab.environment["FARM_TLS_CA"], **times, **BAIT}
        command = [*inside, *self.farm("agent", "start", "--state", str(self.state))]
        self.agent = Server(command, lab.folder / f"{self.name}.log", environment)
        lab.services.append(self.agent)
        lab.until(lambda: lab.heard_at(self.name), "the agent with the delegate")

    def measure(self) -> dict:
        """Return the result of one cell by the delegate."""
        (self.lab.folder / "0.tflite").write_bytes(unary_model())
        text = CAMPAIGN.replace("MODELS", "  - {id: m, source: 0.tflite}").replace("KIND", "hostile")
        text = text.replace("devices:", "  honest: {kind: cpu}\nbaseline: {delegate: honest}\ndevices:")
        (self.lab.folder / "models.yaml").write_text(text.replace("DEVICE", f"{self.name}.host-cpu"))
        ran = subprocess.run(
            self.farm("orchestrator", "submit", "models.yaml", "--force"),
            cwd=self.lab.folder,
            env=self.lab.environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr + self.lab.last_words()
        query = (
            "SELECT cell.cell_id FROM attempt JOIN cell USING (cell_id) WHERE cell.delegate = 'chosen' AND "
            f"attempt.device_id = '{self.name}.host-cpu' ORDER BY attempt.dispatched_at"
        )
        told = self.lab.call("show", self.lab.rows(query)[-1][0], "--json")
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    def profile(self) -> dict[str, str]:
        """Let the user of the farm look into a model with the delegate; return what that one found."""
        ran = subprocess.run(
            self.farm("orchestrator", "model", "profile", "0.tflite", "--delegate=hostile", "--rounds=1"),
            cwd=self.lab.folder, env={**self.lab.environment, **BAIT}, capture_output=True, text=True,
            timeout=240, check=False,
        )  # fmt: skip
        found = [line for line in ran.stderr.splitlines() if line.startswith("{")]
        assert found, ran.stderr
        return json.loads(found[-1])


@pytest.fixture(scope="module", params=list(HOSTS), ids=["this user", "an ordinary user", "no namespaces"])
def installed(lab, request):
    """Return an agent's environment with the delegate in it."""
    inside = HOSTS[request.param]
    if inside and not usable(inside):
        pytest.skip("this user cannot run an agent so")
    made = Installed(lab, request.param)
    folder = made.folder
    venv.create(folder, with_pip=False)
    packages = folder / f"lib/python{sysconfig.get_python_version()}/site-packages"
    (packages / "farm.pth").write_text(f"{REPOSITORY}\n{sysconfig.get_paths()['purelib']}\n")
    shutil.copy(Path(__file__).with_name("hostile_delegate.py"), packages)
    info = packages / "hostile_delegate-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile-delegate\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[delegate_farm.delegates]\nhostile = hostile_delegate:DESCRIPTOR\n"
    )
    for path in OUTSIDE:
        path.unlink(missing_ok=True)
    written = {"import": [*map(str, OUTSIDE), str(made.state / "owned")]}
    (packages / "targets.json").write_text(json.dumps(written))
    made.start()
    (packages / "targets.json").write_text(json.dumps(written | targets(lab, made)))
    return made


@pytest.fixture(scope="module")
def found(installed):
    """Return the outcomes of the delegate's tries, by name, with the facts of its result."""
    cell = installed.measure()
    assert installed.agent.running
    return {**cell["settings"], "facts": cell["facts"], "without": cell["facts"].get("sandbox_without", "")}


def targets(lab, installed: Installed) -> dict[str, dict]:
    """Return the targets of the delegate."""
    state, agent = installed.state, installed.agent.pid
    return {
        "read": {
            "credentials": str(state / "credentials.json"),
            "journal": str(state / "journal.db"),
            "another agent's credentials": str(lab.state_of(VICTIM) / "credentials.json"),
            "the farm's key": str(lab.home / "keys" / "farm.key"),
            "shadow": "/etc/shadow",
            "the agent's environment": f"/proc/{agent}/environ",
            "the agent's memory": f"/proc/{agent}/mem",
            "the farm's environment": f"/proc/{lab.serve.pid}/environ",
        },
        "write": {
            "the agent's state": str(state / "owned"),
            "the journal": str(state / "journal.db"),
            "the farm's home": str(lab.home / "owned"),
            "the product": str(OUTSIDE[1]),
            "the home folder": str(OUTSIDE[2]),
            "a start-up file": str(OUTSIDE[3]),
        },
        "reach": {
            "endpoint": list(lab.address),
            "broker": ["127.0.0.1", lab.redis.port],
            "broker's socket": str(lab.redis.socket),
            "database's socket": str(lab.postgres.folder / ".s.PGSQL.5432"),
        },
        "signal": {"agent": agent, "farm": lab.serve.pid},
        "neighbour": "f" * 32,
        "environment": sorted(BAIT),
    }


def open_ways(found: dict[str, str], kind: str) -> dict[str, str]:
    """Return Tries of one kind that were not refused, unless the result itself says that this kernel
    cannot.
    """
    assert any(name.startswith(kind) for name in found), "it was not tried"
    said = FACTS.get(kind)
    if said and said in found["without"]:
        return {}
    return {
        name: got for name, got in found.items() if name.startswith(kind) and not got.startswith("refused")
    }


def test_reading_credentials_and_other_processes(found):
    """No such file or memory can be opened: credentials, journal, keys, passwords, environments."""
    assert open_ways(found, "read ") == {}


def test_writing_outside_the_attempts_folder(found, lab):
    """Nothing outside can be changed, and what is written to /tmp is seen by nobody else."""
    assert open_ways(found, "write ") == {}
    assert [path for path in OUTSIDE if path.exists()] == []


def test_reaching_the_network(found):
    """Neither the endpoint, the broker nor the database is reached, by TCP or by a socket of this host."""
    assert open_ways(found, "reach") == {}


def test_signals_to_the_agent_and_the_farm(found):
    """Refused; where the kernel cannot, the result says so."""
    assert open_ways(found, "signal") == {}


@pytest.mark.parametrize("what", ["mode", "times", "attributes"])
def test_opening_files_to_others_by_their_paths(found, what):
    """No file's mode, times or access list can be changed, whoever it belongs to."""
    assert open_ways(found, f"{what} of") == {}


def test_limits_of_the_agent(found):
    """A runner sets no limit by which its agent would end."""
    assert open_ways(found, "limit ") == {}


def test_slowing_the_agent_and_its_attempts(found):
    """Priority and scheduler of the agent, which other attempts inherit, stay as they are."""
    assert open_ways(found, "slow ") == {}


def test_memory_queues_and_semaphores_that_outlive_a_runner(found):
    """Nothing that is shared by a key can be made."""
    assert open_ways(found, "keep ") == {}


def test_the_agents_environment(found):
    """No variable of the agent that is not on the list is there."""
    assert found["environment"] == ""


def test_more_rights(found):
    """No program can give new rights, and nothing can be mounted."""
    assert found["new privileges"] == "1"
    assert open_ways(found, "mount") == {}


def test_filling_the_disk(found):
    """A file has a limit."""
    assert open_ways(found, "large file") == {}


def test_a_fork_bomb(found):
    """The number of processes has a limit; where there can be none, the result says so."""
    assert open_ways(found, "fork bomb") == {}


def test_rewriting_what_another_arm_reports(found):
    """Neither the other arm of the block, nor what is decided of this one, nor its job is changed."""
    arms = 2 if "each attempt's own" in found["facts"]["sandbox"] else 1
    assert len([name for name in found if name.startswith("rewrite")]) == arms + 2
    assert open_ways(found, "rewrite") == {}


def test_what_a_runner_leaves_behind(found, installed):
    """Deep and closed folders and links go with the attempt, and nothing of the host is touched."""
    assert found["mess"] == "got None"
    work = installed.state / "work"
    installed.lab.within(20, lambda: not list(work.iterdir()), "the attempt's folders are gone")
    assert not Path("/etc/nologin").exists()
    assert installed.agent.running


def test_a_process_under_a_neighbours_mark(found):
    """It ends with the attempt that started it."""
    assert found["left over"].startswith("got")
    assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if LEFT_OVER in text(path)] == []


def test_capabilities_and_user(found):
    """It has no capability, and where the agent is root, a user of its own."""
    assert {int(word, 16) for word in found["capabilities"].split(",")} == {0}
    if "each attempt's own" in found["facts"]["sandbox"]:
        assert USERS.first <= int(found["user"]) <= USERS.last


def test_what_is_imported_by_the_probe(installed, found):
    """Neither the probe, nor the check, nor who decides writes anything where a delegate's module wants."""
    checked = subprocess.run(
        installed.farm("agent", "check"), env=os.environ, capture_output=True, text=True, check=False
    )
    assert checked.returncode in (0, 1), checked.stderr
    assert [path for path in (*OUTSIDE, installed.state / "owned") if path.exists()] == []


def test_a_tool_that_runs_a_strangers_model(installed, found):
    """`farm model profile` runs it within the boundary: no key, no token, no network, nothing written."""
    seen = {**installed.profile(), "without": ""}
    for kind in ("read ", "write ", "reach", "signal", "limit ", "slow ", "keep ", "mode of", "mount"):
        assert open_ways(seen, kind) == {}, kind
    assert seen["environment"] == ""
    assert [path for path in OUTSIDE if path.exists()] == []


def text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_the_lab_goes_on(found, lab):
    """Another agent on the same machine measures a model."""
    lab.measure()
