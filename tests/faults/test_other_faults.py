"""Scenarios 25, 28-30 and 33: clocks, models damaged on the way, cancels, devices that go, half-done work."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.attempt.lease import try_lease
from orchestrator.db.engine.locks import MIGRATION_LOCK
from orchestrator.db.migrate import HEAD, revision
from tests import needs
from tests.faults.lab import LISTEN_PORT, until
from tests.needs import REPOSITORY
from tests.services.processes import Server

WORK = {"seconds": 0.2}
PATIENT = {"FARM_SUSPECT_S": 20, "FARM_LOST_S": 30, "FARM_WATCHDOG_S": 20, "FARM_RESEND_S": 20}
"""Somebody who is stopped for a while is not given up."""


@dataclass
class Clock:
    """The wall clock of the processes that are started with `environment`; `set` steps it, as NTP does."""

    library: Path
    file: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.library), "FAULT_CLOCK": str(self.file)}

    def set(self, hours: float) -> None:
        self.file.write_text(str(int(3600 * hours)))


@pytest.fixture
def clocks(tmp_path):
    """Two clocks that are right."""
    library = tmp_path / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([needs.compiler(), "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    made = [Clock(library, tmp_path / name) for name in ("one", "two")]
    for clock in made:
        clock.set(hours=0)
    show = [sys.executable, "-c", "import time; print(time.time())"]
    made[0].set(hours=2)
    said = subprocess.run(show, env=os.environ | made[0].environment, capture_output=True, check=True)
    assert 7100 < float(said.stdout) - time.time() < 7300, "the clock can be set"
    made[0].set(hours=0)
    return made


def test_scenario_25_clocks_that_are_hours_off_change_nothing(fault_lab, clocks):
    lab = fault_lab
    lab.start_server()
    for name, clock, hours in zip(("agA", "agB"), clocks, (2, -2), strict=True):
        clock.set(hours)
        lab.add_agent(name, devices=1).start(**clock.environment)
    lab.until_heard("agA", "agB")
    for name, said in (("agA", "2 h 0 min ahead of"), ("agB", "2 h 0 min behind")):
        told = f"{name}: its clock is {said} the server's"
        until(lambda told=told: told in " ".join(lab.call("doctor").stdout.split()), "the doctor says so")
    began = datetime.now(UTC)
    lab.submit(5, gpu={"seconds": 0.5})
    lab.submit(1, gpu=WORK)
    assert lab.finish() == {"done": 12}
    for attempt in lab.view.attempts():
        assert attempt.state == "done", "leases are the server's clock's"
        assert 0 <= (attempt.ended_at - attempt.dispatched_at).total_seconds() < 60
    for result in lab.view.results():
        assert 0.1e9 < result.duration_ns < 30e9, "durations are a monotonic clock's"
        assert began <= result.received_at <= datetime.now(UTC), "its time is the server's"
    out = lab.folder / "public"
    assert lab.call("site", "build", "--out", str(out)).returncode == 0
    order = re.findall(r"campaign-\d", (out / "index.html").read_text())
    assert order[0] == "campaign-2", "the newest first, whatever its agents' clocks say"
    assert order == sorted(order, reverse=True)


def test_scenario_25_a_clock_that_is_set_during_a_measurement_changes_nothing(fault_lab, clocks):
    lab, clock = fault_lab, clocks[0]
    lab.start_server()
    lab.add_agent("agA", devices=1).start(**clock.environment)
    lab.until_heard("agA")
    lab.submit(2, gpu={"seconds": 3})
    for hours in (2, -2):
        runner = Path(f"/proc/{lab.until_running().pid}")
        clock.set(hours)
        until(lambda runner=runner: not runner.exists(), "it ends")
    assert lab.finish() == {"done": 2}
    assert [attempt.state for attempt in lab.view.attempts()] == ["done", "done"]
    for result in lab.view.results():
        assert 2.9e9 < result.duration_ns < 60e9, "durations are a monotonic clock's"


MODEL_BYTES = 2_000_000
DAMAGE = {
    "cut": ("--cut-after", "cut after"),
    "bit": ("--flip-at", "turned a bit over"),
    "swapped": ("--swap-at", "swapped after"),
    "killed": ("--hold-at", "held after"),
}


@contextmanager
def through_proxy(lab, node, damage):
    """Send this machine's downloads from the farm through a proxy that damages them half way; yield its
    log.
    """
    middle, proxy = lab.network.nodes["middle"], [sys.executable, str(REPOSITORY / "tests/services/proxy.py")]
    way = ["--listen", f"{middle.address}:{LISTEN_PORT}"]
    target = ["--target", f"{lab.server_node.address}:{LISTEN_PORT}"]
    spoiled = [damage, str(MODEL_BYTES // 2)]
    server = Server(middle.command([*proxy, *way, *target, *spoiled]), lab.folder / "proxy.log")
    try:
        node.divert(lab.server_node.address, LISTEN_PORT, middle.address)
        yield server.log
    finally:
        server.kill()


@pytest.mark.parametrize("fault", DAMAGE)
def test_scenario_28_a_model_that_is_damaged_on_the_way_is_never_measured(fault_lab, fault):
    damage, said = DAMAGE[fault]
    lab = fault_lab.start("agB", devices=1)
    agent = lab.add_agent("agA", devices=1)
    agent.start()
    lab.until_heard("agA")
    with through_proxy(lab, agent.node, damage) as log:
        lab.submit(2, model_bytes=MODEL_BYTES, gpu=WORK)
        until(lambda: said in log.read_text(), "the damage is done")
        if fault == "killed":
            for pid in agent.link_pids():
                os.kill(pid, signal.SIGKILL)
        assert lab.finish() == {"done": 4}
        passed = sum(map(int, re.findall(r"passed (\d+) bytes", log.read_text())))
    if fault in ("cut", "killed"):
        assert passed < 2.4 * MODEL_BYTES, "half a model was fetched twice: it was not gone on with"
    assert set(lab.view.starts().values()) == {1}


def queued(lab):
    """Behind another cell of its device."""
    running = lab.until_running()
    return next(cell.cell_id for cell in lab.view.cells() if cell.cell_id != running.cell_id)


def dispatched(lab):
    """On its way: the agent's link does not take it."""

    def sent():
        return [cell.cell_id for cell in lab.view.cells() if cell.state == "dispatched"]

    return until(sent, "a cell is dispatched")[0]


