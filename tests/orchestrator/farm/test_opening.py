"""Who may open a lab's database, and who brings it up to date."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db import migrate
from orchestrator.db.campaigns import farm_state
from orchestrator.db.campaigns.farm_state import BROKER_UP, SchedulerState
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.farm import Farm
from orchestrator.farm.remote.serving import serve_lab
from orchestrator.scheduling.lock import SchedulerLock
from tests.orchestrator.db.future_revision import add_revision

LAB = LabConfig(broker_url="redis://nowhere.invalid:1")


@pytest.fixture
def outdated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FarmHome, Database, str]]:
    """Make a farm whose database lacks the newest revision; yield the one that it has, too."""
    home = FarmHome(tmp_path)
    with closing(Database.connect(home.database)) as database:
        migrate.migrate(database)
        head = migrate.HEAD
        add_revision(monkeypatch, tmp_path)
        yield home, database, head


def test_only_the_server_brings_a_labs_database_up_to_date(outdated: tuple[FarmHome, Database, str]) -> None:
    home, database, head = outdated
    with pytest.raises(UnreachableError, match=rf"revision {head}.*install this version there"):
        Farm.open(home, lab=LAB)
    assert migrate.revision(database) == head
    Farm.open(home, lab=LAB, serving=True).close()
    assert migrate.revision(database) == migrate.HEAD != head
    Farm.open(home, lab=LAB).close()


def test_a_second_server_is_refused_before_it_changes_the_first_ones_database(
    outdated: tuple[FarmHome, Database, str],
) -> None:
    home, database, head = outdated
    first = SchedulerLock.acquire(home.scheduler_lock)
    assert first is not None
    with first, pytest.raises(FarmError, match=f"process {os.getpid()} already schedules"):
        serve_lab(home, LAB, lambda: True)
    assert migrate.revision(database) == head


def test_a_farm_of_one_machine_does_not_schedule_on_a_labs_database(tmp_path: Path) -> None:
    home, now = FarmHome(tmp_path), datetime.now(UTC)
    with Farm.open(home, lab=LAB) as farm, farm.database.write() as session:
        farm_state.write_scheduler(session, SchedulerState("server-1", 1, now, now, BROKER_UP, "", "store"))
    with pytest.raises(UsageError, match=r"a lab, scheduled on server-1: set FARM_BROKER_URL"):
        Farm.open(home)
