"""The stages of a cell come from one process each and add up to the init that is shown."""

from __future__ import annotations

import math

import pytest

from agent.runner.judge.stages import cpu_time, device_time, init_stages, memory_stages, transfer
from agent.wire.measurement import ProcessSamples, TimedSlice

UNSEEN = {"tune": "nothing is timed", "upload": "no device", "device": "no device", "load": "not told"}


def process(index: int, init_ns: int, cache: str = "warm", **memory: int) -> ProcessSamples:
    return ProcessSamples(
        index=index, cache=cache, init_ns=init_ns, first_ns=1, warmup_ns=(), invoke_ns=(),
        memory_peak_bytes=0, memory_before_bytes=0, memory_bytes=memory,
        stages_ns={"parse": init_ns // 4, "partition": index, "compile": init_ns // 2},
    )  # fmt: skip


@pytest.mark.parametrize("inits", [(40_000_000,), (40_000_000, 80_000_000), (90_000_000, 40, 80_000_000)])
def test_stages_are_those_of_one_process_and_the_rest_is_told(inits):
    warm = [process(number, ns) for number, ns in enumerate(inits, 1)]
    found = init_stages([process(0, 400_000_000, "cold"), *warm], UNSEEN)
    assert found.cold.n == 1
    assert (found.cold.parse, found.cold.compile, found.cold.partition) == (100.0, 200.0, 0.0)
    assert found.cold.other == 100.0
    assert found.warm.n == len(inits)
    told = found.warm.parse + found.warm.partition + found.warm.compile + found.warm.other
    middle = sorted(inits)[(len(inits) - 1) // 2 : len(inits) // 2 + 1]
    assert math.isclose(told, sum(middle) / len(middle) / 1e6)
    assert found.warm.other >= 0
    assert found.warm.tune is None
    assert found.missing == {"tune": "nothing is timed", "upload": "no device"}


def test_memory_is_the_largest_of_a_timed_process_and_null_is_explained():
    found = memory_stages([process(1, 1, ready=5, steady=7), process(2, 1, ready=6, steady=3)], UNSEEN)
    assert (found.load, found.ready, found.steady, found.device) == (None, 6, 7, None)
    assert found.missing == {"load": "not told", "device": "no device"}


def test_the_cpu_time_of_an_invoke_is_the_mean_of_the_processes_medians_over_kept_slices():
    def sliced(*slices: tuple[int | None, int, bool]) -> ProcessSamples:
        made = [TimedSlice(round=n, runs=runs, cpu_ns=ns, kept=k) for n, (ns, runs, k) in enumerate(slices)]
        return process(1, 1).model_copy(update={"slices": tuple(made)})

    # In front of ten timed invokes the process makes one that is not timed, which takes its time as well.
    steady = sliced((22_000_000, 10, True), (33_000_000, 10, True), (9**9, 10, False), (44_000_000, 10, True))
    assert cpu_time([steady, sliced((10_000_000, 1, True))]) == 4.0
    assert cpu_time([steady, sliced((9_000_000, 1, False))]) == 3.0, "of a block that was measured once more"
    assert cpu_time([steady, sliced((None, 2, True))]) is None
    assert cpu_time([process(1, 1)]) is None


def test_the_time_of_the_device_is_the_mean_of_the_processes_medians_or_has_a_reason():
    told = [
        process(index, 1).model_copy(update={"device_busy_ns": busy, "queue_delay_ns": (index * 1000,)})
        for index, busy in enumerate([(1_000_000, 2_000_000, 90_000_000), (4_000_000,)], 1)
    ]
    found = device_time(told, {})
    assert (found.busy, found.queue_delay, found.missing) == (3.0, 0.0015, {})
    silent = device_time([told[0], process(3, 1)], {"device_busy": "persistent kernels"})
    assert (silent.busy, silent.queue_delay) == (None, None)
    assert silent.missing == {"busy": "persistent kernels", "queue_delay": "persistent kernels"}


def test_copies_and_what_buffers_save_are_means_of_the_processes_medians_or_have_reasons():
    sizes = {"in": 64, "out": 8}
    times = {"in": (1_000_000, 2_000_000, 9_000_000), "out": (1_000_000,), "copied": (8_000_000,)}
    one, other = (
        process(index, 1).model_copy(
            update={"transfer_ns": {**times, "bound": (bound,)}, "transfer_bytes": sizes}
        )
        for index, bound in ((1, 5_000_000), (2, 6_000_000))
    )
    found = transfer([one, other], {})
    assert (found.in_ms, found.out_ms, found.in_bytes, found.out_bytes) == (2.0, 1.0, 64, 8)
    assert (found.p50_bound_ms, found.saved_ms, found.missing) == (5.5, 2.5, {})
    part = other.model_copy(update={"transfer_ns": times})
    found = transfer([one, part], {"bound": "in parts"})
    assert (found.in_ms, found.p50_bound_ms, found.saved_ms) == (2.0, None, None)
    assert found.missing == {"p50_bound_ms": "in parts", "saved_ms": "in parts"}
    found = transfer([process(3, 1)], {"copies": "not told"})
    assert (found.in_ms, found.in_bytes, found.missing["out_bytes"]) == (None, None, "not told")
