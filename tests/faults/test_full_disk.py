"""ENOSPC in every writer of durable files: each says so or goes on, and leaves what was there as it was."""

from __future__ import annotations

import ast
import errno
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from agent import devices
from agent.attempt import artifacts, files, lease, references
from agent.link.cache import Cache as ModelCache
from agent.machine import host_tuning, workload
from agent.wire.credentials import write_secret
from agent.wire.reference import ReferenceRecord
from orchestrator import cli
from orchestrator.cli import output
from orchestrator.config.clock import utc_now
from orchestrator.db.engine import copies
from orchestrator.db.engine.sessions import Database
from orchestrator.endpoint import user_client
from orchestrator.errors import FarmError
from orchestrator.maintenance.check import backup
from orchestrator.sources import pypi
from orchestrator.sources.store import Store, StoredFile
from orchestrator.trust import revocations
from orchestrator.trust.farm_key_rotation import farm_key
from orchestrator.trust.users import Users
from runtime.delegates.gpu.keep.cache import open_cache
from runtime.measure.reference import Reference, ReferenceKind, save_reference
from tests import needs
from tests.faults.disks import fill, small_disk
from tests.orchestrator.stocked import new_database

CONTENT = os.urandom(100_000)
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    needs.network_namespaces()
    with small_disk(tmp_path / "disk", "4m") as folder:
        yield folder


Write = Callable[[], object]


def an_artifact(disk: Path, outside: Path) -> Write:
    (outside / "made").write_bytes(CONTENT)
    return lambda: artifacts.put_artifact(disk, outside / "made", SHA)


def a_fetched_model(disk: Path, _: Path) -> Write:
    cache = ModelCache(disk, 1 << 30, frozenset)
    cache.incoming(SHA).write_bytes(CONTENT)
    return lambda: cache.admit(SHA, cache.incoming(SHA))


def a_host(disk: Path, _: Path) -> Write:
    governor = disk / "sys/devices/system/cpu/cpu0/cpufreq"
    governor.mkdir(parents=True)
    for name, value in (("scaling_governor", "powersave"), ("scaling_available_governors", "a powersave")):
        (governor / name).write_text(value)
    (disk / host_tuning.RECORD).parent.mkdir(parents=True, exist_ok=True)
    return lambda: host_tuning.apply(host_tuning.Wanted("a", None, None, None), disk)


def an_authority(disk: Path, _: Path) -> Write:
    return lambda: user_client.write_atomically(disk / "authority.pem", CONTENT, 0o600)


def a_copy(disk: Path, outside: Path) -> Write:
    database = Database.connect(outside / "farm.db")
    with database.read():
        pass
    return lambda: backup(database, disk / "copy.db")


def a_restored_copy(disk: Path, outside: Path) -> Write:
    database = new_database(disk)
    backup(database, outside / "copy.db")

    def write() -> None:
        with copies.unpacked(database, outside / "copy.db") as copy:
            copy.put_in_place(disk / "former.db")

    return write


def a_model(disk: Path, _: Path) -> Write:
    return lambda: Store(disk).put(io.BytesIO(CONTENT), "model m")


def a_kept_program(disk: Path, _: Path) -> Write:
    disk.chmod(0o700)
    cache = open_cache(disk)

    def write() -> None:
        cache.fault = ""
        cache.write("programs", SHA, CONTENT)
        if cache.fault:
            raise OSError(errno.ENOSPC, cache.fault)

    return write


def findings_about_drivers(disk: Path, _: Path) -> Write:
    def write() -> None:
        devices._keep(disk / "findings.json", {"driver": "fp16 storage"})
        if not (disk / "findings.json").exists():
            raise OSError(errno.ENOSPC, "no space, which costs the next listing seconds and ends nothing")

    return write


def a_revocation(disk: Path, outside: Path) -> Write:
    database = new_database(outside)
    Users(database).add("eve")
    Users(database).revoke("eve")
    return lambda: revocations.reconcile(database, disk, utc_now())


def outputs(disk: Path, _: Path) -> Write:
    made = Reference(ReferenceKind.CPU, "cpu", (), ((np.ones(1000, np.float32),),))
    return lambda: save_reference(disk / "reference.npz", made)


