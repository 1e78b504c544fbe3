"""What a test needs from the machine: absent, the test is skipped and counted; under `CI=true` it fails."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


def absent(what: str) -> NoReturn:
    """End the test: skipped with the reason, or failed where nothing may be absent."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what}: required under CI=true", pytrace=False)
    pytest.skip(what)


def shared_models() -> Path:
    """The development models beside the repository."""
    folder = SHARED / "models"
    if not folder.is_dir():
        absent("no ../shared/models beside the repository")
    return folder


def browser() -> str:
    """Path of a Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    absent("no Chromium on this machine")
