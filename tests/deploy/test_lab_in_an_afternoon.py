"""The playbook against real machines as one story: deployed, used, disturbed, upgraded, restored, gone.

The tests build on each other, in this order. `make test-deploy` runs them, as root.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.deploy.lab import SECRETS, DeployedLab, changed
from tests.needs import REPOSITORY
from tests.orchestrator.cli.models import unary_model

pytestmark = pytest.mark.deploy

MEASURED = """\
version: 1
campaign: NAME
defaults:
  measure:
    warmup: {runs: 2, min_seconds: 0}
    blocks: 2
    rounds: 4
    slice: {seconds: SECONDS}
  reuse: never
models:
  - {id: relu, source: relu.tflite}
  - {id: mobilenet, source: "zoo:torchvision_mobilenet_v3_small"}
delegates:
  cpu: {kind: cpu}
  gpu: {kind: gpu}
  litert: {kind: litert}
"""


@pytest.fixture(scope="session")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a checkout of the commit before this one."""
    folder = tmp_path_factory.mktemp("former") / "checkout"
    subprocess.run(
        ["git", "-C", str(REPOSITORY), "worktree", "add", "--detach", str(folder), "HEAD~1"],
        capture_output=True,
        check=True,
    )
    # A commit may touch no package, and releases are named by their content.
    with (folder / "orchestrator/errors.py").open("a") as module:
        module.write("# The release before.\n")
    yield folder
    subprocess.run(["git", "-C", str(REPOSITORY), "worktree", "remove", "--force", str(folder)], check=True)


def submit(lab: DeployedLab, name: str, seconds: float = 0.2) -> None:
    """Submit a campaign of two models, and let somebody watch it in the background."""
    folder = lab.server.root / "srv/models"
    folder.mkdir(exist_ok=True)
    (folder / "relu.tflite").write_bytes(unary_model())
    (folder / "models.yaml").write_text(MEASURED.replace("NAME", name).replace("SECONDS", str(seconds / 4)))
    command = f"systemd-run --quiet --unit submit-{name} farm submit /srv/models/models.yaml"
    lab.server.ssh(f"chmod -R a+rX /srv/models; {command}")
    lab.until(lambda: name in lab.farm("status", check=False), f"campaign {name}", 60)


def finished(lab: DeployedLab, name: str) -> bool:
    states = {cell["status"] for cell in lab.cells() if cell["campaign"] == name}
    return bool(states) and not states & {"queued", "dispatched", "running"}


def all_done(lab: DeployedLab, name: str) -> None:
    """Wait for the campaign, and see that every cell has its one result."""
    lab.until(lambda: finished(lab, name), f"end of campaign {name}", 400)
    cells = [cell for cell in lab.cells() if cell["campaign"] == name]
    assert len(cells) == 2 * 5, "two models on two CPUs with two delegates, and on one OpenCL device"
    assert {cell["status"] for cell in cells} == {"done"}


def test_bare_machines_become_a_lab_and_no_secret_is_printed(lab: DeployedLab, former: Path) -> None:
    lab.release(former)
    ran = lab.play("site.yml", "--diff", "-vv")
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-1000:]
    assert [secret for secret in SECRETS.values() if secret in ran.stdout + ran.stderr] == []
    assert "FARM_ENROL_TOKEN" not in ran.stdout
    agents = json.loads(lab.farm("lab", "agents", "list", "--json"))
    assert {agent["agent"]: agent["state"] for agent in agents} == {"rack-1": "active", "rack-2": "active"}
    assert "BAD" not in lab.farm("doctor")
    submit(lab, "first")
    all_done(lab, "first")


ASK = """
import ssl, sys, urllib.error, urllib.request
trusting = ssl.create_default_context(cafile="/etc/farm/ca.pem")
asked = urllib.request.Request(sys.argv[2], method=sys.argv[1])
try:
    print(urllib.request.urlopen(asked, context=trusting).read().decode())
except urllib.error.HTTPError as error:
    print("refused with", error.code)
"""


