"""LiteRT in the suite's worker for the tools that compare with it."""

import pytest

from runtime.tools.model_bisect import oracle, search
from runtime.tools.model_diff import comparing, worker
from tests.runtime.tools import in_worker


@pytest.fixture(autouse=True)
def litert_in_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run LiteRT where its library is loaded."""
    monkeypatch.setattr(search, "litert_runs", in_worker.litert_runs)
    monkeypatch.setattr(comparing, "opened", in_worker.opened)


@pytest.fixture
def own_processes(litert_in_worker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run LiteRT as the tools do, in a process for every model."""
    monkeypatch.setattr(search, "litert_runs", oracle.litert_runs)
    monkeypatch.setattr(comparing, "opened", worker.opened)
