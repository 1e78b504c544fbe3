from __future__ import annotations

import pytest

from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.farm.submit import running
from orchestrator.policy import attempt_ends
from orchestrator.scheduling import loop
from tests import needs
from tests.contract.celery_lab import CeleryLab
from tests.contract.lab import Lab

EMBEDDED = ("embedded-sqlite", "embedded-postgresql")
PAIRINGS = (*EMBEDDED, "celery-sqlite", "celery-postgresql")
REPRESENTATIVE = {
    "test_a_campaign_runs_to_its_end_model_by_model",
    "test_a_result_that_is_delivered_three_times_counts_once",
}
"""Run by `make test` on a lab with PostgreSQL too, which has the other dispatcher and the other database; on
every pairing, as the other tests, by `make test-conformance`."""


def pytest_generate_tests(metafunc):
    """Run a test of the contract on every pairing, or on those that its module names in `PAIRINGS`."""
    if "lab" not in metafunc.fixturenames:
        return
    chosen = []
    for pairing in getattr(metafunc.module, "PAIRINGS", PAIRINGS):
        is_representative = metafunc.function.__name__ in REPRESENTATIVE
        always = pairing == PAIRINGS[0] or (pairing == PAIRINGS[-1] and is_representative)
        chosen.append(pytest.param(pairing, marks=() if always else pytest.mark.conformance))
    metafunc.parametrize("lab", chosen, indirect=True)


@pytest.fixture
def lab(request, tmp_path, monkeypatch, forked_agents):
    """Yield a farm with fake runners; the parameter names dispatcher and database. Its waits are shorter."""
    monkeypatch.setattr(loop, "RETURN_PATIENCE_S", 0.3)
    monkeypatch.setattr(attempt_ends, "RETRY_DELAYS_S", (0.0, 0.1))
    monkeypatch.setattr(running, "STEP_S", 0.2)
    dispatcher, database = request.param.split("-")
    database_url = request.getfixturevalue("migrated_postgres_url") if database == "postgresql" else None
    home = FarmHome(tmp_path / "farm")
    made: Lab
    if dispatcher == "celery":
        needs.redis_server()
        broker = request.getfixturevalue("redis_server")
        made = CeleryLab(home, LabConfig(broker_url=broker.socket_url, database_url=database_url))
    else:
        made = Lab(home, LabConfig(database_url=database_url))
    yield made
    made.close()
