"""Threads and caches of a measuring process."""

from __future__ import annotations

import os

import pytest

from agent.runner.probe.environment import choose_cpus, core_siblings, measuring_environment

HYPER = {cpu: frozenset({cpu % 4, cpu % 4 + 4}) for cpu in range(8)}
ALONE = {cpu: frozenset({cpu}) for cpu in range(8)}


@pytest.mark.parametrize(
    ("allowed", "siblings", "threads", "expected"),
    [
        (range(8), HYPER, 2, [0, 1]),
        (range(8), {c: frozenset({c // 2 * 2, c // 2 * 2 + 1}) for c in range(8)}, 2, [0, 2]),
        (range(8), {c: frozenset({c // 2 * 2, c // 2 * 2 + 1}) for c in range(8)}, 5, [0, 1, 2, 4, 6]),
        (range(8), HYPER, 8, list(range(8))),
        ([3, 7], HYPER, 1, [3]),
        ([2, 5, 6], ALONE, 2, [2, 5]),
        ([2], {}, 1, [2]),
    ],
)
def test_threads_get_cores_of_their_own_first(allowed, siblings, threads, expected):
    assert choose_cpus(list(allowed), siblings, threads) == expected


@pytest.mark.parametrize("threads", [0, 3])
def test_more_threads_than_cpus_are_refused(threads):
    with pytest.raises(ValueError, match=f"threads: {threads}, but this host lets us use 2 CPUs"):
        choose_cpus([0, 1], ALONE, threads)


def test_this_hosts_topology_is_read():
    cpus = sorted(os.sched_getaffinity(0))
    siblings = core_siblings(cpus)
    assert all(cpu in siblings[cpu] for cpu in cpus)


def test_every_cache_lies_in_the_given_folder_and_every_pool_is_bounded(tmp_path):
    base = {"PATH": "/bin", "POCL_CACHE_DIR": "/home/user/.cache/pocl", "OMP_NUM_THREADS": "64"}
    environment = measuring_environment(base, tmp_path / "caches", 2)
    assert environment["PATH"] == "/bin"
    for variable in ("FARM_CACHE_DIR", "XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH"):
        assert environment[variable].startswith(str(tmp_path / "caches"))
        assert os.listdir(environment[variable]) == []  # noqa: PTH208  # names are enough
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "POCL_MAX_PTHREAD_COUNT"):
        assert environment[variable] == "2"
