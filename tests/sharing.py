"""Shares the suite among the worker processes of `make test`: in units, the longest of the last run first.

A unit is what one worker runs as a whole, so that what its tests build together (a campaign, a database
cluster, the kernels of an operator family) is built once. Short units come last, so that no worker ends long
after the others. Without an earlier run in this checkout the order is that of the files.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest

TOGETHER = ("tests/end_to_end/", "tests/attack/", "tests/faults/")
"""Folders whose files share a session's fixture: the campaign of `end_to_end` is measured once, one lab is
attacked, and faults are done to one network.
"""

APART = ("tests/runtime/ops/properties/", "tests/house/")
"""Folders whose tests share nothing: any worker takes any of them."""

_LASTED = "farm/seconds"
"""The name in pytest's cache under which the seconds of every unit lie."""

_lasts: defaultdict[str, float] = defaultdict(float)
"""Seconds that each unit of this run has taken so far."""


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, where it is installed
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share the tests out in the units of `unit`. (Groups by mark do not work: pytest-xdist 3.8 hands them
    over in the tests' names, which pytest 9.2 lets nobody change.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    return Units(config, log)


@pytest.hookimpl(optionalhook=True)  # as above
def pytest_configure_node(node: Any) -> None:
    """Tell a worker how long the units took: all must list the tests in the same order."""
    node.workerinput[_LASTED] = _lasted(node.config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker, put the longest units first, and before them those of which nothing is known."""
    lasted = getattr(config, "workerinput", {}).get(_LASTED, {})
    items.sort(key=lambda item: -lasted.get(unit(item.nodeid), math.inf))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up what the tests of a unit take."""
    _lasts[unit(report.nodeid)] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the seconds for the next run, where workers ran all of the suite."""
    config = session.config
    is_whole = config.args_source is config.ArgsSource.TESTPATHS and not config.option.keyword
    if is_whole and getattr(config.option, "numprocesses", None) and config.cache is not None:
        rounded = {name: round(seconds, 2) for name, seconds in _lasts.items()}
        config.cache.set(_LASTED, _lasted(config) | rounded)


def _lasted(config: pytest.Config) -> dict[str, float]:
    cache = getattr(config, "cache", None)  # None where pytest runs without it
    return {} if cache is None else cache.get(_LASTED, {})


def unit(nodeid: str) -> str:
    """Return the unit that one worker runs as a whole: a folder, a test, otherwise a file."""
    if nodeid.startswith(APART):
        return nodeid
    return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid.partition("::")[0])
