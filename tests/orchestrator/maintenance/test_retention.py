"""Pruning deletes some rows and files and keeps others, on both databases, with real campaigns and a real
store.
"""

from __future__ import annotations

import hashlib
import io
import os
import sqlite3
import stat
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func
from sqlmodel import select

from agent.wire.labelled import LabelledScore
from orchestrator.db import tables
from orchestrator.db.campaigns import campaigns, steering_requests
from orchestrator.db.campaigns.retention import Ended, forget
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from orchestrator.db.results import records
from orchestrator.db.scheduling import ingest
from orchestrator.errors import FarmError
from orchestrator.maintenance import prune as prune_module
from orchestrator.maintenance.check import backup, check
from orchestrator.maintenance.prune import Keep, prune, to_prune
from orchestrator.sources import health_model
from orchestrator.sources.store import Store
from tests.orchestrator.asked import CPU, asked
from tests.orchestrator.stocked import cells, dispatch, measured, planned, report_devices, result

NOW = datetime.now(UTC)
OLD_S = time.time() - 30 * 86_400
ONE_DELEGATE = {"cpu": {}}


@pytest.fixture
def database(any_database: Database) -> Database:
    return any_database


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    health_model.provide(made)
    return made


def put(store: Store, content: bytes, *, old: bool = True) -> str:
    sha256 = store.put(io.BytesIO(content), "x").sha256
    if old:
        os.utime(store.path(sha256), (OLD_S, OLD_S))
    return sha256


def campaign(database: Database, store: Store, name: str, days_ago: float, *, done: bool = True) -> str:
    """Add a campaign of one cell whose model's content is its name; its samples and answers are its own."""
    put(store, name.encode())
    report_devices(database, (CPU,))
    plan = planned(database, asked((name,), ONE_DELEGATE, name=name), (CPU,))
    wanted = asked((name,), ONE_DELEGATE, name=name)
    with database.write() as session:
        content = campaigns.content_of(wanted, plan, wanted.reuse)
        campaign_id = campaigns.add(session, wanted, plan, content, wanted.reuse, NOW)
        session.get_one(tables.Model, hashlib.sha256(name.encode()).hexdigest()).size_bytes = len(name)
    if done:
        (cell,) = [cell for cell in cells(database) if cell.model == name and cell.state == "queued"]
        own = (put(store, f"{what} of {name}".encode()) for what in ("samples", "answers"))
        finish(database, cell.cell_id, *own)
        with database.write() as session:
            row = session.exec(
                select(tables.Campaign).where(tables.Campaign.campaign_id == campaign_id)
            ).one()
            assert row.ended_at is not None
            row.ended_at = NOW - timedelta(days=days_ago)
    return campaign_id


def finish(database: Database, cell_id: str, samples: str, answers: str) -> None:
    job = dispatch(database, cell_id)
    told = result(job, environment={"cpu": "epyc"})
    score = LabelledScore(metric="top1", samples=1, right=1, share=1.0, answers_sha256=answers)
    files = measured().model_copy(update={"samples_sha256": samples, "labelled": score})
    told = told.model_copy(update={"measurement": files})
    with database.write() as session:
        assert ingest.apply(session, told, NOW) == "counted"


def left(database: Database) -> dict[str, int]:
    kinds = (tables.Campaign, tables.Cell, tables.Attempt, tables.Result, tables.Event, tables.Model)
    with database.read() as session:
        return {kind.__name__: session.exec(select(func.count()).select_from(kind)).one() for kind in kinds}


def names(found: tuple[Ended, ...]) -> list[str]:
    return [entry.name for entry in found]


@given(
    st.lists(st.integers(0, 200), max_size=12),
    st.one_of(st.none(), st.integers(0, 200)),
    st.one_of(st.none(), st.integers(0, 12)),
)
def test_campaigns_that_either_rule_keeps_stay(ages, days, count):
    ended = [Ended(i, str(i), "n", NOW - timedelta(days=age), 1) for i, age in enumerate(sorted(ages))]
    gone = to_prune(ended, Keep(None if days is None else timedelta(days=days), count), NOW)
    for place, entry in enumerate(ended):
        old = days is None or entry.ended_at < NOW - timedelta(days=days)
        beyond = count is None or place >= count
        assert (entry in gone) == (old and beyond)