def test_the_pages_are_served_with_the_labs_certificate(lab: DeployedLab) -> None:
    lab.server.ssh("systemctl start farm-site")

    def asked(method: str) -> str:
        url = f"https://{lab.server.name}/index.html"
        return lab.agents[0].ssh(f"python3 -c {shlex.quote(ASK)} {method} {url}").stdout

    assert "first" in asked("GET"), "the campaign that was measured"
    assert asked("PUT") == "refused with 403\n"


def test_a_second_run_changes_nothing(lab: DeployedLab) -> None:
    for options in ((), ("--check",)):
        ran = lab.play("site.yml", *options)
        assert ran.returncode == 0, ran.stdout[-3000:]
        assert changed(ran) == {"lab-server": 0, "rack-1": 0, "rack-2": 0}, ran.stdout


def test_services_are_hardly_exposed(lab: DeployedLab) -> None:
    # An agent makes the namespaces and mounts of its runners' boundary, which systemd counts as exposure.
    for machine, units, most in (
        (lab.server, ("serve", "prune", "backup", "site"), 20),
        (lab.agents[0], ("agent",), 25),
    ):
        for unit in units:
            judge = f"systemd-analyze security --offline=yes --threshold={most}"
            machine.ssh(f"{judge} /etc/systemd/system/farm-{unit}.service")


def test_runners_of_a_deployed_agent_are_confined_as_an_ordinary_users_can_be(lab: DeployedLab) -> None:
    for device in json.loads(lab.farm("devices", "--json"))["devices"]:
        facts = device["facts"]
        assert "namespaces of network, keys and mounts (by user namespace)" in facts["sandbox"]
        assert facts["sandbox_without"].startswith("an own view of processes"), (
            "of all parts it lacks this one"
        )
        assert ";" not in facts["sandbox_without"]


def test_a_reboot_and_a_pulled_cable_lose_nothing(lab: DeployedLab) -> None:
    one, two = lab.agents
    submit(lab, "disturbed", seconds=4)
    lab.until(lambda: "running" in lab.farm("status", check=False), "running cell")
    two.cable(plugged=False)
    one.stop()
    one.boot()
    two.cable(plugged=True)
    all_done(lab, "disturbed")
    lab.farm("db", "check", "--deep")


def test_a_machine_that_cannot_be_upgraded_stops_the_roll(lab: DeployedLab) -> None:
    one, two = lab.agents
    lab.release(REPOSITORY)
    broken = "/run/systemd/system/farm-agent.service.d"
    settings = "[Service]\\nExecStart=\\nExecStart=/bin/false\\n"
    one.ssh(f"mkdir -p {broken}; printf '{settings}' >{broken}/broken.conf; systemctl daemon-reload")
    before = two.ssh("readlink /opt/farm/current").stdout
    ran = lab.play("site.yml", "-e", "agent_patience_s=30")
    assert ran.returncode != 0
    assert "The agent rack-1 does not connect" in ran.stdout
    assert two.ssh("readlink /opt/farm/current").stdout == before, "the second machine was not touched"
    one.ssh(f"rm -r {broken}; systemctl daemon-reload")


def test_an_upgrade_under_load_loses_no_cell(lab: DeployedLab) -> None:
    submit(lab, "upgraded", seconds=2)
    ran = lab.play("site.yml")
    assert ran.returncode == 0, ran.stdout[-3000:]
    release = (lab.playbooks / "releases/LATEST").read_text()
    for machine in (lab.server, *lab.agents):
        assert machine.ssh("readlink /opt/farm/current").stdout.strip().endswith(release)
    all_done(lab, "upgraded")
    assert "quarantined" not in lab.farm("devices")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-e", "common_release_bytes=999999999999999"), "needs 953674316 MiB. Nothing was changed there"),
        (("-e", "common_clock_seconds=-1"), "The clock of"),
        (("--limit", "rack-2", "-e", '{"farm_opencl": ["nvidia"]}'), "needs NVIDIA's driver 470 or newer"),
    ],
    ids=["full_disk", "wrong_clock", "no_driver"],
)
def test_what_is_wrong_with_a_machine_is_said_before_anything_is_done(
    lab: DeployedLab, options: tuple[str, ...], said: str
) -> None:
    ran = lab.play("site.yml", *options)
    assert ran.returncode != 0
    assert said in " ".join(ran.stdout.split())
    assert sum(changed(ran).values()) == 0


