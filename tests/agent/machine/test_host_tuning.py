"""A host's clocks are held steady and put back, on trees of files as the kernel's drivers lay them out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.machine.host_tuning import RECORD, TuningError, Wanted, apply, in_force, restore

CPUS = "sys/devices/system/cpu"
UUIDS = ("GPU-1111", "GPU-2222")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Two CPUs of Intel's driver, one at another governor than the other."""
    for number, governor in enumerate(("powersave", "schedutil")):
        folder = tmp_path / CPUS / f"cpu{number}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
        (folder / "scaling_available_governors").write_text("performance powersave schedutil\n")
    (tmp_path / CPUS / "intel_pstate").mkdir()
    (tmp_path / CPUS / "intel_pstate/no_turbo").write_text("0\n")
    (tmp_path / "run").mkdir()
    return tmp_path


def settings(host: Path) -> list[str]:
    paths = [
        *sorted((host / CPUS).glob("cpu*/cpufreq/scaling_governor")),
        host / CPUS / "intel_pstate/no_turbo",
    ]
    return [path.read_text().strip() for path in paths]


def test_what_is_changed_is_recorded_told_and_put_back(host: Path) -> None:
    apply(Wanted(governor="performance", turbo=False), host)
    assert settings(host) == ["performance", "performance", "1"]
    assert in_force(host) == "governor was powersave and schedutil, no_turbo was 0"
    restore(host)
    assert settings(host) == ["powersave", "schedutil", "0"]
    assert in_force(host) == ""
    assert not (host / RECORD).exists()
    assert restore(host) == {}, "a second time changes nothing"


def test_a_second_order_does_not_forget_what_the_first_one_found(host: Path) -> None:
    apply(Wanted(governor="performance"), host)
    apply(Wanted(governor="schedutil", turbo=False), host)
    restore(host)
    assert settings(host) == ["powersave", "schedutil", "0"]


def test_the_record_is_there_before_the_first_change(host: Path) -> None:
    """Whatever ends the command in the middle, `restore` knows the host as it was."""
    program = (
        "import sys, os, pathlib\n"
        "from agent.machine import host_tuning as t\n"
        "t._set = lambda *_: os.kill(os.getpid(), 9)\n"
        "t.apply(t.Wanted(governor='performance', turbo=False), pathlib.Path(sys.argv[1]))\n"
    )
    subprocess.run([sys.executable, "-c", program, str(host)], check=False)
    assert json.loads((host / RECORD).read_text())[f"{CPUS}/cpu1/cpufreq/scaling_governor"] == "schedutil"
    restore(host)
    assert settings(host) == ["powersave", "schedutil", "0"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(governor="fast"), "no governor 'fast'; there are performance, powersave, schedutil"),
        (Wanted(governor="performance", gpu_persistence=True), "no-such-tool"),
    ],
)
def test_an_order_that_cannot_be_carried_out_changes_nothing(host: Path, wanted: Wanted, said: str) -> None:
    def run(command):
        raise TuningError("no-such-tool")

    with pytest.raises(TuningError, match=said):
        apply(wanted, host, run)
    assert settings(host) == ["powersave", "schedutil", "0"]
    assert not (host / RECORD).exists()


def test_a_setting_that_fails_takes_back_those_before_it(host: Path) -> None:
    switch = host / CPUS / "intel_pstate/no_turbo"
    switch.unlink()
    switch.symlink_to("/proc/version")  # can be read, and not be written
    with pytest.raises(TuningError):
        apply(Wanted(governor="performance", turbo=False), host)
    assert settings(host)[:2] == ["powersave", "schedutil"]
    assert not (host / RECORD).exists()


def test_a_machine_without_such_settings_says_so(tmp_path: Path) -> None:
    for wanted, said in (
        (Wanted(governor="performance"), "frequency governor"),
        (Wanted(turbo=False), "turbo"),
    ):
        with pytest.raises(TuningError, match=said):
            apply(wanted, tmp_path)


def test_gpus_are_asked_and_told_by_their_uuid(host: Path) -> None:
    """The commands are those of NVIDIA's manual of nvidia-smi; no GPU runs them here."""
    told: list[list[str]] = []

    def run(command):
        told.append(list(command[1:]))
        return "".join(f"{uuid}, Disabled\n" for uuid in UUIDS) if command[1].startswith("--query") else ""

    apply(Wanted(gpu_clocks=(1410, 1410), gpu_persistence=True), host, run)
    assert told[1:] == [
        [*("-i", uuid), *setting] for uuid in UUIDS for setting in (["-pm", "1"], ["-lgc", "1410,1410"])
    ]
    told.clear()
    restore(host, run)
    assert told == [[*("-i", uuid), *setting] for uuid in UUIDS for setting in (["-pm", "0"], ["-rgc"])]
