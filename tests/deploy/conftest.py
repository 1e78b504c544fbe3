from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.lab import DeployedLab
from tests.deploy.machines import fleet, remove_network, required


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedLab]:
    """Three bare machines, booted, with nothing of the farm."""
    required()
    folder = tmp_path_factory.mktemp("deploy")
    server, *agents = fleet(("lab-server", "rack-1", "rack-2"), folder)
    machines = [server, *agents]
    try:
        for machine in machines:
            machine.boot()
        deployed = DeployedLab(server, agents, folder)
        deployed.prepare()
        yield deployed
    finally:
        for machine in machines:
            machine.stop()
        remove_network()
