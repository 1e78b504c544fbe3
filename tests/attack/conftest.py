from __future__ import annotations

import inspect
import tempfile
from pathlib import Path

import pytest

from tests import needs
from tests.attack.elsewhere import ELSEWHERE
from tests.attack.lab import attack_lab
from tests.attack.report import HOLDS, VARIABLE, Record
from tests.reports import SessionReport

_RECORD = Record()
_REPORT = SessionReport.wanted(VARIABLE)


def pytest_collection_modifyitems(items):
    for item in items:
        holds = ELSEWHERE.get(item.nodeid.partition("[")[0])
        if item.nodeid.startswith("tests/attack/"):
            holds = " ".join((inspect.getdoc(item.function) or "").split())
        if holds is not None:
            item.user_properties.append((HOLDS, holds))


class _Recorder:
    """A plugin, because a hook of this file receives no report of a test in another folder."""

    def pytest_runtest_logreport(self, report):
        _RECORD.note(report)


def pytest_configure(config):
    config.pluginmanager.register(_Recorder())


def pytest_sessionfinish(session, exitstatus):
    """Write the report of a run that left nothing out."""
    if _REPORT is not None and _RECORD.complete:
        _REPORT.write(_RECORD.text(), session, exitstatus)


@pytest.fixture(scope="package")
def lab(postgres, short_folder):
    """One lab for every attack: what one of them leaves behind, the next one meets.

    It ends with the last attack, so that its processes take nothing from the tests that follow.
    """
    needs.redis_server()
    short_folder.chmod(0o755)
    folder = Path(tempfile.mkdtemp(prefix="lab-", dir=short_folder))
    folder.chmod(0o755)
    with attack_lab(folder, postgres) as made:
        yield made
