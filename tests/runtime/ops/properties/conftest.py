"""Prints what LiteRT did not run."""

from __future__ import annotations

import pytest

from tests.runtime.ops.properties.tally import REPORTS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if REPORTS:
        terminalreporter.section("examples that LiteRT did not run")
        for text in REPORTS:
            terminalreporter.write_line(text)
