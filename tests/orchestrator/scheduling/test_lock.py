from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing

from sqlalchemy import Connection

from orchestrator.db.engine.sessions import Database
from orchestrator.scheduling.lock import SchedulerLock, lock_holder
from runtime.common.durable import open_lock


def test_one_process_holds_the_lock_and_names_itself(tmp_path):
    path = tmp_path / "scheduler.lock"
    assert lock_holder(path) is None
    with SchedulerLock.acquire(path, campaign_no=7):
        assert SchedulerLock.acquire(path) is None
        holder = lock_holder(path)
        assert (holder.pid, holder.campaign_no) == (os.getpid(), 7)
    assert lock_holder(path) is None
    with SchedulerLock.acquire(path):
        assert lock_holder(path).campaign_no is None


def test_whoever_only_looks_at_that_moment_keeps_nobody_from_scheduling(tmp_path):
    path = tmp_path / "scheduler.lock"
    with open_lock(path, shared=True) as looking:
        threading.Timer(0.2, looking.close).start()
        lock = SchedulerLock.acquire(path)
    assert lock is not None
    with lock:
        assert lock_holder(path).pid == os.getpid()


def test_a_killed_holder_leaves_the_lock_free(tmp_path):
    path = tmp_path / "scheduler.lock"
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from orchestrator.scheduling.lock import SchedulerLock\n"
        "held = SchedulerLock.acquire(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert ran.returncode == -9
    assert lock_holder(path) is None
    with SchedulerLock.acquire(path):
        assert lock_holder(path) is not None


def test_a_damaged_lock_file_is_no_obstacle(tmp_path):
    path = tmp_path / "scheduler.lock"
    path.write_text("not json")
    lock = SchedulerLock.acquire(path)
    assert lock is not None
    path.write_text("not json")
    holder = lock_holder(path)
    assert holder is not None
    assert holder.pid == 0
    lock.release()


def test_of_two_machines_with_one_database_one_schedules(tmp_path, postgres_url):
    with (
        closing(Database.connect(postgres_url, tmp_path)) as here,
        closing(Database.connect(postgres_url, tmp_path)) as there,
    ):
        with SchedulerLock.acquire(tmp_path / "here.lock", database=here):
            assert SchedulerLock.acquire(tmp_path / "there.lock", database=there) is None
        lock = SchedulerLock.acquire(tmp_path / "there.lock", database=there)
        assert lock is not None, "a holder that lets go frees the lock at once"
        with lock:
            assert lock.renew(there)


def test_a_freed_lock_is_free_before_the_server_sees_the_end_of_its_connection(
    tmp_path, postgres_url, monkeypatch
):
    with (
        closing(Database.connect(postgres_url, tmp_path)) as here,
        closing(Database.connect(postgres_url, tmp_path)) as there,
    ):
        held = here.hold_scheduler_lock()
        backend = held.connection.connection.dbapi_connection.info.backend_pid
        end = held.connection.invalidate

        def end_at_a_busy_server(connection):
            os.kill(backend, signal.SIGSTOP)
            end()

        monkeypatch.setattr(Connection, "invalidate", end_at_a_busy_server)
        try:
            held.release()
            next_holder = there.hold_scheduler_lock()
        finally:
            os.kill(backend, signal.SIGCONT)
        monkeypatch.undo()
        assert next_holder is not None
        next_holder.release()


def test_a_holder_whose_connection_was_lost_takes_the_lock_anew(tmp_path, postgres_url):
    with (
        closing(Database.connect(postgres_url, tmp_path)) as here,
        closing(Database.connect(postgres_url, tmp_path)) as there,
        SchedulerLock.acquire(tmp_path / "here.lock", database=here) as lock,
    ):
        backend = lock.advisory.connection.connection.dbapi_connection.info.backend_pid
        with there.engine.connect() as connection:
            connection.exec_driver_sql(f"SELECT pg_terminate_backend({backend}, 10000)")
        assert lock.renew(here)
        assert there.hold_scheduler_lock() is None
