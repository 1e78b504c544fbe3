"""Whether this installation reuses disturbed results as it does others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

VARIABLE: Final = "FARM_REUSE_SUSPECT"
"""`1` on a machine that is never quiet, where every result is suspect: each campaign's rule of reuse then
ends with `+suspect`."""


def reuses_disturbed(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the user said so for this machine."""
    return environment.get(VARIABLE) == "1"
