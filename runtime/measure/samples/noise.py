"""Signs of a disturbed measurement. They label a result; they never change it."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtime.measure.samples.drift import drift

MAX_AUTOCORRELATION = 0.5
"""Lag-1 autocorrelation of the samples. Chosen: independent samples are near 0; throttling and neighbours
come in waves, whose samples resemble the one before."""

LEAST_WAVE = 0.02
"""Amplitude of such waves, as a share of the mean, that is flagged. Chosen: twice the smallest difference
that a comparison calls one. Smaller waves disturb no figure, however alike neighbouring samples are."""

MAX_FAULT_SHARE = 0.01
"""Major page faults per sample that are flagged. A fault slows one sample; where fewer than a hundredth are
slowed, no percentile up to p99 moves."""

MAX_TIMER_SHARE = 0.01
"""Share of the median that reading the clock may take. Chosen: above it the clock shows in the figure."""

_MIN_SAMPLES = 30
"""Samples below which an autocorrelation is chance."""

_CPU_PRESSURE = Path("/proc/pressure/cpu")
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Usage:
    """Counters of this process (all threads): wall and CPU seconds, involuntary switches, major faults."""

    wall_s: float
    cpu_s: float
    involuntary_switches: int
    major_faults: int

    @classmethod
    def now(cls) -> Usage:
        """Read the counters of this process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.monotonic(), used.ru_utime + used.ru_stime, used.ru_nivcsw, used.ru_majflt)

    @classmethod
    def nothing(cls) -> Usage:
        """Return the usage of no time at all."""
        return cls(0.0, 0.0, 0, 0)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.wall_s + other.wall_s,
            self.cpu_s + other.cpu_s,
            self.involuntary_switches + other.involuntary_switches,
            self.major_faults + other.major_faults,
        )

    def __sub__(self, earlier: Usage) -> Usage:
        return Usage(
            self.wall_s - earlier.wall_s,
            self.cpu_s - earlier.cpu_s,
            self.involuntary_switches - earlier.involuntary_switches,
            self.major_faults - earlier.major_faults,
        )

    def facts(self) -> dict[str, str]:
        """Return what a result records of a difference of two usages."""
        return {
            "involuntary_switches": str(self.involuntary_switches),
            "major_faults": str(self.major_faults),
            "cpu_seconds_per_second": f"{self.cpu_s / self.wall_s:.2f}" if self.wall_s > 0 else "0",
        }


def clocks_mhz() -> str:
    """Return the clock of each CPU in MHz as the kernel reports it now, "3200 3187", or why it is unknown."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError as error:
        return f"unknown: {error.strerror}"
    clocks = [line.partition(":")[2] for line in lines if line.startswith("cpu MHz")]
    return " ".join(f"{float(clock):.0f}" for clock in clocks) or "unknown: the kernel does not report it"


def host_pressure() -> dict[str, str]:
    """Return the load average and CPU pressure of the host, as far as the kernel reports them."""
    facts = {"load_average_1min": f"{os.getloadavg()[0]:.2f}"}
    try:
        # The first line is `some`, the share of the time in which at least one task waited for a CPU.
        facts["cpu_pressure"] = _CPU_PRESSURE.read_text().splitlines()[0]
    except OSError:
        facts["cpu_pressure"] = "not reported by this kernel"
    return facts


def noise_flags(samples_ns: NDArray[np.int64], spent: Usage, timer_overhead_ns: float) -> tuple[str, ...]:
    """Return labels for one process, each `name: figure`; none for an undisturbed one."""
    flags = [*_sample_flags(samples_ns)]
    if spent.major_faults > MAX_FAULT_SHARE * len(samples_ns):
        flags.append(f"page_faults: {spent.major_faults} major faults while timing")
    if timer_overhead_ns > MAX_TIMER_SHARE * float(np.median(samples_ns)):
        flags.append(f"timer_overhead: reading the clock takes {timer_overhead_ns:.0f} ns")
    return tuple(flags)


def _sample_flags(samples_ns: NDArray[np.int64]) -> list[str]:
    if len(samples_ns) < _MIN_SAMPLES:
        return []
    flags = []
    change = drift(samples_ns)
    if change is not None and change.is_alarming:
        flags.append(f"drift: {change.change:+.1%} from the first sample to the last")
    samples = samples_ns.astype(np.float64)
    lag = _autocorrelation(samples)
    # Of the variance, the share `lag` is common to neighbouring samples: that of the waves.
    wave = float(samples.std() / samples.mean()) * max(lag, 0.0) ** 0.5
    if lag > MAX_AUTOCORRELATION and wave > LEAST_WAVE:
        flags.append(f"autocorrelated: lag-1 autocorrelation {lag:.2f}, waves of {wave:.1%}")
    return flags


def _autocorrelation(samples: NDArray[np.float64]) -> float:
    """Return the lag-1 autocorrelation; 0 where all samples are equal."""
    centred = samples - samples.mean()
    power = float(np.dot(centred, centred))
    return 0.0 if power == 0.0 else float(np.dot(centred[1:], centred[:-1])) / power
