from __future__ import annotations

import os
import sys
import tempfile
import zlib
from pathlib import Path

import pytest

from tests import needs
from tests.faults.lab import FaultLab
from tests.faults.report import VARIABLE, Record
from tests.reports import SessionReport
from tests.services.network import Network
from tests.services.postgres import PostgresCluster
from tests.services.redis import RedisServer

MACHINES = ("services", "server", "agA", "agB", "middle")
QUICK = (
    "tests/faults/test_invariants.py",
    "tests/faults/test_runner_faults.py::test_scenario_01_",
    "tests/faults/test_full_disk.py::test_every_writer_",
    "tests/faults/test_mutations.py::test_all_of_them_",
)
"""Tests that CI runs too, so that neither checker nor lab nor mutation can break unnoticed: all of the
checker's, one scenario, and that there is something to take away.
"""
_RECORD = Record()
_REPORT = SessionReport.wanted(VARIABLE)


def pytest_collection_modifyitems(items):
    for item in items:
        if item.nodeid.startswith("tests/faults/") and not item.nodeid.startswith(QUICK):
            item.add_marker("faults")


def pytest_runtest_logreport(report):
    _RECORD.note(report)


def pytest_sessionfinish(session, exitstatus):
    """Write the report of a run that left nothing out."""
    if _REPORT is not None and _RECORD.complete:
        _REPORT.write(_RECORD.text(), session, exitstatus)


@pytest.fixture(scope="session")
def lab_network(tmp_path_factory):
    """Five machines on one bridge. A scenario leaves them healed."""
    needs.network_namespaces()
    network = Network(tmp_path_factory.mktemp("network"))
    for name in MACHINES:
        network.add(name)
    yield network
    network.close()


@pytest.fixture(scope="session")
def lab_postgres(lab_network, short_folder):
    """PostgreSQL on the machine `services`."""
    node = lab_network.nodes["services"]
    cluster = PostgresCluster(
        short_folder / "lab-postgres", needs.postgres_binaries(), address=node.address, enter=node.command
    )
    yield cluster.create().start()
    cluster.stop("immediate")


@pytest.fixture
def lab_redis(lab_network, short_folder):
    """Start a Redis of this scenario alone, on the machine `services`."""
    needs.redis_server()
    node = lab_network.nodes["services"]
    folder = Path(tempfile.mkdtemp(prefix="redis-", dir=short_folder))
    server = RedisServer(folder, address=node.address, enter=node.command).start()
    yield server
    server.kill()


@pytest.fixture
def seed(request):
    """`FAULT_SEED`, else one that belongs to the scenario; it is part of every failure's text."""
    chosen = int(os.environ.get("FAULT_SEED") or zlib.crc32(request.node.name.encode()) % 100_000)
    sys.stdout.write(f"the same again: FAULT_SEED={chosen}\n")
    return chosen


@pytest.fixture
def fault_lab(tmp_path, lab_network, lab_postgres, lab_redis, seed):
    """Return a lab that has not been started. Healed and removed afterwards."""
    name = lab_postgres.new_database()
    lab = FaultLab(tmp_path, lab_network, lab_redis, seed, lab_postgres, name)
    yield lab
    lab_network.heal()
    lab.close()
    lab_postgres.drop_database(name)


@pytest.fixture
def sqlite_lab(tmp_path, lab_network, lab_redis, seed):
    """Return a lab like `fault_lab`, with its database in the server's home."""
    lab = FaultLab(tmp_path, lab_network, lab_redis, seed)
    yield lab
    lab_network.heal()
    lab.close()
