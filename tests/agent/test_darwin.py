"""The agent as if on macOS (`tests/services/darwin.py`): imports, start, a measurement, what is refused.

What macOS itself does is proven on a Mac alone; docs/macos.md lists it.
"""

from __future__ import annotations

import json
import os
import plistlib
import subprocess
import sys
from pathlib import Path

import pytest

from agent.launchd import service
from agent.machine.sensors.macos import is_on_battery, throttled
from agent.machine.sensors.sensor import Throttle
from agent.processes.descendants import LISTED, listed, marks_in, processes
from runtime.common.system import columns, told_by
from runtime.delegates.processor import apple_processor
from tests import needs
from tests.services import darwin

EVERY_ROOM = """
import importlib, pkgutil, sys
for package in ("agent", "runtime"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
import agent.config, agent.machine.conditions
assert agent.config.sys.platform == "darwin"
print(sorted(agent.machine.conditions.settings({0}).items()))
"""


@pytest.fixture
def mac(tmp_path):
    """Return the environment of programs that take this machine for a Mac."""
    folder = tmp_path / "darwin"
    folder.mkdir()
    return darwin.install(folder) | {
        "FARM_HOME": str(tmp_path / "home"),
        "FARM_LEASES": str(tmp_path / "leases"),
    }


def run(words: list[str], environment: dict[str, str], code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        env=environment,
        cwd=needs.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr[-3000:] + done.stdout[-1000:]
    return done.stdout + done.stderr


def test_the_names_that_are_taken_away_are_linux_alone() -> None:
    taken = {name for module in darwin.MODULES for name in darwin.missing(module)}
    assert {"sched_getaffinity", "O_PATH", "CLOCK_BOOTTIME", "SOCK_CLOEXEC", "pidfd_open"} <= taken
    assert not {"waitid", "fork", "getsid", "O_NOFOLLOW", "CLOCK_MONOTONIC", "flock"} & taken


@pytest.mark.exhaustive
def test_no_module_uses_a_name_that_macos_lacks(tmp_path) -> None:
    words = ["-m", "mypy", "--platform", "darwin", "--python-version", "3.13", "--cache-dir", str(tmp_path)]
    run(words, dict(os.environ))


@pytest.mark.slow
def test_every_room_of_agent_and_runtime_is_imported(mac) -> None:
    assert "('low_power_mode', 'off')" in run(["-c", EVERY_ROOM], mac)


def test_the_probe_describes_a_mac(mac) -> None:
    report = json.loads(run(["-m", "agent.runner", "--probe", "--without-drivers", "no driver here"], mac))
    (cpu,) = (device for device in report["devices"] if device["kind"] == "cpu")
    assert cpu["name"] == "Apple M2 Pro"
    assert cpu["facts"]["os"] == "macOS 14.5 23F79"
    assert cpu["environment"]["cpu_binding"].startswith("none")
    assert cpu["environment"]["cpus"] == str(os.cpu_count())
    assert cpu["facts"]["memory_bytes"] == str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


@pytest.mark.exhaustive
def test_a_model_is_measured_on_as_many_threads_as_asked(mac) -> None:
    model = needs.shared_models() / "vendored/google-coral_test_data/keras_lstm_mnist_ptq.tflite"
    farm = str(Path(sys.executable).with_name("farm"))
    run([farm, "submit", str(model), "--delegate", "cpu", "--threads", "1"], mac)
    (cell,) = json.loads(run([farm, "results", "--json"], mac))
    assert (cell["status"], cell["threads"]) == ("done", 1)


def test_a_process_that_hides_is_found_by_its_mark_and_a_closed_folder_removed(mac, tmp_path) -> None:
    run(["-c", HIDES, str(tmp_path)], mac)


HIDES = """
import os, subprocess, sys, time
from pathlib import Path
from agent.processes.left_files import remove_left
from agent.processes.supervisor import Launch, Runner
folder = Path(sys.argv[1], "attempt")
folder.mkdir()
hider = (
    "import os, subprocess, sys; "
    "sleeper = [sys.executable, '-S', '-c', 'import time; time.sleep(600)']; "
    "child = subprocess.Popen(sleeper, start_new_session=True); "
    "open(sys.argv[1], 'w').write(str(child.pid)); os._exit(7)"
)
noted = folder / "noted"
command = [sys.executable, "-S", "-c", hider, str(noted)]
runner = Runner.start("hidden", Launch(command, dict(os.environ), folder))
while runner.poll() is None:
    time.sleep(0.01)
assert runner.poll() == 7
hidden = int(noted.read_text())
os.kill(hidden, 0)
assert runner.reap() == set()
assert subprocess.run(["ps", "-o", "stat=", "-p", str(hidden)], capture_output=True).stdout[:1] in (b"", b"Z")
closed = folder / "closed"
closed.mkdir()
(closed / "file").touch()
closed.chmod(0)
assert remove_left(folder)
"""


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("FARM_RUNNER_SANDBOX", "on", "set FARM_RUNNER_SANDBOX=off"),
        ("FARM_RUNNER_MEMORY_BYTES", "1073741824", "bounds no address space on macOS"),
    ],
)
def test_what_macos_lacks_is_refused_at_the_start(mac, tmp_path, variable, value, says) -> None:
    words = ["start", "--state", str(tmp_path / "state")]
    assert says in run(["-c", START, *words], mac | {variable: value}, code=1)


