"""Scenarios 36-41: no descriptors, a damaged journal, a clock a year off, a stale broker or database."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event

from agent.wire.messages import JobSpec
from orchestrator.config.lab import LabTimes
from orchestrator.db.engine.sessions import Database
from orchestrator.dispatch.base import MessageReceived
from orchestrator.errors import UnreachableError
from orchestrator.scheduling.loop import SchedulerLoop
from tests.faults.lab import BOUND_S, until
from tests.faults.test_other_faults import clocks  # noqa: F401  # the fixture
from tests.orchestrator.asked import asked
from tests.orchestrator.scheduling.test_loop import DEVICE, HELLO, MemoryBroker
from tests.orchestrator.stocked import cells, result, stock

WORK = {"seconds": 0.3}
A_YEAR_H = 365 * 24.0


@contextmanager
def no_descriptors(pid: int) -> Iterator[None]:
    """Let a process open no further file within the block; what it has open stays open."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    yield
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    except ProcessLookupError:
        return


@pytest.mark.parametrize("who", ["server", "agent", "link"])
def test_scenario_36_a_process_without_descriptors_loses_no_cell(fault_lab, who):
    lab = fault_lab.start("agA", devices=1)
    lab.submit(8, gpu=WORK)
    lab.until_done(1)
    agent = lab.agents["agA"]
    pid = {"server": lab.server.pid, "agent": agent.pid, "link": agent.link_pids()[0]}[who]
    with no_descriptors(pid):
        time.sleep(4)
    if not agent.running:
        assert agent.says("Too many open files")
        agent.start()
    if not lab.server.running:
        lab.start_server()
    assert lab.finish() == {"done": 8}, {a.reason_code for a in lab.view.attempts()}


def test_scenario_37_a_damaged_journal_is_said_and_its_attempts_run_again(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    lab.submit(3, slow={"seconds": 0.1, "first_seconds": 5})
    lab.until_running()
    agent = lab.agents["agA"]
    agent.kill()
    journal = agent.state / "journal.db"
    for name in ("journal.db-wal", "journal.db-shm"):
        (agent.state / name).unlink(missing_ok=True)
    journal.write_bytes(b"no database" * 1000)
    agent.start()
    assert agent.server.end() == 1
    assert agent.says(f"the journal {journal} is damaged")
    journal.rename(journal.with_name("damaged.db"))
    agent.start()
    assert lab.finish() == {"done": 3}


@pytest.mark.parametrize("who", ["server", "agent"])
@pytest.mark.parametrize("hours", [A_YEAR_H, -A_YEAR_H])
def test_scenario_38_a_clock_that_jumps_by_a_year_shuts_nobody_out(fault_lab, clocks, who, hours):  # noqa: F811
    lab, clock = fault_lab, clocks[0]
    lab.start_server(**(clock.environment if who == "server" else {}))
    lab.add_agent("agA", devices=1).start(**(clock.environment if who == "agent" else {}))
    lab.until_heard("agA")
    lab.submit(6, gpu=WORK)
    lab.until_done(1)
    clock.set(hours)
    time.sleep(5)
    clock.set(0)
    ended = lab.finish()
    # An attempt that the server began a year ago, by its own clock, is over its time.
    assert ended["done"] >= 6 - (who == "server"), ended
    lab.submit(2, gpu=WORK)
    assert lab.finish()["done"] == ended["done"] + 2, "the agent is still known, and still believes the farm"


def test_scenario_39_a_fail_over_of_redis_that_loses_writes_loses_and_doubles_nothing(fault_lab):
    lab = fault_lab.start("agA", "agB", devices=1)
    lab.submit(10, gpu=WORK)
    lab.until_done(3)
    stale = lab.folder / "stale"
    # Of a server that writes, a copy of several files is of no one moment.
    lab.redis.pause()
    shutil.copytree(lab.redis.data, stale)
    lab.redis.resume()
    lab.until_done(8)
    lab.redis.kill()
    shutil.rmtree(lab.redis.data)
    shutil.copytree(stale, lab.redis.data)
    lab.redis.start()
    # Jobs that the other Redis has lost begin again once they count as lost, one after the other.
    assert lab.finish(limit_s=2 * BOUND_S) == {"done": 20}


def a_result_and_a_waiting_cell(database: Database) -> tuple[SchedulerLoop, MemoryBroker, MessageReceived]:
    """Return a scheduler, and the message with which an attempt ends; the device then gets the next cell."""
    stock(database, asked(("a", "b"), {"gpu": {}}), [DEVICE])
    broker = MemoryBroker(database)
    loop = SchedulerLoop(database, broker, LabTimes(sweep_s=0.0, reaper_s=0.0, patience_s=0.0))
    broker.arrived.append(HELLO)
    loop.listen(0.1)
    ((job, _),) = broker.of(JobSpec)
    return loop, broker, MessageReceived("rack", result(job))


@pytest.mark.parametrize("moment", ["before_cursor_execute", "after_cursor_execute"])
def test_scenario_40_postgresql_ends_inside_each_statement_of_a_turn(
    postgres, migrated_template, moment, caplog
):
    fallen = 0
    for number in range(300):
        name = postgres.new_database(migrated_template)
        database, killer = (Database.connect(postgres.socket_url(name)) for _ in range(2))
        loop, broker, ended = a_result_and_a_waiting_cell(database)
        seen: list[str] = []

        def end(connection, _cursor, statement, *_, seen=seen, at=number, killer=killer):
            if len(seen) == at:
                pid = connection.connection.driver_connection.info.backend_pid
                with killer.engine.connect() as killing:
                    killing.exec_driver_sql(f"SELECT pg_terminate_backend({pid}, 5000)")
            seen.append(statement)

        event.listen(database.engine, moment, end)
        broker.arrived.append(ended)
        try:
            loop.listen(0.1)
        except UnreachableError:
            fallen += 1
        event.remove(database.engine, moment, end)
        # The agent sends its result until there is a receipt.
        broker.arrived.append(ended)
        loop.listen(0.1)
        assert sorted(cell.state for cell in cells(database)) == ["dispatched", "done"], seen[number:]
        database.close()
        killer.close()
        postgres.drop_database(name)
        if len(seen) <= number:
            break
    assert fallen >= 5, "a turn has statements"
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_scenario_41_a_restored_backup_behind_the_agents_spool_measures_on(fault_lab):
    lab = fault_lab.start("agA", "agB", devices=1)
    lab.submit(10, gpu=WORK)
    lab.until_done(3)
    copy = lab.folder / "copy.dump"
    assert lab.call("db", "backup", str(copy)).returncode == 0
    lab.until_done(12)
    assert lab.server.stop() == 0
    restored = lab.call("db", "restore", str(copy), "--yes")
    assert restored.returncode == 0, restored.stderr
    assert lab.view.counts()["done"] < 12, "the farm has forgotten results"
    lab.start_server()
    # Results that had their receipts are forgotten on both sides, so the cells are measured again.
    until(lambda: not lab.view.open_cells(), "every cell has ended")
    assert lab.view.counts() == {"done": 20}
