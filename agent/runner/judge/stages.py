"""Sums up the starts, memory and device times of a cell's processes for its result."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Final

from agent.wire.measurement import DeviceTime, InitStages, MemoryStages, ProcessSamples, StartStages, Transfer
from runtime.common.stages import STAGES
from runtime.measure.benchmark import untimed_before

DEVICE_BUSY: Final = "device_busy"
"""The name under which a process says why its device told no times."""

COPIES: Final = "copies"
BOUND: Final = "bound"
"""The names under which it says why it counted no copies, and why it ran on no buffers
(`runtime.measure.transfer`)."""


def init_stages(processes: Sequence[ProcessSamples], unseen: Mapping[str, str]) -> InitStages:
    """Return the stages of the cold and of the warm start. `unseen` says why one is missing."""
    cold, warm = (_typical([p for p in processes if p.cache == cache]) for cache in ("cold", "warm"))
    return InitStages(cold=cold, warm=warm, missing={name: unseen[name] for name in STAGES if name in unseen})


def _typical(processes: Sequence[ProcessSamples]) -> StartStages | None:
    """Return the stages of one process: medians of stages would mix processes and not sum up."""
    if not processes:
        return None
    one = sorted(processes, key=lambda process: process.init_ns)[(len(processes) - 1) // 2]
    init_ns = median(process.init_ns for process in processes)
    stages = {name: one.stages_ns.get(name) for name in STAGES}
    # Of the median that is shown, not of this process's own init: so all parts add up to it.
    other_ns = init_ns - sum(one.stages_ns.values())
    return StartStages(
        **{name: None if ns is None else ns / 1e6 for name, ns in stages.items()},
        other=other_ns / 1e6,
        n=len(processes),
    )


def memory_stages(timed: Sequence[ProcessSamples], unseen: Mapping[str, str]) -> MemoryStages:
    """Return the memory of the timed processes at each stage: the largest of them."""
    names = [name for name in MemoryStages.model_fields if name != "missing"]
    told = {name: [p.memory_bytes[name] for p in timed if name in p.memory_bytes] for name in names}
    return MemoryStages(
        **{name: max(sizes, default=None) for name, sizes in told.items()},
        missing={name: unseen[name] for name in names if name in unseen and not told[name]},
    )


def cpu_time(timed: Sequence[ProcessSamples]) -> float | None:
    """Return the CPU time of an invoke in ms: the mean over the processes of each one's median over slices.

    A process of a block that was measured once more has no kept slice, and no part in it. None where the
    kernel did not tell that of a slice.
    """
    kept = [[one for one in process.slices if one.kept and one.runs] for process in timed]
    slices = [its for its in kept if its]
    if not slices or any(one.cpu_ns is None for its in slices for one in its):
        return None
    # The counters of a slice also hold the invokes in front of it that are not timed.
    invokes = (((one.cpu_ns or 0) / (one.runs + untimed_before(one.runs)) for one in its) for its in slices)
    return fmean(map(median, invokes)) / 1e6


def device_time(timed: Sequence[ProcessSamples], unseen: Mapping[str, str]) -> DeviceTime:
    """Return the device's own times of an invoke; null if a timed process has none."""
    if not timed or not all(process.device_busy_ns for process in timed):
        why = unseen.get(DEVICE_BUSY, "a timed process was not told")
        return no_device_time(why)
    return DeviceTime(
        busy=fmean(median(process.device_busy_ns) for process in timed) / 1e6,
        queue_delay=fmean(median(process.queue_delay_ns) for process in timed) / 1e6,
    )


def no_device_time(why: str) -> DeviceTime:
    """Nothing of an invoke, with the reason."""
    return DeviceTime(missing=dict.fromkeys(("busy", "queue_delay"), why))


def transfer(timed: Sequence[ProcessSamples], unseen: Mapping[str, str]) -> Transfer:
    """Return what an invoke copies, and what it takes on buffers; null if a timed process has none."""
    means = {
        name: fmean(median(process.transfer_ns[name]) for process in timed) / 1e6
        for name in ("in", "out", "copied", BOUND)
        if timed and all(process.transfer_ns.get(name) for process in timed)
    }
    sizes = timed[0].transfer_bytes if "in" in means else {}
    found = {
        COPIES: {
            "in_ms": means.get("in"),
            "out_ms": means.get("out"),
            "in_bytes": sizes.get("in"),
            "out_bytes": sizes.get("out"),
        },
        BOUND: {
            "p50_bound_ms": means.get(BOUND),
            "saved_ms": means["copied"] - means[BOUND] if BOUND in means else None,
        },
    }
    missing = {
        name: unseen.get(why, "a timed process was not told")
        for why, figures in found.items()
        for name, value in figures.items()
        if value is None
    }
    return Transfer.model_validate({**found[COPIES], **found[BOUND], "missing": missing})


def no_transfer(why: str) -> Transfer:
    """Nothing of an invoke, with the reason."""
    return transfer((), {COPIES: why, BOUND: why})