def running(lab):
    return lab.until_running().cell_id


def in_flight(lab):
    """Measured; the server does not take the result."""
    chosen = lab.until_running()
    lab.server.pause()

    def measured():
        return [f for f in lab.view.facts() if f.event == "completed" and f.attempt_id == chosen.attempt_id]

    until(measured, "it is measured")
    return chosen.cell_id


@pytest.mark.parametrize("state", [queued, dispatched, running, in_flight], ids=lambda state: state.__name__)
def test_scenario_29_a_cancel_ends_a_cell_in_every_state(fault_lab, state):
    lab = fault_lab
    lab.take_time(**PATIENT)
    lab.start("agA", devices=1)
    if state is dispatched:
        lab.stop_links("agA", signal.SIGSTOP)
    lab.submit(2, gpu={"seconds": 5.0})
    cell_id = state(lab)
    lab.farm("cancel", cell_id)
    lab.server.resume()
    if state is dispatched:
        lab.stop_links("agA", signal.SIGCONT)

    def ended():
        return {cell.cell_id: cell.state for cell in lab.view.cells()}[cell_id] in ("done", "cancelled")

    until(ended, "the cancelled cell has ended", limit_s=15)
    counts = lab.finish()
    assert counts in ({"done": 2}, {"done": 1, "cancelled": 1}), "the other cell is not touched"
    assert state is in_flight or counts["cancelled"] == 1
    lab.submit(1, gpu=WORK)
    until(lambda: lab.view.counts()["done"] == counts["done"] + 1, "the device is free", limit_s=15)
    lab.check()


def test_scenario_29_a_cancel_at_any_moment_ends_every_cell_once(fault_lab):
    lab = fault_lab.start("agA", "agB", devices=1)
    for _ in range(5):
        campaign = lab.submit(6, gpu={"seconds": 0.4})
        time.sleep(lab.chance.uniform(0, 2.5))
        lab.farm("cancel", campaign)
        until(lambda: not lab.view.open_cells(), "the cancelled campaign has ended", limit_s=15)
    counts = lab.finish()
    assert set(counts) <= {"done", "cancelled"}
    assert counts["cancelled"]
    assert counts["done"] + counts["cancelled"] == 60


