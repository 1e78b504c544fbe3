"""Watches the machine, and whether its device is used, while a process times its loop."""

from __future__ import annotations

from collections.abc import Collection
from types import TracebackType
from typing import Self

from agent.attempt.files import Seen
from agent.machine.counters import Counters, Window
from agent.machine.device_use import DeviceUse
from agent.machine.disturbance import disturbances
from agent.wire.messages import Device


class Watch:
    """A context around the timed loop: reads the machine's counters before and after it, not within."""

    def __init__(self, cpus: Collection[int], device: Device) -> None:
        """`cpus`: those that the farm may use; `device`: what is measured."""
        self._cpus = cpus
        self._device = device
        self._before: Counters | None = None
        self._window: Window | None = None
        self._use: DeviceUse | None = None

    def __enter__(self) -> Self:
        self._before = Counters.now(self._cpus)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._before is not None:
            after = Counters.now(self._cpus)
            self._window = Window.between(self._before, after, len(self._cpus))
            self._use = DeviceUse.now(after.own_s - self._before.own_s, self._window.wall_s)

    def facts(self) -> dict[str, str]:
        """The counters themselves, as a result records them; none of a process that timed nothing."""
        w = self._window
        if w is None:
            return {}
        counted = {
            "watched_s": w.wall_s,
            "foreign_cpu_s": w.foreign_s,
            "steal_s": w.steal_s,
            "preempted_s": w.preempted_s,
            "throttled_s": w.throttled_s,
            "cpu_waiting_s": w.waiting_s,
        }
        facts = {name: f"{value:.3f}" for name, value in counted.items() if value is not None}
        # On the clock of the samples, for whoever looks for what happened meanwhile.
        return {"timed_from_s": f"{w.from_s:.6f}", **facts}

    def saw(self) -> Seen:
        """What the counters say, judged."""
        if self._window is None:
            return Seen()
        evidence = [disturbances(self._window)]
        if self._use is not None and self._device.api == "opencl":
            evidence.append(self._use.judged(is_gpu=self._device.kind == "gpu"))
        found = [disturbance for part in evidence for disturbance in part.found]
        return Seen(
            suspect=tuple(d.text for d in found if not d.invalidates),
            invalid=tuple(d.text for d in found if d.invalidates),
            seen=tuple(name for part in evidence for name in part.seen),
            unseen=tuple(text for part in evidence for text in part.unseen),
        )
