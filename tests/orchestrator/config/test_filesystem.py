from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import home
from orchestrator.config.home import FarmHome, filesystem_of
from orchestrator.errors import UnreachableError
from orchestrator.farm import Farm


def test_the_filesystem_is_the_one_of_the_deepest_mount():
    assert filesystem_of(Path("/proc/self")) == "proc"


def test_a_home_on_a_network_filesystem_is_refused_with_what_to_do(tmp_path, monkeypatch):
    here = frozenset({filesystem_of(tmp_path)})
    monkeypatch.setattr(home, "NETWORK_FILESYSTEMS", here)
    with pytest.raises(UnreachableError, match="set FARM_HOME to a local folder"):
        Farm.open(FarmHome(tmp_path / "farm"))


def test_a_home_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnreachableError, match=r"cannot be used: .*; set FARM_HOME to another"):
        Farm.open(FarmHome(tmp_path / "file" / "farm"))


def test_a_home_with_any_name_works(tmp_path):
    home = FarmHome(tmp_path / "a b?c=1#%41")
    with Farm.open(home) as opened:
        assert opened.reading.campaigns() == []
    assert home.database.is_file()
