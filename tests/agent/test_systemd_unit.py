"""`examples/farm-agent.service`: what systemd says of it, and that it is what docs/lab.md describes."""

from __future__ import annotations

import re
import shutil
import subprocess

from agent.daemon import UPGRADE_EXIT
from tests import needs

UNIT = needs.REPOSITORY / "examples" / "farm-agent.service"
MOST_EXPOSURE = 22
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


def test_the_unit_is_what_the_documents_say_and_the_agent_expects() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    assert settings["RestartPreventExitStatus"] == str(UPGRADE_EXIT)
    text = (needs.REPOSITORY / "docs" / "lab.md").read_text()
    for name in ("Restart", "RestartPreventExitStatus", "KillMode", "TimeoutStopSec", "OOMPolicy"):
        assert f"`{name}={settings[name]}`" in text
    assert f"`examples/{UNIT.name}`" in text
