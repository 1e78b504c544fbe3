"""A farm's home is its user's alone, from the first file on; what others are to read lies outside of it."""

from __future__ import annotations

import stat
from pathlib import Path

from tests.orchestrator.cli.models import unary_model

CAMPAIGN = """\
version: 1
campaign: private
defaults:
  measure: {warmup: {runs: 1, min_seconds: 0}, blocks: 1, rounds: 3, slice: {seconds: 0}}
models:
  - {id: private, source: private.tflite}
delegates:
  cpu: {kind: cpu, threads: 1}
"""


def exposed(root: Path) -> list[str]:
    """Entries that the group or others may use, with their modes; links have no mode of their own."""
    found = []
    for path in (root, *sorted(root.rglob("*"))):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & 0o077:
            found.append(f"{path.relative_to(root)} {stat.S_IMODE(mode):o}")
    return found


def test_all_that_a_campaign_leaves_behind_is_its_users_alone_and_only_the_site_is_public(shell) -> None:
    shell.write("private.tflite", unary_model())
    shell.write("models.yaml", CAMPAIGN)
    ran = shell.farm("submit", "models.yaml")
    assert ran.code == 0, ran.err
    assert shell.farm("db", "backup", "copy.db").code == 0
    assert shell.farm("site", "build", "--out", "www/farm").code == 0
    assert (shell.folder / "copy.db").stat().st_mode & 0o777 == 0o600
    names = {path.name for path in shell.home.rglob("*")}
    assert {"farm.db", "journal.db", "runs.log", "agent.log", "scheduler.lock"} <= names
    assert exposed(shell.home) == []
    site = shell.folder / "www" / "farm"
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (site.parent, site, *site.rglob("*"))}
    assert modes == {0o755, 0o644}


def test_a_home_of_an_older_farm_is_closed_and_one_that_others_could_write_is_refused(shell) -> None:
    assert shell.farm("status").code == 0
    shell.home.chmod(0o755)
    (shell.home / "farm.db").chmod(0o644)
    ran = shell.farm("status")
    assert ran.code == 0
    assert "could be read by others" in ran.err
    assert exposed(shell.home) == []
    shell.home.chmod(0o777)
    ran = shell.farm("status")
    assert ran.code == 4
    assert f"others can write in {shell.home}" in ran.err
    assert f"chmod -R go-rwx {shell.home}" in shell.farm("doctor").out
