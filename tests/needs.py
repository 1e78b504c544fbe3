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


def redis_server() -> str:
    """Path of redis-server."""
    return shutil.which("redis-server") or absent("no redis-server on this machine")


def postgres_binaries() -> Path:
    """Folder of `initdb` and `postgres`, the newest of those installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    if on_path:
        found.append(Path(on_path))
    if not found:
        absent("no PostgreSQL server on this machine")
    return found[-1].parent


def network_namespaces() -> None:
    """Root, and the tools to make machines out of network namespaces."""
    if os.geteuid() != 0:
        absent("network namespaces need root")
    for tool in ("ip", "nft", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            absent(f"no {tool} on this machine")


def compiler() -> str:
    """Path of a C compiler."""
    return shutil.which("cc") or absent("no C compiler (cc) on this machine")
