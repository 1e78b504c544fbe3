from __future__ import annotations

import pytest

from orchestrator import farm, lifecycle, service
from orchestrator.config import FarmHome
from tests.contract.lab import Lab


@pytest.fixture(params=["embedded-sqlite"])
def lab(request, tmp_path, monkeypatch):
    """A farm with fake runners; the parameter names dispatcher and database. Its waits are shorter."""
    monkeypatch.setattr(service, "RETURN_PATIENCE_S", 0.3)
    monkeypatch.setattr(lifecycle, "RETRY_DELAYS_S", (0.0, 0.1, 0.2))
    monkeypatch.setattr(farm, "STEP_S", 0.2)
    made = Lab(FarmHome(tmp_path / "farm"))
    yield made
    made.close()
