"""The times of a lab: where a wrong one is said to come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.errors import UsageError


def test_a_wrong_time_is_looked_for_where_it_was_read(tmp_path: Path) -> None:
    settings = tmp_path / "farm.toml"
    settings.write_text("[times]\nlost_s = -1\n")
    with pytest.raises(UsageError, match=r"farm\.toml: lost_s: -1 is not"):
        LabConfig.load(FarmHome(tmp_path), {"FARM_LOST_S": ""})
    with pytest.raises(UsageError, match=r"^FARM_LOST_S: '-2' is not"):
        LabConfig.load(FarmHome(tmp_path), {"FARM_LOST_S": "-2"})
