"""Runs a chain of layers by both schedules with fewer cores than groups, and compares the bits.

For a process of its own. Arguments: in what way there are few cores, and a cache folder. It prints how many
groups share a layer.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

RUNS = 10
GROUPS = 64
BURNS = """
from time import monotonic
end = monotonic() + 1
while monotonic() < end:
    pass
"""
STOPS = """
import os, signal, time
for number in (signal.SIGSTOP, signal.SIGCONT) * 100:
    os.kill(os.getppid(), number)
    time.sleep(0.005)
"""
"""What a quota of half a CPU does to the threads of a process."""

DISTURBING = {
    "a thread that gets what others leave": (BURNS,) * len(os.sched_getaffinity(0)),
    "all threads stopped half of the time": (STOPS,),
}


def main(case: str, folder: str) -> None:
    if case == "one CPU from the start":
        pin(0)
    if case == "64 threads":
        os.environ["POCL_MAX_PTHREAD_COUNT"] = str(GROUPS)
    from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
    from runtime.delegates.gpu.settings.options import Options
    from runtime.delegates.gpu.start.compiled import CompiledGraph
    from tests.runtime.delegates.gpu.models import whole
    from tests.runtime.delegates.gpu.test_delegate import chain_model, normal

    before = threads()
    backend = OpenClBackend.open(0, Path(folder))
    workers = sorted(threads() - before)
    if case.startswith("64"):
        many = replace(backend.capabilities, compute_units=GROUPS)
        backend = backend.knowing(many)
    plain, persistent = (
        CompiledGraph(whole(chain_model()), backend, Options(tuning="none", persistent=how))
        for how in ("off", "on")
    )
    x = normal(1, 14, 14, 48)
    expected = np.empty_like(x)
    plain.invoke([x], [expected])
    if case.endswith("one CPU"):
        for worker in workers:
            pin(worker)
    if case == "a thread that gets what others leave":
        os.sched_setscheduler(workers[-1], os.SCHED_IDLE, os.sched_param(0))
    disturbing = [subprocess.Popen([sys.executable, "-S", "-c", text]) for text in DISTURBING.get(case, ())]
    runs = 0
    while runs < RUNS or any(process.poll() is None for process in disturbing):
        found = np.full_like(x, np.nan)
        persistent.invoke([x], [found])
        np.testing.assert_array_equal(found, expected)
        runs += 1
    (groups,) = {entry.global_size[0] for entry in persistent.entries if entry.is_persistent} or {1}
    sys.stdout.write(str(groups))


def threads() -> set[int]:
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def pin(thread: int) -> None:
    os.sched_setaffinity(thread, {min(os.sched_getaffinity(0))})


if __name__ == "__main__":
    main(*sys.argv[1:])
