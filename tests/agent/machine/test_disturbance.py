"""Disturbances of a measurement are seen by this machine's counters; parsers read what is documented."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.machine.conditions import LAYERS, why_not_published
from agent.machine.counters import Counters, ThreadTimes, Window
from agent.machine.disturbance import disturbances
from agent.machine.gate import Gate
from agent.machine.workload import FEWEST, HISTORY, Reading, keep, load, why_vague
from agent.runner.turns import calibration
from tests.agent.machine.test_conditions import CPU as CPU_FOLDER
from tests.agent.machine.test_conditions import host

CPUS = os.sched_getaffinity(0)
SPIN = "print(flush=True)\nwhile True: pass"


@pytest.fixture
def neighbours():
    """One process on each CPU that does nothing but compute."""
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) for _ in CPUS]
    for process in spinning:
        assert process.stdout.readline() == b"\n"
    yield spinning
    for process in spinning:
        process.kill()
        process.communicate()


def watched(seconds: float) -> Window:
    before = Counters.now(CPUS)
    time.sleep(seconds)
    return Window.between(before, Counters.now(CPUS), len(CPUS))


def test_programs_that_compute_beside_a_measurement_are_seen(neighbours):
    evidence = disturbances(watched(0.5))
    assert "foreign CPU time" in evidence.seen
    assert any(d.text.startswith("other programs used") for d in evidence.found), evidence


def test_a_process_is_not_its_own_neighbour():
    before = Counters.now(CPUS)
    until = time.process_time() + 0.4
    while time.process_time() < until:
        pass
    window = Window.between(before, Counters.now(CPUS), len(CPUS))
    assert window.foreign_s is not None
    # Whatever else runs on this machine, the 0.4 s that this process computed are not counted as foreign. The
    # tenth of a second is for others that run between the counters' readings.
    assert window.foreign_s <= window.wall_s * len(CPUS) - 0.3 + window.rounding_s


def window(**counted: object) -> Window:
    fields = {"from_s": 0.0, "wall_s": 10.0, "cpus": 4, "asleep_s": 0.0, "foreign_s": 0.1,
              "steal_s": 0.0, "throttled_s": 0.0, "waiting_s": 0.1, "swapped_in": 0}  # fmt: skip
    return Window(**fields | counted)


@pytest.mark.parametrize(
    ("counted", "said", "invalidates"),
    [
        ({}, None, False),
        ({"foreign_s": 2.5}, "other programs used 0.2 of 4 CPUs", False),
        ({"foreign_s": 2.5, "cpus": 64}, None, False),
        ({"steal_s": 1.0}, "the hypervisor withheld 0.10 of 4 CPUs", False),
        ({"throttled_s": 0.5}, "a CPU quota stopped it for 0.500 s", False),
        (
            {"waiting_s": 1.0, "foreign_s": 1.0},
            "tasks waited for a CPU in 10% of the time",
            False,
        ),
        # Its own threads waited for each other.
        ({"waiting_s": 5.0}, None, False),
        ({"swapped_in": 3}, "3 pages were swapped in", True),
        ({"asleep_s": 2.0}, "the machine was suspended for 2.0 s", True),
    ],
)
def test_each_signal_has_its_bound(counted, said, invalidates):
    found = disturbances(window(**counted)).found
    assert [(d.text, d.invalidates) for d in found] == ([] if said is None else [(said, invalidates)])


def test_what_a_machine_does_not_count_is_said_and_is_no_disturbance(tmp_path):
    here = Counters.now([0], tmp_path)
    evidence = disturbances(Window.between(here, Counters.now([0], tmp_path), 1))
    assert evidence.found == ()
    assert evidence.seen == ("suspend",)
    assert [text.partition(":")[0] for text in evidence.unseen] == [
        "foreign CPU time", "steal time", "CPU throttling", "CPU pressure", "swap",
    ]  # fmt: skip


def test_a_loop_that_is_too_short_for_the_counters_says_so():
    evidence = disturbances(window(wall_s=0.01, foreign_s=0.02))
    assert "foreign CPU time: its rounds took 10 ms in all, too short to tell" in evidence.unseen
    assert evidence.found == ()


V1 = {
    "proc__self__mounts": "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n",
    "proc__self__cgroup": "4:cpu,cpuacct:/a\n",
}
V2 = {"proc__self__mounts": "none /sys/fs/cgroup cgroup2 rw 0 0\n", "proc__self__cgroup": "0::/a\n"}


@pytest.mark.parametrize(
    "files",
    [
        {**V2, "sys__fs__cgroup__a__cpu.stat": "usage_usec 7\nnr_throttled 2\nthrottled_usec 1500000\n"},
        {**V1, "sys__fs__cgroup__cpu__a__cpu.stat": "nr_throttled 2\nthrottled_time 1500000000\n"},
    ],
)
def test_counters_are_read_where_the_kernel_documents_them(tmp_path, files):
    root = host(
        tmp_path,
        proc__stat="cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 10 50 999 999 3 2 25 0 0\ncpu1 1 1 1 1 1 1 1 1 0 0\n",
        proc__pressure__cpu="some avg10=1.0 avg60=0.0 avg300=0.0 total=2500000\nfull avg10=0 total=7\n",
        proc__vmstat="pgpgin 5\npswpin 12\n",
        **files,
    )
    found = Counters.now([0], root)
    assert found.busy_s == pytest.approx(165 / os.sysconf("SC_CLK_TCK"))
    assert found.steal_s == pytest.approx(25 / os.sysconf("SC_CLK_TCK"))
    assert (found.throttled_s, found.waiting_s, found.swapped_in) == (pytest.approx(1.5), 2.5, 12)


def test_waiting_is_that_of_the_thread_that_waited_most(tmp_path):
    before = ThreadTimes.of(5, host(tmp_path / "a", proc__5__task__7__schedstat="9000000000 1000000000 3\n"))
    files = {
        "proc__5__task__7__schedstat": "9200000000 1500000000 4\n",
        "proc__5__task__8__schedstat": "300000000 700000000 1\n",
    }
    after = ThreadTimes.of(5, host(tmp_path / "b", **files))
    assert after.since(before) == (pytest.approx(0.5), pytest.approx(0.7))
    assert ThreadTimes.of(6, tmp_path) is None, "the kernel tells nothing of it"


def test_a_thread_that_shares_its_cpu_is_known_to_wait():
    one = min(CPUS)
    commands = [["/usr/bin/env", "taskset", "-c", str(one), sys.executable, "-c", SPIN] for _ in range(2)]
    spinning = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    until, waited_s = time.monotonic() + 60, 0.0
    try:
        before = ThreadTimes.of(spinning[0].pid)
        while waited_s < 0.05 and time.monotonic() < until:
            waited_s = ThreadTimes.of(spinning[0].pid).since(before)[1]
    finally:
        for process in spinning:
            process.kill()
            process.wait()
    assert waited_s >= 0.05


def test_rounding_is_subtracted_and_grows_with_the_root_of_the_cpus():
    assert window(foreign_s=0.01).surely_foreign_s == 0.0
    assert window(foreign_s=1.0).surely_foreign_s == pytest.approx(1.0 - window().rounding_s)
    assert window(cpus=64).rounding_s == pytest.approx(4 * window(cpus=4).rounding_s)
    assert window(foreign_s=None).surely_foreign_s is None


@pytest.mark.slow
def test_the_gate_waits_as_often_as_it_may_and_then_says_who_is_there(neighbours):
    told: list[str] = []
    gate = Gate(CPUS, (), 2, told.append, calibration.read, wait_s=0.1)
    why = gate.pass_quietly()
    assert why is not None
    assert why.startswith("other programs used")
    assert "python" in why
    assert why.endswith("(after 2 x 0 s of waiting)")
    assert gate.waits == 0
    assert len(told) >= 2
    assert all(line.startswith("waiting for a quiet machine: other programs used") for line in told)


def test_the_workload_is_short_and_compared_with_the_devices_own_history(tmp_path):
    reading = calibration.read()
    assert min(reading.compute_ns, reading.copy_ns) > 0
    usual = [Reading(1_000_000, 2_000_000)] * FEWEST
    assert Reading(1_200_000, 2_500_000).slower_than(usual) is None
    assert Reading(1_000_000, 3_000_000).slower_than(usual) == (
        "copying took 1.5 times as long as usual on this device, where it varies up to 1.3 times"
    )
    assert Reading(9_000_000, 9_000_000).slower_than(usual[1:]) is None, "too little is known"
    path = tmp_path / "workload.json"
    keep(path, "a", usual)
    keep(path, "b", [Reading(i, i) for i in range(HISTORY + 7)])
    assert load(path, "a") == usual
    assert load(path, "b") == [Reading(i, i) for i in range(7, HISTORY + 7)]
    path.write_text("half a li")
    assert load(path, "a") == []


def test_a_reading_is_unusual_only_beyond_what_is_usual_on_its_device():
    rng = random.Random(3)
    shared = [Reading(1_000_000, int(2_000_000 * rng.lognormvariate(0.0, 0.3))) for _ in range(HISTORY)]
    assert Reading(1_000_000, 4_000_000).slower_than(shared) is None
    said = Reading(1_000_000, 9_000_000).slower_than(shared)
    assert said is not None
    assert said.startswith("copying took 4.")
    told = why_vague(shared)
    assert told is not None
    assert told.startswith("its time on this device varies up to ")
    assert why_vague([Reading(1, 1)] * FEWEST) is None
    assert why_vague([Reading(1, 1)]) == f"1 earlier readings; it needs {FEWEST}"


def test_a_block_has_the_typical_reading_of_its_rounds():
    assert Reading.typical([Reading(9, 1), Reading(3, 2), Reading(4, 90)]) == Reading(4, 2)


SUPPLY = "sys__class__power_supply"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, None),
        ({f"{CPU_FOLDER}__cpu0__cpufreq__scaling_governor": "performance\n"}, None),
        ({f"{CPU_FOLDER}__cpu0__cpufreq__scaling_governor": "powersave\n"}, "governor is powersave; set"),
        ({**V2, "sys__fs__cgroup__a__cpu.max": "150000 100000\n"}, "limits the CPU to 1.50 CPUs"),
        ({f"{SUPPLY}__BAT0__type": "Battery\n", f"{SUPPLY}__BAT0__status": "Discharging\n",
          f"{SUPPLY}__AC__type": "Mains\n", f"{SUPPLY}__AC__online": "0\n"}, "runs on battery; connect it"),
        ({f"{SUPPLY}__BAT0__type": "Battery\n", f"{SUPPLY}__BAT0__status": "Discharging\n",
          f"{SUPPLY}__AC__type": "Mains\n", f"{SUPPLY}__AC__online": "1\n"}, None),
    ],
)  # fmt: skip
def test_a_machine_that_is_set_up_for_something_else_publishes_nothing(tmp_path, files, said):
    why = why_not_published([0], {}, host(tmp_path, **files))
    assert (why is None) if said is None else (why is not None and said in why)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_that_changes_what_is_measured_publishes_nothing(tmp_path, layer):
    why = why_not_published([0], {layer: "x"}, tmp_path)
    assert why == f"{layer}=x is set, a layer that changes what is measured; unset it"
    assert why_not_published([0], {layer: ""}, Path(tmp_path)) is None
