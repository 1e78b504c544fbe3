"""Revoked users stay shut out, also where the database is restored from a backup that is older."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db.devices.credentials import owners
from orchestrator.db.engine.sessions import Database
from orchestrator.errors import FarmError, UsageError
from orchestrator.trust.credentials_service import CredentialsService
from orchestrator.trust.revocations import FILE, reconcile
from orchestrator.trust.users import Users
from tests.orchestrator.stocked import new_database

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def restore(database: Database, copy: Path) -> None:
    """Put a copy in the place of a database, as docs/storage.md says."""
    assert database.path is not None
    database.close()
    for name in ("farm.db-wal", "farm.db-shm"):
        database.path.with_name(name).unlink(missing_ok=True)
    shutil.copy(copy, database.path)


def test_a_restored_backup_lets_nobody_in_again(tmp_path):
    keys, database = tmp_path / "keys", new_database(tmp_path)
    users = Users(database)
    ana, eve, old = users.add("ana"), users.add("eve"), users.add("bob")
    database.backup(tmp_path / "backup.db")
    users.revoke("eve")
    new = users.add("bob", replace=True)
    assert reconcile(database, keys, NOW) == []
    restore(database, tmp_path / "backup.db")
    assert users.with_token(eve).name == "eve", "the backup lets it in"
    assert reconcile(database, keys, NOW) == ["user bob", "user eve"]
    for token in (eve, old):
        with pytest.raises(UsageError, match="was revoked"):
            users.with_token(token)
    assert users.with_token(ana).name == "ana"
    assert users.with_token(new) is None, "it was made after the backup"
    assert reconcile(database, keys, NOW) == []
    assert (keys / FILE).stat().st_mode & 0o777 == 0o600


def test_a_server_shuts_a_revoked_agent_out_again_and_says_so(tmp_path, caplog):
    database = new_database(tmp_path)
    lab = LabConfig(broker_url="redis://127.0.0.1:1/0")
    service = CredentialsService.open(FarmHome(tmp_path / "home"), lab, database)
    (tmp_path / "state").mkdir(mode=0o700)
    service.enrol_here("rack", tmp_path / "state")
    database.backup(tmp_path / "backup.db")
    service.revoke("rack")
    restore(database, tmp_path / "backup.db")
    with database.read() as session:
        assert list(owners(session, utc_now()).values()) == ["agent rack"], "the backup lets it in"
    service.keep_revocations()
    with database.read() as session:
        assert owners(session, utc_now()) == {}
    assert "agent rack is revoked again" in caplog.text


def test_a_list_that_cannot_be_read_lets_no_farm_start(tmp_path):
    keys, database = tmp_path / "keys", new_database(tmp_path)
    (keys / FILE).mkdir(parents=True)
    with pytest.raises(FarmError, match="the list of what was revoked, cannot be used"):
        reconcile(database, keys, NOW)
