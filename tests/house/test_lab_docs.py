"""`docs/lab.md` names every setting and every verb that a lab has."""

from __future__ import annotations

from dataclasses import fields

import pytest

from agent.attempt.lease import LEASES_VARIABLE
from agent.config import MEMORY_VARIABLE, STATE_VARIABLE
from agent.link.cache import BUDGET_VARIABLE
from agent.runner.opencl_devices import SIDE_BY_SIDE_VARIABLE
from orchestrator.config.address import KEYS
from orchestrator.config.lab import LabTimes
from orchestrator.db.write.quarantine import CHECK_DELAYS_S
from tests.needs import REPOSITORY

TEXT = (REPOSITORY / "docs/lab.md").read_text()


@pytest.mark.parametrize("time", fields(LabTimes), ids=lambda entry: entry.name)
def test_every_time_stands_there_with_its_default(time):
    assert f"| `{time.name}` | {time.default:g} |" in TEXT


@pytest.mark.parametrize(
    "name",
    [
        "FARM_HOME", "broker_url", "database_url", "key_prefix", "allow_private", *KEYS, STATE_VARIABLE,
        LEASES_VARIABLE, MEMORY_VARIABLE, SIDE_BY_SIDE_VARIABLE, BUDGET_VARIABLE,
    ],
)  # fmt: skip
def test_every_setting_is_named(name):
    assert f"`{name}`" in TEXT


def test_the_pauses_before_health_checks_are_the_codes():
    assert CHECK_DELAYS_S == (10, 60, 600, 3600)
    assert "after 10 s, 1 min, 10 min and every hour" in TEXT
