"""Real models and labelled data, as the fetch script beside the repository brings them, and the model zoo."""

from __future__ import annotations

import fcntl
import getpass
import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from runtime.model.skeleton import restore_skeleton
from tests.needs import absent, shared_models


@cache
def collection() -> Path:
    """Folder with `models/`, `data/` and `manifest.json`, fetched once per user; pinned by sha256 there."""
    script = shared_models() / "fetch_models.py"
    folder = Path(tempfile.gettempdir()) / f"delegate-farm-models-{getpass.getuser()}"
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "manifest.json").exists():
            command = [sys.executable, str(script), str(folder), "--strict"]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            if ran.returncode:
                absent(f"the real models cannot be fetched: {ran.stderr.strip()[-300:]}")
    return folder


@cache
def manifest() -> dict[str, dict[str, Any]]:
    """Model id -> what the fetch script says of it."""
    files = json.loads((collection() / "manifest.json").read_text(encoding="utf-8"))["files"]
    return {entry["id"]: entry for entry in files if entry["role"] == "model"}


def real_model(name: str) -> bytes:
    """Return the file of a real model."""
    return (collection() / manifest()[name]["file"]).read_bytes()


def data_folder(group: str) -> Path:
    """Return the folder of a group of labelled data."""
    return collection() / "data" / group


@cache
def zoo() -> dict[str, dict[str, Any]]:
    """Model name -> its entry in the zoo's index."""
    text = (shared_models() / "zoo" / "index.json").read_text(encoding="utf-8")
    return {entry["name"]: entry for entry in json.loads(text)["models"]}


def zoo_model(name: str) -> bytes:
    """Return a model of the zoo, restored."""
    return bytes(restore_skeleton((shared_models() / "zoo" / zoo()[name]["skel"]).read_bytes()))