WRITERS: dict[str, Callable[[Path, Path], Write]] = {
    "agent/attempt/artifacts.py": an_artifact,
    "agent/attempt/files.py": lambda disk, _: lambda: files.write_progress(disk, "warm-up"),
    "agent/attempt/lease.py": lambda disk, _: lambda: lease.try_lease(disk, "group"),
    "agent/attempt/references.py": lambda disk, _: (
        lambda: references.write_made(disk, [ReferenceRecord(key=SHA, kind="cpu", maker="m")])
    ),
    "agent/devices.py": findings_about_drivers,
    "agent/link/cache.py": a_fetched_model,
    "agent/machine/host_tuning.py": a_host,
    "agent/machine/workload.py": lambda disk, _: (
        lambda: workload.keep(disk / "workload.json", "d", [workload.Reading(1, 1)])
    ),
    "agent/wire/credentials.py": lambda disk, _: lambda: write_secret(disk / "secret", "s" * 100),
    "orchestrator/db/engine/copies.py": a_restored_copy,
    "orchestrator/endpoint/user_client.py": an_authority,
    "orchestrator/maintenance/check.py": a_copy,
    "orchestrator/sources/pypi.py": lambda disk, _: (
        lambda: pypi.remember(Store(disk), "key", StoredFile(SHA, 1))
    ),
    "orchestrator/sources/store.py": a_model,
    "orchestrator/trust/revocations.py": a_revocation,
    "orchestrator/trust/farm_key_rotation.py": lambda disk, _: lambda: farm_key(disk),
    "runtime/delegates/gpu/keep/cache.py": a_kept_program,
    "runtime/measure/reference.py": outputs,
}
"""Module that writes durable files -> a write of its own, prepared while there is room."""

ELSEWHERE = {
    "agent/attempt/running.py": "scenario 24b, tests/agent/attempt/test_room.py",
    "agent/runner/decide.py": "the runner ends as any that raises: tests/agent/processes/test_supervision.py",
    "agent/runner/turns/arm.py": "as above",
    "agent/runner/attached/arm.py": "as above",
    "runtime/delegates/gpu/layout/packed_file.py": "tests/runtime/delegates/gpu/test_packed_file.py",
}
"""Writers that need an attempt or a model, and where their disk is full."""

WRITE_NOTHING = {"agent/attempt/lease.py", "agent/link/cache.py"}
"""An empty lock and a rename need no room."""


def test_every_writer_is_here():
    root = needs.REPOSITORY
    found = set()
    for path in (p for floor in ("agent", "orchestrator", "runtime") for p in (root / floor).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "runtime.common.durable":
                names = {alias.name for alias in node.names}
                if names - {"open_lock", "lock_file", "is_draft"}:
                    found.add(str(path.relative_to(root)))
    assert found == WRITERS.keys() | ELSEWHERE.keys()


def held(disk: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(disk)): path.read_bytes()
        for path in disk.rglob("*")
        if path.is_file() and path.name not in ("ballast", "lock")
    }


@pytest.mark.parametrize("module", WRITERS)
def test_scenario_35_a_full_disk_is_said_and_spoils_nothing(disk, tmp_path, module, monkeypatch):
    write = WRITERS[module](disk, tmp_path)
    before = held(disk)
    ballast = fill(disk)
    if module in WRITE_NOTHING:
        write()
    else:
        with pytest.raises((OSError, FarmError)) as caught:
            write()
        error = caught.value
        assert "space" in str(error).lower(), error
        assert held(disk) == before, "nothing is half written, and no draft is left"
        if module.startswith("orchestrator/"):
            assert_one_line(error, monkeypatch)
        ballast.unlink()
        write()
        assert held(disk) != before


def assert_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that `farm` says this error in one line, whichever verb meets it."""

    class Parser:
        def main(self, *_: object, **__: object) -> int:
            raise error

    said: list[str] = []
    monkeypatch.setattr(cli, "parser", Parser)
    monkeypatch.setattr(output, "error", said.append)
    assert cli.run(["results"]) == 1
    assert len(said) == 1
    assert "space" in said[0].lower()
