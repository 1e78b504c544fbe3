"""The settings of a host, from files as the kernel documents them, and from those of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.machine.conditions import NO_QUOTA, UNREADABLE, settings


def host(root: Path, **files: str) -> Path:
    """Build a root folder with these files; `__` stands for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


CPU = "sys__devices__system__cpu"


def test_a_host_that_shows_nothing_says_so_in_one_fixed_way(tmp_path):
    found = settings([0], tmp_path)
    assert found.pop("cpu_quota") == NO_QUOTA
    assert set(found.values()) == {UNREADABLE}


def test_settings_are_read_where_the_kernel_documents_them(tmp_path):
    root = host(
        tmp_path,
        **{
            "proc__cpuinfo": "processor\t: 0\nmicrocode\t: 0x2b\n\nprocessor\t: 1\nmicrocode\t: 0x2b\n",
            f"{CPU}__cpu0__cpufreq__scaling_governor": "performance\n",
            f"{CPU}__cpu1__cpufreq__scaling_governor": "powersave\n",
            f"{CPU}__intel_pstate__no_turbo": "1\n",
            f"{CPU}__smt__active": "1\n",
        },
    )
    found = settings([0, 1], root)
    assert found["microcode"] == "0x2b"
    assert found["governor"] == "performance, powersave"
    assert settings([0], root)["governor"] == "performance", "only the CPUs that are used"
    assert (found["turbo"], found["smt"]) == ("off", "on")


V1 = {"mounts": "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n", "cgroup": "4:cpu,cpuacct:/a/b\n"}
V2 = {"mounts": "none /sys/fs/cgroup cgroup2 rw 0 0\n", "cgroup": "0::/a/b\n"}
OUTER2, INNER2 = (f"sys__fs__cgroup__{group}__cpu.max" for group in ("a", "a__b"))
OUTER1, INNER1 = (f"sys__fs__cgroup__cpu__{group}__cpu.cfs_" for group in ("a", "a__b"))


@pytest.mark.parametrize(
    ("version", "files", "quota"),
    [
        (V2, {INNER2: "max 100000\n"}, NO_QUOTA),
        (V2, {INNER2: "150000 100000\n"}, "1.50 CPUs"),
        (V2, {OUTER2: "50000 100000\n", INNER2: "max 100000\n"}, "0.50 CPUs"),
        (V1, {f"{INNER1}quota_us": "-1\n", f"{INNER1}period_us": "100000\n"}, NO_QUOTA),
        (V1, {f"{OUTER1}quota_us": "200000\n", f"{OUTER1}period_us": "100000\n"}, "2.00 CPUs"),
    ],
)
def test_the_tightest_quota_of_all_groups_above_holds(tmp_path, version, files, quota):
    root = host(tmp_path, proc__self__mounts=version["mounts"], proc__self__cgroup=version["cgroup"], **files)
    assert settings([0], root)["cpu_quota"] == quota


def test_two_readings_of_this_machine_are_equal():
    cpus = os.sched_getaffinity(0)
    assert settings(cpus) == settings(cpus)