def test_scenario_30a_a_device_that_fails_three_times_is_quarantined_and_released(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    lab.submit(4, gpu={"behave": "device_lost", **WORK})

    def state() -> str:
        return str(lab.farm("devices")["devices"][0]["state"])

    until(lambda: state() == "quarantined", "three cells in a row failed")
    before = lab.view.starts()
    assert len(before) == 3, "the fourth cell was kept from it"
    lab.farm("devices", "release", "agA.0")
    until(lambda: lab.view.starts() != before, "it gets cells again", limit_s=8)
    counts = lab.finish()
    assert counts["failed"] == 4
    failed = [cell for cell in lab.view.cells() if cell.state == "failed"]
    assert {cell.reason_code for cell in failed} == {"device_lost"}


def test_scenario_30b_a_device_that_somebody_else_uses_is_waited_for(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    leases = Path(lab.agents["agA"].environment["FARM_LEASES"])
    rival = until(lambda: try_lease(leases, "agA-0"), "a rival takes the device")
    lab.submit(2, gpu=WORK)
    time.sleep(3)
    assert not lab.view.facts(), "nothing runs beside the rival"
    rival.release()
    assert lab.finish() == {"done": 2}


def test_scenario_30c_a_measurement_that_was_stopped_half_way_says_so(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    lab.submit(2, gpu={"seconds": 1.5})
    disturbed = lab.until_running()
    os.kill(disturbed.pid, signal.SIGSTOP)
    time.sleep(1)
    os.kill(disturbed.pid, signal.SIGCONT)
    assert lab.finish() == {"done": 2}
    warned = {r.cell_id: "far longer than asked" in (r.measurement or "") for r in lab.view.results()}
    assert warned.pop(disturbed.cell_id)
    assert not any(warned.values())


def test_scenario_33a_a_site_build_killed_at_random_leaves_the_old_site_whole(fault_lab):
    lab = fault_lab.start("agA", devices=1)
    lab.submit(10, gpu={"seconds": 0.02})
    lab.finish()
    out = lab.folder / "public"
    assert lab.call("site", "build", "--out", str(out)).returncode == 0
    whole = {str(path.relative_to(out)) for path in out.rglob("*")}
    for _ in range(5):
        building = lab.start_farm("site", "build", "--out", str(out))
        timer = threading.Timer(lab.chance.uniform(0.3, 2.5), building.kill)
        timer.start()
        building.communicate()
        timer.join()
        assert {str(path.relative_to(out)) for path in out.rglob("*")} == whole
        assert (out / "index.html").read_text().rstrip().endswith("</html>")
    assert lab.call("site", "build", "--out", str(out)).returncode == 0


def migrates(lab) -> bool:
    """Whether somebody is at the tables."""
    if lab.postgres is None:
        return lab.database.path.exists()
    asked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s"
    with lab.postgres.connect(lab.database_name) as connection:
        return bool(connection.execute(asked, (MIGRATION_LOCK,)).fetchone()[0])


@pytest.mark.parametrize("kept", ["fault_lab", "sqlite_lab"], ids=["postgresql", "sqlite"])
def test_scenario_33b_a_migration_killed_at_random_rolls_back_or_finishes(kept, request):
    lab = request.getfixturevalue(kept)
    killed_before_its_end = 0
    for later in range(6):
        starting = lab.start_farm("doctor")
        until(lambda s=starting: migrates(lab) or s.poll() is not None, "the tables are made")
        time.sleep(lab.chance.uniform(0, 0.06 * later))
        starting.kill()
        starting.communicate()
        found = revision(lab.database)
        assert found in (None, HEAD), "all of it, or nothing"
        killed_before_its_end += found is None
    assert killed_before_its_end, "no kill came in time"
    lab.start("agA", devices=1)
    lab.submit(2, gpu=WORK)
    assert lab.finish() == {"done": 2}
