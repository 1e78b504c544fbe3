"""For every test: one BLAS thread (several spin against whatever else runs), and device leases of its own.

`make test` shares the suite among worker processes. A worker gets whole files, so that what a file's tests
build together (a campaign, a database cluster, the kernels of an operator family) is built once.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is imported: it starts the threads

import pytest  # as above

from agent.attempt.lease import LEASES_VARIABLE  # as above
from tests.oracle import NOT_RUN  # as above

pytest_plugins = ("tests.services.fixtures",)

TOGETHER = ("tests/end_to_end/",)
"""Folders whose files share a session's fixture: the campaign of `end_to_end` is measured once."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        if item.get_closest_marker("spread") is None:
            item.add_marker(pytest.mark.xdist_group(_unit(item.nodeid.partition("::")[0])))


def _unit(path: str) -> str:
    """What one worker runs as a whole."""
    return next((folder for folder in TOGETHER if path.startswith(folder)), path)


@pytest.fixture(scope="session", autouse=True)
def own_leases(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Agents wait for those of their own process alone, not for another worker's or a farm's of this host."""
    os.environ[LEASES_VARIABLE] = str(tmp_path_factory.mktemp("leases"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which examples of the operators' properties LiteRT did not run."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    properties = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    texts = sorted({str(text) for name, text in properties if name == NOT_RUN})
    if texts:
        terminalreporter.section(NOT_RUN)
        for text in texts:
            terminalreporter.write_line(text)