def test_an_old_campaign_goes_with_all_it_had(database: Database, store: Store) -> None:
    campaign(database, store, "old", 100)
    campaign(database, store, "new", 1)
    before = left(database)
    planned_only = prune(database, store, Keep(timedelta(days=90)), NOW, dry_run=True)
    assert left(database) == before
    assert store.find(hashlib.sha256(b"old").hexdigest())
    gone = prune(database, store, Keep(timedelta(days=90)), NOW)
    assert gone == planned_only
    assert names(gone.campaigns) == ["old"]
    contents = [f"{what}{name}" for name in ("old", "new") for what in ("", "samples of ", "answers of ")]
    assert (gone.artifacts, gone.freed_bytes) == (3, sum(map(len, contents[:3])))
    assert left(database) == {name: count - count // 2 for name, count in before.items()}
    kept = [store.find(hashlib.sha256(content.encode()).hexdigest()) is not None for content in contents]
    assert kept == [False] * 3 + [True] * 3
    assert store.find(health_model.model_sha256())
    assert all(found.ok for found in check(database, store, deep=True))
    assert prune(database, store, Keep(timedelta(days=90)), NOW).campaigns == ()


def test_a_large_campaign_goes_in_pieces(
    database: Database, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.db.campaigns.retention.CELLS_AT_ONCE", 2)
    delegates = {f"cpu-{n}": {"kind": "cpu"} for n in range(5)}
    report_devices(database, (CPU,))
    wanted = asked(("m",), delegates, name="large")
    plan = planned(database, wanted, (CPU,))
    with database.write() as session:
        content = campaigns.content_of(wanted, plan, wanted.reuse)
        campaigns.add(session, wanted, plan, content, wanted.reuse, NOW)
    for cell in cells(database):
        finish(database, cell.cell_id, "5" * 64, "6" * 64)
    assert left(database)["Cell"] == 5
    prune(database, store, Keep(campaigns=0), NOW)
    assert set(left(database).values()) == {0}


def test_a_result_that_is_reused_between_the_choice_and_the_deletion_stays(
    database: Database, store: Store
) -> None:
    campaign(database, store, "m", 100)
    campaign(database, store, "viewer", 0, done=False)
    with database.write() as session:
        owner, viewer = session.exec(select(tables.Cell).order_by(tables.Cell.campaign_no)).all()
        number = owner.campaign_no
        viewer.shown_attempt_id = owner.shown_attempt_id
    with database.write() as session:
        assert forget(session, number)
    assert left(database)["Result"] == 1
    assert all(found.ok for found in check(database, store))


def test_a_campaign_that_is_tried_again_between_the_choice_and_the_deletion_stays(
    database: Database, store: Store
) -> None:
    campaign_id = campaign(database, store, "m", 100)
    before = left(database)
    with database.write() as session:
        number = records.find_campaign(session, campaign_id).no
        (cell,) = session.exec(select(tables.Cell)).all()
        steering_requests.put_back(session, [cell], NOW, "retry", "asked for by a user")
    with database.write() as session:
        assert forget(session, number)
    assert left(database) == before | {"Event": before["Event"] + 1}


def test_the_campaigns_that_ended_last_stay(database: Database, store: Store) -> None:
    for number, days in enumerate((1, 50, 100)):
        campaign(database, store, f"c{number}", days)
    assert names(prune(database, store, Keep(campaigns=2), NOW).campaigns) == ["c2"]
    assert names(prune(database, store, Keep(campaigns=0), NOW).campaigns) == ["c0", "c1"]
    assert left(database)["Campaign"] == 0


def test_what_is_not_over_stays_with_its_model(database: Database, store: Store) -> None:
    campaign(database, store, "waiting", 0, done=False)
    gone = prune(database, store, Keep(campaigns=0), NOW)
    assert (gone.campaigns, gone.artifacts) == ((), 0)
    assert store.find(hashlib.sha256(b"waiting").hexdigest())


def test_a_campaign_whose_result_a_later_one_shows_stays_and_is_named(
    database: Database, store: Store
) -> None:
    campaign(database, store, "m", 100)
    campaign(database, store, "alone", 99)
    wanted = asked(("m",), ONE_DELEGATE, name="again")
    plan = planned(database, wanted, (CPU,))
    assert [cell.action for cell in plan] == ["reuse"]
    with database.write() as session:
        content = campaigns.content_of(wanted, plan, wanted.reuse)
        campaigns.add(session, wanted, plan, content, wanted.reuse, NOW)
    gone = prune(database, store, Keep(timedelta(days=90)), NOW)
    assert (names(gone.campaigns), names(gone.shown)) == (["alone"], ["m"])
    assert all(found.ok for found in check(database, store))
    assert sorted(names(prune(database, store, Keep(campaigns=0), NOW + timedelta(days=1)).campaigns)) == [
        "again",
        "m",
    ]


def test_young_files_stay_though_nothing_names_them(database: Database, store: Store) -> None:
    young, old = put(store, b"young", old=False), put(store, b"old")
    beginning = store.root / "incoming" / "beginning"
    beginning.write_bytes(b"x")
    os.utime(beginning, (OLD_S, OLD_S))
    gone = prune(database, store, Keep(campaigns=5), NOW)
    assert gone.artifacts == 1
    assert store.find(young)
    assert store.find(old) is None
    assert not beginning.exists()
    assert store.touch(young)
    assert not store.touch(old)


def test_what_a_source_gave_is_forgotten_with_the_file(database: Database, store: Store) -> None:
    from orchestrator.sources.pypi import recall, remember

    sha256 = put(store, b"model")
    found = store.find(sha256)
    assert found is not None
    remember(store, "npm:x", found)
    prune(database, store, Keep(campaigns=5), NOW)
    assert recall(store, "npm:x") is None
    assert list((store.root / "sources").iterdir()) == []


def test_a_submission_under_way_is_waited_for(database: Database, store: Store) -> None:
    """It found its pinned model in the store; the collector comes before the campaign is stored."""
    sha256 = put(store, b"late")
    ended = threading.Event()

    def collect() -> None:
        prune(database, store, Keep(campaigns=5), NOW)
        ended.set()

    with store.in_use():
        collector = threading.Thread(target=collect)
        collector.start()
        assert not ended.wait(0.3)
        campaign(database, store, "late", 0, done=False)
        os.utime(store.path(sha256), (OLD_S, OLD_S))
    collector.join(60)
    assert ended.is_set()
    assert store.find(sha256)


def test_a_backup_is_whole_private_and_overwrites_nothing(
    database: Database, store: Store, tmp_path: Path
) -> None:
    campaign(database, store, "m", 1)
    target = tmp_path / "copies" / "farm.copy"
    size = backup(database, target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert [path.name for path in target.parent.iterdir()] == ["farm.copy"]
    assert size == target.stat().st_size
    if database.is_postgresql:
        listed = subprocess.run(["pg_restore", "--list", target], capture_output=True, text=True, check=True)
        assert "TABLE DATA public campaign" in listed.stdout
    else:
        with sqlite3.connect(target) as copy:
            assert copy.execute("SELECT name FROM campaign").fetchall() == [("m",)]
        copy.close()
    with pytest.raises(FarmError, match="exists already"):
        backup(database, target)
    with pytest.raises(FarmError, match="cannot be written"):
        backup(database, Path("/proc/farm.copy"))


def test_a_check_names_what_is_wrong_with_the_store(database: Database, store: Store) -> None:
    campaign(database, store, "m", 1)
    assert {found.name: found.ok for found in check(database, store)} == {
        "integrity": True,
        "tables": True,
        "results": True,
        "artifacts": True,
    }
    with database.write() as session:
        session.get_one(tables.Model, hashlib.sha256(b"m").hexdigest()).size_bytes = 5
    assert "has 1 bytes, not 5" in check(database, store)[-1].found
    with database.write() as session:
        session.get_one(tables.Model, hashlib.sha256(b"m").hexdigest()).size_bytes = 1
    samples = store.path(hashlib.sha256(b"samples of m").hexdigest())
    samples.chmod(0o644)
    samples.write_bytes(b"other")
    assert check(database, store)[-1].ok
    assert "is damaged" in check(database, store, deep=True)[-1].found
    samples.unlink()
    store.path(hashlib.sha256(b"m").hexdigest()).unlink()
    last = check(database, store)[-1]
    assert not last.ok
    assert "2 of 3: model" in last.found
    assert last.found.count("is gone") == 2


def test_a_check_names_what_is_wrong_with_the_tables(database: Database, store: Store) -> None:
    campaign(database, store, "m", 1)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("DROP INDEX ix_event_cell_id")
    (tables_check,) = [found for found in check(database, store) if found.name == "tables"]
    assert (tables_check.ok, "1 differences" in tables_check.found) == (False, True)


def test_rows_without_their_parents_are_found(tmp_path: Path, store: Store) -> None:
    database = Database.connect(tmp_path / "farm.db")
    migrate(database)
    campaign(database, store, "m", 1)
    with sqlite3.connect(tmp_path / "farm.db") as raw:
        raw.execute("DELETE FROM attempt")
        raw.execute("DELETE FROM result")
    raw.close()
    found = {entry.name: entry for entry in check(database, store)}
    assert not found["results"].ok
    assert "1 cells show a result that is gone" in found["results"].found
    with sqlite3.connect(tmp_path / "farm.db") as raw:
        raw.execute("DELETE FROM campaign")
    raw.close()
    assert "names a missing campaign" in check(database, store)[0].found
    database.close()


def test_a_file_that_arrives_while_the_store_is_pruned_is_left_alone(
    database: Database, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = put(store, b"nothing names it")
    listed = prune_module._artifact_files
    monkeypatch.setattr(
        prune_module, "_artifact_files", lambda root: [store.root / "incoming" / "moved", *listed(root)]
    )
    assert prune(database, store, Keep(campaigns=0), NOW).artifacts == 1
    assert store.find(old) is None
