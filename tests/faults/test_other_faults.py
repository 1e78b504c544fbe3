"""Scenarios 25, 28-30 and 33: clocks, models damaged on the way, cancels, devices that go, half-done work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.lease import try_lease
from tests import needs
from tests.faults.lab import LISTEN_PORT, until
from tests.needs import REPOSITORY
from tests.services.processes import Server

WORK = {"seconds": 0.2}


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
    lab.submit(5, gpu={"seconds": 0.5})
    assert lab.finish() == {"done": 10}
    for attempt in lab.view.attempts():
        assert attempt.state == "done", "leases are the server's clock's"
        assert 0 <= (attempt.ended_at - attempt.dispatched_at).total_seconds() < 60
    for result in lab.view.results():
        assert 0.4e9 < result.duration_ns < 30e9, "durations are a monotonic clock's"


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


@pytest.mark.parametrize("fault", ["cut", "bit"])
def test_scenario_28_a_model_that_is_damaged_on_the_way_is_never_measured(fault_lab, fault):
    lab = fault_lab.start("agB", devices=1)
    agent, middle = lab.add_agent("agA", devices=1), lab.network.nodes["middle"]
    proxy = [sys.executable, str(REPOSITORY / "tests/services/proxy.py")]
    way = ["--listen", f"{middle.address}:{LISTEN_PORT}"]
    target = ["--target", f"{lab.server_node.address}:{LISTEN_PORT}"]
    damage = ["--cut-after" if fault == "cut" else "--flip-at", "300000"]
    server = Server(middle.command([*proxy, *way, *target, *damage]), lab.folder / "proxy.log")
    try:
        agent.start()
        lab.until_heard("agA")
        agent.node.divert(lab.server_node.address, LISTEN_PORT, middle.address)
        lab.submit(2, model_bytes=500_000, gpu=WORK)
        assert lab.finish() == {"done": 4}
    finally:
        server.kill()
    assert ("cut after" if fault == "cut" else "turned a bit over") in server.log.read_text()
    assert set(lab.view.starts().values()) == {1}


def test_scenario_29_a_cancel_at_any_moment_ends_every_cell_once(fault_lab):
    lab = fault_lab.start("agA", "agB", devices=1)
    for _ in range(5):
        campaign = lab.submit(6, gpu={"seconds": 0.4})
        time.sleep(lab.chance.uniform(0, 2.5))
        lab.farm("cancel", campaign)
        began = time.monotonic()
        until(lambda: not lab.view.open_cells(), "the cancelled campaign has ended", limit_s=15)
        assert time.monotonic() - began < 15
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


def test_scenario_33b_a_migration_killed_at_random_rolls_back_or_finishes(fault_lab):
    lab = fault_lab
    for _ in range(6):
        starting = lab.start_farm("doctor")
        timer = threading.Timer(lab.chance.uniform(0.4, 1.6), starting.kill)
        timer.start()
        starting.communicate()
        timer.join()
    lab.start("agA", devices=1)
    lab.submit(2, gpu=WORK)
    assert lab.finish() == {"done": 2}
