"""Writes the reports of `benchmarks/results/`: each names the tree of its run and how the run ended.

A report outlives the tree that it speaks of. The line below its title says which tree that was, and a run
that failed or was cut short cannot be taken for one that passed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tree import Tree, tree

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
"""Categories of pytest's terminal reporter that count tests. Others count warnings."""


def write_report(
    path: Path, text: str, of: Tree, status: int | None, counts: Mapping[str, int] | None = None
) -> None:
    """Write a report in Markdown that begins with its title. `of`: the tree as the run found it at its start.

    `status`: the exit status of the run, None while it goes on and its rows are kept one by one.
    """
    title, _, rest = text.partition("\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{title}\n\n{run_line(of, status, counts or {})}\n{rest}", encoding="utf-8")


def run_line(of: Tree, status: int | None, counts: Mapping[str, int]) -> str:
    """Return the line that names the tree and the end of a run."""
    end = "not at its end" if status is None else f"exit status {status}"
    counted = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"Run on {of}; {end}{f': {counted}' if counted else ''}."


@dataclass(frozen=True, slots=True)
class SessionReport:
    """The report of a session of pytest. `tree`: as it was when the session began."""

    path: Path
    tree: Tree

    @classmethod
    def wanted(cls, variable: str) -> SessionReport | None:
        """Return the report that a variable of the environment names, None where it names none."""
        path = os.environ.get(variable)
        return cls(Path(path), tree()) if path else None

    def write(self, text: str, session: pytest.Session, status: int) -> None:
        """Write it, with the numbers of tests of pytest's own last line."""
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        found = reporter.stats if reporter else {}
        counts = {name: len(found[name]) for name in OUTCOMES if found.get(name)}
        write_report(self.path, text, self.tree, int(status), counts)
