"""One real campaign per test session: the demo's models, briefly measured, and two odd models."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from tests.end_to_end.odd_models import lacking_operator_model, partial_model
from tests.needs import REPOSITORY

SHORT = """\
    processes: 1
    warmup: {runs: 2, min_seconds: 0}
    timed: {min_runs: 12, min_seconds: 0.2, max_seconds: 60}
"""


@dataclass(frozen=True)
class Campaign:
    """A finished campaign: its home, its manifest, and what `farm submit` said."""

    home: Path
    manifest: Path
    exit_code: int
    output: str

    def farm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `farm` on this home."""
        return run_farm(self.home, *arguments)

    @cached_property
    def results(self) -> list[dict]:
        """The objects of `farm results --format json`."""
        ran = self.farm("results", "--format", "json")
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    def cell(self, model: str, delegate: str) -> dict:
        """The one result of a model on a delegate."""
        (found,) = [r for r in self.results if (r["model"], r["delegate"]) == (model, delegate)]
        return found


def run_farm(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`farm ...` as a user types it, with its data in `home`."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("farm")), *arguments],
        env=os.environ | {"FARM_HOME": str(home)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


def _short_manifest(folder: Path) -> Path:
    text = (REPOSITORY / "examples/models.yaml").read_text(encoding="utf-8")
    text, count = re.subn(r"    timed: \{min_seconds: 2\}\n", SHORT, text)
    assert count == 1, "examples/models.yaml no longer states its measure as this test expects"
    (folder / "partial.tflite").write_bytes(partial_model())
    (folder / "lacking.tflite").write_bytes(lacking_operator_model())
    odd = "  - {id: partial, source: partial.tflite}\n  - {id: lacking, source: lacking.tflite}\n"
    path = folder / "models.yaml"
    path.write_text(text.replace("delegates:\n", odd + "delegates:\n", 1), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def campaign(tmp_path_factory) -> Campaign:
    folder = tmp_path_factory.mktemp("campaign")
    manifest = _short_manifest(folder)
    home = folder / "home"
    ran = run_farm(home, "submit", str(manifest))
    return Campaign(home, manifest, ran.returncode, ran.stdout + ran.stderr)
