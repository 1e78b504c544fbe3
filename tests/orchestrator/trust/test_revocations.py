"""Revoked users stay shut out, also where the database is restored from a backup that is older."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime

import pytest

from orchestrator.errors import FarmError, UsageError
from orchestrator.trust.revocations import FILE, reconcile
from orchestrator.trust.users import Users
from tests.orchestrator.stocked import new_database

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_restored_backup_lets_nobody_in_again(tmp_path):
    keys, database = tmp_path / "keys", new_database(tmp_path)
    users = Users(database)
    ana, eve, old = users.add("ana"), users.add("eve"), users.add("bob")
    assert database.path is not None
    database.backup(tmp_path / "backup.db")
    users.revoke("eve")
    new = users.add("bob", replace=True)
    assert reconcile(database, keys, NOW) == []
    database.close()
    for name in ("farm.db-wal", "farm.db-shm"):
        database.path.with_name(name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup.db", database.path)
    assert users.with_token(eve).name == "eve", "the backup lets it in"
    assert reconcile(database, keys, NOW) == ["user bob", "user eve"]
    for token in (eve, old):
        with pytest.raises(UsageError, match="was revoked"):
            users.with_token(token)
    assert users.with_token(ana).name == "ana"
    assert users.with_token(new) is None, "it was made after the backup"
    assert reconcile(database, keys, NOW) == []
    assert (keys / FILE).stat().st_mode & 0o777 == 0o600


def test_a_list_that_cannot_be_read_lets_no_farm_start(tmp_path):
    keys, database = tmp_path / "keys", new_database(tmp_path)
    (keys / FILE).mkdir(parents=True)
    with pytest.raises(FarmError, match="the list of what was revoked, cannot be used"):
        reconcile(database, keys, NOW)