START = "import agent.cli; agent.cli.main()"


def test_the_service_is_a_property_list_that_launchd_knows(mac, tmp_path) -> None:
    state = tmp_path / "state"
    settings = {
        "FARM_RUNNER_SANDBOX": "off",
        "FARM_ENROL_TOKEN": "secret",
        "HOME": "/Users/lab",
        "LS_COLORS": "",
    }
    found = plistlib.loads(service(state, settings))
    assert found["EnvironmentVariables"] == {"FARM_RUNNER_SANDBOX": "off", "HOME": "/Users/lab"}
    assert found["ProgramArguments"][1:] == ["start", "--state", str(state)]
    assert Path(found["ProgramArguments"][0]).is_file()
    assert found["KeepAlive"] == {"SuccessfulExit": False}
    assert set(found) <= LAUNCHD_KEYS
    printed = run(["-c", START, "service", "--state", str(state)], mac)
    assert plistlib.loads(printed.encode())["Label"] == found["Label"]
    assert "=off" in run(["-c", START, "service"], mac | {"FARM_RUNNER_SANDBOX": "on"}, code=1)


LAUNCHD_KEYS = {
    "Label", "ProgramArguments", "EnvironmentVariables", "WorkingDirectory", "StandardOutPath",
    "StandardErrorPath", "RunAtLoad", "KeepAlive", "ThrottleInterval", "ExitTimeOut", "Umask", "ProcessType",
}  # fmt: skip
"""Keys of launchd.plist(5)."""


def test_ps_lists_the_processes_that_proc_lists() -> None:
    own = {stat.pid: stat for stat in processes()}[os.getpid()]
    found = {stat.pid: stat for stat in listed(told_by("ps", "-A", *LISTED))}
    assert (found[own.pid].parent, found[own.pid].group, found[own.pid].session) == (
        own.parent, own.group, own.session
    )  # fmt: skip


def test_marks_are_found_behind_the_words_of_a_command() -> None:
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; time.sleep(600)"],
        env={"A": "b c", "FARM_ATTEMPT": "one:ab12"},
    )
    try:
        assert marks_in(told_by("ps", "axeww", "-o", "pid=", "-o", "command="))[child.pid] == "one:ab12"
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (darwin.THERM, Throttle(0)),
        (darwin.THERM.replace("CPU_Speed_Limit \t= 100", "CPU_Speed_Limit \t= 58"), Throttle.HEAT),
        ("CPU_Speed_Limit = 100\nThermal Warning Level = 1\n", Throttle.HEAT),
    ],
)
def test_heat_that_slows_a_mac_down_is_read(text, why) -> None:
    assert throttled(text) == float(why)


def test_notes_that_nothing_was_recorded_are_no_reading() -> None:
    with pytest.raises(ValueError, match="neither a speed limit nor a warning level"):
        throttled("".join(darwin.THERM.splitlines(keepends=True)[:2]))


def test_the_source_of_power_is_read() -> None:
    assert is_on_battery("Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t84%; discharging\n")
    assert not is_on_battery(darwin.ON_MAINS)


def test_a_processor_is_identified_by_model_and_instruction_sets() -> None:
    told = dict(line.split(": ") for line in darwin.SYSCTL.splitlines())
    found = apple_processor(told)
    assert found.model == "Apple M2 Pro -634136515 4"
    assert apple_processor(told | {"hw.optional.arm.FEAT_SME": "1"}).features != found.features


def test_a_table_keeps_the_spaces_of_its_last_column() -> None:
    assert columns("  1 S   a b\n\n 22 Z\n", 3) == [["1", "S", "a b"], ["22", "Z", ""]]
