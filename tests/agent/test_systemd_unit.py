"""`examples/farm-agent.service`: what systemd says of it, and that it is what docs/lab.md describes."""

from __future__ import annotations

import re
import shutil
import subprocess

from agent.daemon import UPGRADE_EXIT
from tests import needs

UNIT = needs.REPOSITORY / "examples" / "farm-agent.service"
MOST_EXPOSURE = 26
"""In tenths; systemd calls a service OK from 1.0 to 4.9."""


def test_systemd_knows_every_setting_and_has_little_to_say_against_it(tmp_path) -> None:
    tool = shutil.which("systemd-analyze") or needs.absent("no systemd-analyze on this machine")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/farm/bin/farm-agent", "/bin/true"))
    verified = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run(
        [tool, "security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stdout[-200:]


def test_an_agent_of_the_unit_can_close_the_whole_boundary_of_an_ordinary_user() -> None:
    tool = shutil.which("systemd-analyze") or needs.absent("no systemd-analyze on this machine")
    listed = subprocess.run([tool, "syscall-filter"], capture_output=True, text=True, check=True).stdout
    groups: dict[str, list[str]] = {}
    for line in listed.splitlines():
        if line.startswith("@"):
            group = groups.setdefault(line.strip(), [])
        elif line.startswith("    ") and "#" not in line:
            group.append(line.strip())

    def calls_of(word: str) -> set[str]:
        return set().union(*map(calls_of, groups[word])) if word in groups else {word}

    allowed: set[str] = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text(), re.MULTILINE):
        named = set().union(*map(calls_of, line.removeprefix("~").split()))
        allowed = allowed - named if line.startswith("~") else allowed | named
    needed = (
        "unshare mount prctl capset seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self"
    )
    assert set(needed.split()) <= allowed
    assert not {"umount2", "move_mount", "pivot_root", "setresuid", "bpf", "ptrace", "chown"} & allowed
    assert "RestrictNamespaces=user mnt ipc net" in UNIT.read_text().splitlines()


def test_the_unit_is_what_the_documents_say_and_the_agent_expects() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert settings["RestartPreventExitStatus"] == str(UPGRADE_EXIT)
    text = (needs.REPOSITORY / "docs" / "lab.md").read_text()
    for name in ("Restart", "RestartPreventExitStatus", "KillMode", "TimeoutStopSec", "OOMPolicy"):
        assert f"`{name}={settings[name]}`" in text
    assert f"`examples/{UNIT.name}`" in text
