"""A copy of the tree with an interpreter of its own, in which one mutant at a time is tested.

The interpreter matters: agents and runners are started in isolation, where no `PYTHONPATH` counts, and must
import the changed file too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tests import tree
from tests.mutants import forks
from tests.mutants.catalogue import Mutant
from tests.needs import REPOSITORY

LIMIT_S: Final = 60.0
"""Seconds after which a run with a mutant counts as hanging. The narrow tests of an entry take a few; a
mutant that waits for ever is noticed too, but costs this much."""
UNCHANGED_LIMIT_S: Final = 600.0
"""Seconds for the named tests of one file without a mutant: all of them run, also on a busy machine."""

Verdict: TypeAlias = Literal["noticed", "survived", "broken"]

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_PYTEST: Final = (
    "-x", "-q", "-rfE", "--no-header", "--tb=line", "--assert=plain", "-p", "no:cacheprovider", "-n0",
    "-m", "faults or not faults",
)  # fmt: skip
_SCRIPTS: Final = {"farm": "orchestrator.cli", "farm-agent": "agent.cli"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of the narrow tests. `by`: the test that failed first; `output`: pytest's last lines."""

    verdict: Verdict
    by: str = ""
    output: str = ""


@dataclass(slots=True)
class Workplace:
    """One copy, and the process that forks its runs, as a context. Its methods are for one thread."""

    folder: Path
    _times: count[int] = field(init=False)
    _forks: subprocess.Popen[str] = field(init=False)

    @property
    def root(self) -> Path:
        """The copied tree."""
        return self.folder / "tree"

    def __enter__(self) -> Workplace:
        self._copy()
        self._make_interpreter()
        self._times = count(int(time.time()))
        self._forks = subprocess.Popen(
            [str(self._python), "-m", "tests.mutants.forks"],
            cwd=self.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._forks.communicate()

    def test(self, mutant: Mutant) -> Outcome:
        """Run the tests of a mutant with it in place."""
        path = self.root / mutant.file
        original = path.read_text(encoding="utf-8")
        self._write(path, mutant.text)
        try:
            return self._run(mutant.tests, LIMIT_S)
        finally:
            self._write(path, original)

    def test_unchanged(self, tests: Sequence[str]) -> Outcome:
        """Run tests without a mutant: none may fail."""
        return self._run(tests, UNCHANGED_LIMIT_S)

    def _run(self, tests: Sequence[str], limit_s: float) -> Outcome:
        """Run tests until the first failure."""
        output = self.folder / "output"
        arguments = [*_PYTEST, f"--basetemp={self.folder / 'tmp'}", *tests]
        request = {"arguments": arguments, "output": str(output), "limit_s": limit_s}
        assert self._forks.stdin is not None
        assert self._forks.stdout is not None
        self._forks.stdin.write(json.dumps(request) + "\n")
        code = int(self._forks.stdout.readline())
        self._end_left_over()
        printed = output.read_text(errors="replace")
        found = _FAILED.search(printed)
        match code:
            case 0:
                return Outcome("survived", output=printed[-2000:])
            case 1 if found is not None:
                return Outcome("noticed", found.group(1))
            case forks.HANGS:
                return Outcome("noticed", f"no end within {limit_s:.0f} s: {' '.join(tests)}")
        return Outcome("broken", output=printed[-2000:])

    def _end_left_over(self) -> None:
        """Kill what tests left running: without its protection a process that spins would slow all others."""
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (entry / "cwd").readlink().is_relative_to(self.root) and int(
                    entry.name
                ) != self._forks.pid:
                    os.kill(int(entry.name), signal.SIGKILL)

    @property
    def _python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def _copy(self) -> None:
        """Copy what git tracks or would track."""
        for name in tree.files():
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, target)

    def _make_interpreter(self) -> None:
        """Make an environment with this copy's modules, and the packages of the running one."""
        home = self.folder / "venv"
        venv.create(home, symlinks=True)
        packages = sysconfig.get_path("purelib", vars={"base": str(home)})
        Path(packages, "mutants.pth").write_text(f"{self.root}\n{sysconfig.get_path('purelib')}\n")
        for name, module in _SCRIPTS.items():
            script = home / "bin" / name
            script.write_text(f"#!{self._python}\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
            script.chmod(0o755)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        # Python takes a compiled file for up to date where size and second of change agree, which a mutant's
        # can: each writing gets a second of its own.
        at = next(self._times)
        os.utime(path, (at, at))
