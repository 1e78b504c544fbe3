"""A site is replaced at once, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.site.build import build_site
from orchestrator.site.publish import replaced_folder
from tests.needs import REPOSITORY
from tests.orchestrator.site.records import HandMadeFarm, demo_farm

MARKER = "data/site.json"

BUILD_FOREVER = """
import sys
import time
from pathlib import Path
from orchestrator.site.build import build_site
from tests.orchestrator.site.records import HandMadeFarm, demo_farm
farm = demo_farm()
farm = HandMadeFarm(farm.campaign_list[:1], farm.cell_lists, {})
while True:
    build_site(farm, Path(sys.argv[1]))
    print("built", flush=True)
"""


def _site(folder: Path, text: str) -> None:
    with replaced_folder(folder, MARKER) as fresh:
        (fresh / "data").mkdir()
        (fresh / MARKER).write_text("{}")
        (fresh / "index.html").write_text(text)


def _beside(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.parent.iterdir() if "building" in p.name)


def test_new_site_takes_the_place_of_the_old_one(tmp_path):
    site = tmp_path / "deep" / "site"
    _site(site, "old")
    (site / "page-of-the-old-one.html").write_text("gone with it")
    _site(site, "new")
    assert sorted(p.name for p in site.iterdir()) == ["data", "index.html"]
    assert (site / "index.html").read_text() == "new"
    assert site.stat().st_mode & 0o777 == 0o755
    assert not _beside(site)


def test_failed_build_leaves_the_old_site_whole(tmp_path):
    site = tmp_path / "site"
    _site(site, "old")

    class BrokenFarm(HandMadeFarm):
        def samples(self, cell):
            raise ZeroDivisionError

    farm = demo_farm()
    with pytest.raises(ZeroDivisionError):
        build_site(BrokenFarm(farm.campaign_list, farm.cell_lists), site)
    assert (site / "index.html").read_text() == "old"
    assert not _beside(site)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch], ids=["folder", "file"])
def test_what_is_not_a_site_is_not_replaced(tmp_path, make):
    target = tmp_path / "thesis"
    make(target)
    if target.is_dir():
        (target / "chapter1.tex").write_text("years of work")
    with pytest.raises(UsageError, match="thesis"):
        build_site(HandMadeFarm(), target)
    assert target.is_file() or (target / "chapter1.tex").read_text() == "years of work"


def test_empty_folder_is_taken(tmp_path):
    assert build_site(HandMadeFarm(), tmp_path / "empty").is_file()
    (tmp_path / "other").mkdir()
    assert build_site(HandMadeFarm(), tmp_path / "other").is_file()


@pytest.mark.slow
def test_reader_always_finds_a_whole_site_while_it_is_rebuilt_and_builds_are_killed(tmp_path):
    site = tmp_path / "site"
    for builds in (5, 1, 2):
        child = subprocess.Popen(
            [sys.executable, "-c", BUILD_FOREVER, str(site)], stdout=subprocess.PIPE, cwd=REPOSITORY
        )
        with child:
            assert child.stdout.readline() == b"built\n"
            os.set_blocking(child.stdout.fileno(), False)
            finished = 0
            while finished < builds:
                assert _whole(site)
                finished += (child.stdout.read() or b"").count(b"built")
                assert child.poll() is None
                time.sleep(0.001)
            child.send_signal(signal.SIGKILL)
        assert child.returncode == -signal.SIGKILL
        assert _whole(site)
    build_site(HandMadeFarm(), site)
    assert not _beside(site), "what the killed builds left is removed"


def _whole(site: Path) -> bool:
    """Check that the entry page is complete and the manifest, written last, is there. A reader that meets the
    instant of the exchange, with the old folder already open, looks again.
    """
    for _ in range(3):
        try:
            page = (site / "index.html").read_text(encoding="utf-8")
            manifest = (site / MARKER).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue
        return page.endswith("</html>\n") and manifest.endswith("}\n")
    return False
