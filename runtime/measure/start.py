"""Measures the opening of a model, stage by stage, in time and memory; says why a stage cannot be seen."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.common.stages import STAGES, Stage, StageClock, clocked
from runtime.delegates.base import CountsMemory, WholeModelDelegate
from runtime.measure import memory
from runtime.measure.loading import Opened, Subject

_CPU_HAS_NONE: Mapping[str, str] = {
    "tune": "cpu chooses nothing by timing",
    "upload": "cpu computes in the host's memory, to which nothing is copied",
    "device": "cpu computes in the host's memory alone",
}
"""Why a model without a delegate has no such figure."""


@dataclass(frozen=True, slots=True)
class Start:
    """A model that was opened. Times are in ns, memory in bytes of this process, as the kernel counts it.

    `stages_ns` has the stages that told their time; together they are at most `init_ns`. `load_bytes` is what
    was resident once the file was read, None where that is not told.
    """

    opened: Opened
    init_ns: int
    stages_ns: Mapping[Stage, int]
    before_bytes: int
    load_bytes: int | None
    ready_bytes: int
    peak_bytes: int
    peak_was_reset: bool

    @classmethod
    def of(cls, subject: Subject) -> "Start":
        """Open a model. Raises what `Subject.open` raises."""
        loaded: list[int] = []

        def look(stage: Stage) -> None:
            if stage == "parse":
                loaded.append(memory.resident_bytes())

        was_reset = memory.reset_peak()
        # A peak that stays may be above what is resident: growth is then counted from it, and so not too
        # high.
        before = memory.resident_bytes() if was_reset else memory.peak_bytes()
        with clocked(StageClock(look)) as clock:
            started = time.perf_counter_ns()
            opened = subject.open()
            took = time.perf_counter_ns() - started
        return cls(
            opened=opened,
            # To look at the memory is no part of the start.
            init_ns=took - clock.told_ns,
            stages_ns=clock.spent_ns,
            before_bytes=before,
            load_bytes=loaded[-1] if loaded else None,
            ready_bytes=memory.resident_bytes(),
            peak_bytes=memory.peak_bytes(),
            peak_was_reset=was_reset,
        )

    def grown(self, resident_bytes: int) -> int:
        """By how much `resident_bytes` exceed what was resident before."""
        return max(0, resident_bytes - self.before_bytes)

    @property
    def device_bytes(self) -> int | None:
        """Bytes that the model holds on its device now; None where the delegate does not tell."""
        delegate: object = self.opened.delegate
        return delegate.device_bytes if isinstance(delegate, CountsMemory) else None

    def memory_bytes(self, steady_bytes: int | None) -> dict[str, int]:
        """Return the growth of memory at each known stage, and the bytes on the device.

        `steady_bytes`: what was resident after the last timed slice, None where there was none.
        """
        resident = {"load": self.load_bytes, "ready": self.ready_bytes, "steady": steady_bytes}
        found = {name: self.grown(size) for name, size in resident.items() if size is not None}
        return found if self.device_bytes is None else {**found, "device": self.device_bytes}

    def unseen(self) -> dict[str, str]:
        """Why a stage, the memory once the file was read (`load`) or that on the `device` is not known."""
        unknown: list[str] = [name for name in STAGES if name not in self.stages_ns]
        unknown += ["load"] if self.load_bytes is None else []
        unknown += ["device"] if self.device_bytes is None else []
        return {name: self._why(name) for name in unknown}

    def _why(self, name: str) -> str:
        kind = self.opened.kind
        if self.opened.delegate is None:
            return _CPU_HAS_NONE.get(name, f"{kind} had no such stage")
        if name == "device":
            return f"{kind} does not tell what it holds on its device"
        if isinstance(self.opened.delegate, WholeModelDelegate):
            return f"{kind} opens a file in one step and tells no stages of it"
        return f"{kind} told no such stage"