def test_a_wrong_vault_password_is_said(lab: DeployedLab) -> None:
    (lab.playbooks / "wrong").write_text("guess")
    ran = lab.play("site.yml", password="wrong")
    assert ran.returncode != 0
    assert "Decryption failed" in ran.stdout + ran.stderr


def test_a_backup_is_taken_back_onto_a_bare_machine(lab: DeployedLab) -> None:
    lab.server.ssh("systemctl start farm-backup")
    # The timer of every night may have made one before; names begin with the time.
    *_, name = sorted(lab.server.ssh("ls /var/backups/farm").stdout.split())
    before = lab.cells()
    kept = lab.folder / "backup.tar"
    archive = subprocess.run(
        ["tar", "-C", str(lab.server.root / "var/backups/farm"), "-cf", str(kept), name], check=True
    )
    assert archive.returncode == 0
    authority = lab.server.root / "etc/farm"
    subprocess.run(
        ["tar", "-C", str(authority), "-cf", str(lab.folder / "ca.tar"), "ca", "ca.pem"], check=True
    )
    lab.server.stop()
    lab.server.make()
    lab.server.boot()
    lab.server.ssh("mkdir -p /var/backups/farm /etc/farm")
    for file, target in ((kept, "var/backups/farm"), (lab.folder / "ca.tar", "etc/farm")):
        subprocess.run(["tar", "-C", str(lab.server.root / target), "-xf", str(file)], check=True)
    ran = lab.play("site.yml", "--limit", "server")
    assert ran.returncode == 0, ran.stdout[-3000:]
    ran = lab.play("restore.yml", "-e", f"backup=/var/backups/farm/{name}")
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert lab.cells() == before
    lab.until(
        lambda: lab.farm("lab", "agents", "list").count("active") == 2, "agents that trust the restored farm"
    )
    refused = lab.play("restore.yml", "-e", "backup=/var/backups")
    assert "is no folder of farm-backup" in refused.stdout
    newer = "/var/backups/newer"
    lab.server.ssh(f"cp -a /var/backups/farm/{name} {newer}")
    lab.server.ssh(f"""sed -i 's/"schema": *"[0-9]*"/"schema": "9999"/' {newer}/version.json""")
    refused = lab.play("restore.yml", "-e", f"backup={newer}")
    said = "The backup has tables of revision 9999"
    assert (refused.returncode != 0, said in " ".join(refused.stdout.split())) == (True, True)
    assert sum(changed(refused).values()) == 0
    assert lab.cells() == before
    lab.server.ssh(f"rm -r {newer}")


def test_uninstalling_leaves_nothing(lab: DeployedLab) -> None:
    refused = lab.play("uninstall.yml")
    assert "This deletes every result" in refused.stdout
    assert lab.farm("lab", "agents", "list").count("active") == 2
    ran = lab.play("uninstall.yml", "-e", "really=yes")
    assert ran.returncode == 0, ran.stdout[-3000:]
    named = " -o ".join(f"-name '*{word}*'" for word in ("farm", "redis", "postgres"))
    for machine in (lab.server, *lab.agents):
        found = machine.ssh(f"find /etc /opt /usr/local /usr/lib /var/lib /var/backups {named}").stdout
        # The package manager's own lists name every package that there is.
        left = [path for path in found.split() if not path.startswith(("/var/lib/apt", "/var/lib/dpkg"))]
        assert left == []
        assert machine.ssh("getent passwd farm redis postgres", check=False).stdout == ""
