"""`farm` as a user runs it: a process, an own $FARM_HOME, its exit code and output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from orchestrator import cli
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from tests.services.forks import Fork, run

FARM = [sys.executable, "-c", "from orchestrator.cli import main; main()"]
"""The command line of a process that is started afresh, for tests that hold its terminal or its pipes."""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Shell:
    """A folder to work in, and a farm of its own."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"FARM_HOME": str(self.home), "COLUMNS": "100", "NO_COLOR": "1"}

    def farm(self, *arguments: str | Path) -> Ran:
        done = run("farm", *arguments, cwd=self.folder, env=self.environment)
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, out: IO[Any], err: IO[Any], *arguments: str) -> Fork:
        """Start `farm`, which writes to these files."""
        with Path(os.devnull).open("rb") as nothing:
            files = (nothing.fileno(), out.fileno(), err.fileno())
            return Fork(["farm", *arguments], files, self.folder, self.environment)

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


@dataclass(frozen=True)
class Limited(Shell):
    """A farm with settings."""

    settings: tuple[tuple[str, str], ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | dict(self.settings)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


Call = Callable[..., Ran]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], forked_agents: None) -> Call:
    """Run `farm` of a shell in this process."""

    def call(shell: Shell, *words: str) -> Ran:
        monkeypatch.chdir(shell.folder)
        for name, value in shell.environment.items():
            monkeypatch.setenv(name, value)
        code = cli.run([*words])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return call


@pytest.fixture
def database(shell: Shell):
    """Make the database of the shell's farm, which nobody schedules."""
    shell.home.mkdir()
    opened = Database.connect(shell.home / "farm.db")
    migrate(opened)
    yield opened
    opened.close()
