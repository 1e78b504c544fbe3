"""Whether this installation judges disturbed results as it does others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "FARM_JUDGE_SUSPECT"
"""`1` on a machine that is never quiet, as a hosted runner: suspect results then have verdicts and are held
against budgets. Invalid ones never are."""


def judges_disturbed(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user said so for this machine."""
    return environment.get(VARIABLE) == "1"
