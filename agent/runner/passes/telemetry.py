"""Reads the sensors of an attempt in a process of its own, and judges the readings of each timed process."""

import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from agent.attempt.files import SENSORS_FILE, AttemptFile, ProcessReport, Seen
from agent.devices import RUNNER_COMMAND
from agent.machine.sensors import graphics, processor
from agent.machine.sensors.conclusions import FEWEST, conclude, disturbs
from agent.machine.sensors.discovery import NOWHERE, sensors_of
from agent.machine.sensors.recording import Recording, record
from agent.machine.sensors.sensor import PROCESSOR, Found, Quantity
from agent.processes.environment import for_runner
from agent.processes.supervisor import Launch, start
from agent.wire.measurement import TOOK_TURNS, Energy
from agent.wire.messages import Device
from runtime.common.statistics import estimate
from runtime.common.system import usable_cpus

_NICENESS: Final = 10
"""How much the process gives way to what is measured (nice(2)): a round takes a fraction of a millisecond and
may wait."""

_ENERGIES: Final = (processor.ENERGY, graphics.ENERGY)
"""Names of the sensors that count energy."""

_TEMPERATURES: Final = (processor.TEMPERATURE, graphics.TEMPERATURE)

TURNS_ENERGY: Final = "turns_energy_j"
"""The fact of a process that has the energy of a call by the counter at both ends of each of its turns."""

_LOOP_ENERGY: Final = "energy_j"
"""The same by the readings of its whole loop, in which others may have had turns."""

_HEAT: Final = ("temperature_from_c", "temperature_most_c")
"""Facts of a process: the first and the highest temperature of its part while it was timed."""

_SHARED_HEAT: Final = "arms took turns by slices; a campaign of this delegate alone has its temperature"

_END_S: Final = 5.0
"""Seconds in which the process ends when it is asked to; it sleeps for a tenth of one between two rounds."""

_NEWEST_BYTES: Final = 1 << 16
"""Bytes of the recording that are read behind a slice: half a minute, which takes a few milliseconds."""

LEAST_ENERGY_S: Final = 1.0
"""Seconds of readings below which no energy is told: counters are read ten times a second, so that shorter
windows are off by more than a tenth."""

LEAST_TURN_S: Final = 0.02
"""Mean seconds of a turn below which the counter at its ends tells no energy: the processors' is renewed
about every millisecond (Hähnel et al. 2012, "Measuring energy consumption for short code paths using RAPL"),
so that shorter turns are off by more than a twentieth."""


def part_of(device: Device) -> str:
    """Return the part of the machine that computes for a device."""
    return PROCESSOR if device.kind == "cpu" else device.environment.get("opencl_pci", NOWHERE)


@dataclass(slots=True)
class Telemetry:
    """The sensors of the parts of the machine that a runner measures, and their readings."""

    found: Found
    path: Path
    _recorded: Recording | None = field(default=None, init=False)

    def evidence(self, device: Device, report: ProcessReport) -> ProcessReport:
        """Add the sensors' evidence about its device to the report of a timed process."""
        samples = report.samples
        if samples is None or not samples.kept_ns or (window := _window(samples.facts)) is None:
            return report
        part, recorded = part_of(device), self._recording()
        seen: list[str] = []
        suspect: list[str] = []
        invalid: list[str] = []
        unseen = [f"{one.name}: {one.why}" for one in self.found.missing if one.part == part]
        told: dict[str, str] = {}
        for number, sensor in enumerate(self.found.sensors):
            if sensor.part != part:
                continue
            all_readings = recorded.between(number, *window)
            # While others have their turn, the part may idle, at another clock.
            turns = [recorded.between(number, *turn) for turn in report.turns]
            readings = tuple(one for turn in turns for one in turn) if turns else all_readings
            if number in recorded.lost:
                unseen.append(f"{sensor.name}: vanished while it was read ({recorded.lost[number]})")
            elif len(readings) < FEWEST:
                unseen.append(
                    f"{sensor.name}: {len(readings)} readings while it was timed; {FEWEST} are needed"
                )
            else:
                seen.append(sensor.name)
                for one in conclude(sensor, [value for _, value in readings], report.arms):
                    (invalid if one.invalidates else suspect).append(one.text)
            if number not in recorded.lost:
                told |= _figures(sensor.quantity, all_readings, samples.invoke_ns)
        saw = Seen(
            suspect=(*report.saw.suspect, *suspect),
            invalid=(*report.saw.invalid, *invalid),
            seen=(*report.saw.seen, *seen),
            unseen=(*report.saw.unseen, *unseen),
        )
        facts = {**samples.facts, **told}
        return report.model_copy(update={"saw": saw, "samples": samples.model_copy(update={"facts": facts})})

    def disturbing(self, device: Device, begin_s: float, end_s: float, arms: int) -> str | None:
        """Say what of a GPU disturbed a slice, by what was read in it; None for other devices.

        `arms`: the measured processes that have the GPU open.
        """
        part = part_of(device)
        watched = [(number, one) for number, one in enumerate(self.found.sensors) if one.part == part]
        if device.kind != "gpu" or not watched:
            return None
        newest = Recording.read(self.path, len(self.found.sensors), _NEWEST_BYTES)
        window = int(begin_s * 1e9), int(end_s * 1e9)
        said = (disturbs(one, [v for _, v in newest.between(k, *window)], arms) for k, one in watched)
        return next(filter(None, said), None)

    def joules(self, device: Device) -> float | None:
        """Return what the processors' counter of energy says now; None where there is none, and for a GPU:
        its counters are renewed too seldom for a turn.
        """
        for sensor in self.found.sensors if part_of(device) == PROCESSOR else ():
            if sensor.part == PROCESSOR and sensor.quantity is Quantity.ENERGY:
                # One that vanished while it was read costs this turn's energy, and nothing else.
                with contextlib.suppress(OSError, ValueError):
                    return sensor.read()
        return None

    def energy(self, device: Device, reports: Sequence[ProcessReport], *, alternated: bool) -> Energy:
        """Return the energy of one call, the mean over the timed processes, all of which must have one, and
        how much hotter they made the part.

        A counter that is read ten times a second cannot tell arms apart that `alternated` by slices.
        """
        heat = self._heat(device, reports, alternated=alternated)
        if why := self._lacks(device, _ENERGIES):
            return Energy(note=why, **heat)
        known = _of_each(reports, TURNS_ENERGY)
        if not known and alternated:
            return Energy(note=TOOK_TURNS, **heat)
        known = known or _of_each(reports, _LOOP_ENERGY)
        if not known:
            note = f"a process was timed for less than {LEAST_ENERGY_S:g} s of readings"
            return Energy(note=note, **heat)
        return Energy(invoke_mj=1e3 * fmean(known.values()), ci95=_estimated(known, 1e-3)[1], **heat)

    def _lacks(self, device: Device, names: Collection[str]) -> str:
        """Say why the part of a device has none of these sensors; empty where it has one."""
        part = part_of(device)
        missing = (one for one in self.found.missing if one.part == part and one.name in names)
        return next((f"{one.name}: {one.why}" for one in missing), "")

    def _heat(self, device: Device, reports: Sequence[ProcessReport], *, alternated: bool) -> dict[str, Any]:
        """Return the rise over the first reading, or why there is none, as fields of `Energy`."""
        if why := self._lacks(device, _TEMPERATURES):
            return {"rise_note": why}
        if alternated:
            return {"rise_note": _SHARED_HEAT}
        first, most = (_of_each(reports, fact) for fact in _HEAT)
        if not first:
            return {"rise_note": "no temperature was read while a process was timed"}
        # By the lowest number, that of the first process: later ones begin on a part that is warm already.
        return {"rise_c": max(most.values()) - first[min(first)]}

    def clocks(self, device: Device, windows: Sequence[tuple[int, int]]) -> tuple[list[float | None], str]:
        """Return the median clock of a device's part in MHz in each window, and why one is None."""
        part = part_of(device)
        of_clock = [
            number
            for number, sensor in enumerate(self.found.sensors)
            if sensor.part == part and sensor.quantity is Quantity.CLOCK
        ]
        if not of_clock:
            lacks = [m for m in self.found.missing if m.part == part and "clock" in m.name.lower()]
            why = f"{lacks[0].name}: {lacks[0].why}" if lacks else "no sensor reads the clock of this device"
            return [None] * len(windows), why
        # Read anew: these windows may be later than what was read to judge the timed processes.
        recorded = Recording.read(self.path, len(self.found.sensors))
        found: list[float | None] = []
        for window in windows:
            readings = [mhz for number in of_clock for _, mhz in recorded.between(number, *window)]
            found.append(median(readings) if readings else None)
        return found, "" if None not in found else "the sensor was not read in each part"

    def forget(self) -> None:
        """Read the readings anew for the next arm: more was timed since the last one was judged."""
        self._recorded = None

    def _recording(self) -> Recording:
        # Read once for all arms that are judged in turn.
        if self._recorded is None:
            self._recorded = Recording.read(self.path, len(self.found.sensors))
        return self._recorded


@contextlib.contextmanager
def sensors_read(
    attempts: Sequence[AttemptFile], job_files: Sequence[Path], cpus: Collection[int]
) -> Iterator[Telemetry]:
    """Read the sensors of the attempts' devices in the block; a machine without any gets no process."""
    found = _sensors(attempts, cpus)
    folder = job_files[0].parent
    telemetry = Telemetry(found, folder / SENSORS_FILE)
    if not found.sensors:
        yield telemetry
        return
    process = start(Launch([*RUNNER_COMMAND, "--sensors", *map(str, job_files)], for_runner(), folder))
    try:
        yield telemetry
    finally:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def sensors_process(job_files: Sequence[Path]) -> None:
    """Read the sensors of the jobs' devices until SIGTERM, beside the job file of the first."""
    attempts = [AttemptFile.model_validate_json(path.read_bytes()) for path in job_files]
    ended = False

    def end(_number: int, _frame: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, end)
    os.nice(_NICENESS)
    found = _sensors(attempts, sorted(usable_cpus()))

    def tell(text: str) -> None:
        sys.stderr.write(f"{text}\n")

    record(found.sensors, job_files[0].parent / SENSORS_FILE, tell, lambda: not ended)


def _sensors(attempts: Sequence[AttemptFile], cpus: Collection[int]) -> Found:
    """Return the sensors of all parts, in the same order in the runner and in the process that reads them."""
    parts = dict.fromkeys(part_of(attempt.device) for attempt in attempts)
    return sum((sensors_of(part, cpus) for part in parts), Found())


def _window(facts: Mapping[str, str]) -> tuple[int, int] | None:
    try:
        begin_s, seconds = float(facts["timed_from_s"]), float(facts["watched_s"])
    except (KeyError, ValueError):
        return None
    return int(begin_s * 1e9), int((begin_s + seconds) * 1e9)


def energy_over(
    own: Energy,
    device: Device,
    reports: Sequence[ProcessReport],
    base: Device,
    theirs: Sequence[ProcessReport],
) -> Energy:
    """Add the ratio over a baseline on the same part of the machine, by the blocks that both have."""
    mine, others = _of_each(reports, TURNS_ENERGY), _of_each(theirs, TURNS_ENERGY)
    ratios = {number: others[number] / mine[number] for number in mine if number in others and mine[number]}
    if part_of(device) != part_of(base) or not ratios:
        return own
    ratio, interval = _estimated(ratios)
    return own.model_copy(update={"ratio": ratio, "ratio_ci95": interval})


def _of_each(reports: Sequence[ProcessReport], fact: str) -> dict[int, float]:
    """Return a fact of each timed process by its number; nothing unless all of them have it."""
    timed = [report.samples for report in reports if report.samples and report.samples.kept_ns]
    if any(fact not in samples.facts for samples in timed):
        return {}
    return {samples.index: float(samples.facts[fact]) for samples in timed}


def _estimated(by_process: Mapping[int, float], unit: float = 1.0) -> tuple[float | None, Any]:
    """Return the geometric mean in a unit, and its 95 % interval; None where there is none."""
    # A counter that did not move has no logarithm.
    if min(by_process.values()) <= 0.0:
        return None, None
    found = estimate([math.log(value / unit) for value in by_process.values()])
    return found.value, found.interval


def _figures(
    quantity: Quantity, readings: Sequence[tuple[int, float]], invoke_ns: Sequence[int]
) -> dict[str, str]:
    """Return the facts of a process that a sensor's readings tell."""
    if quantity is Quantity.ENERGY:
        energy = _energy_of_a_call(readings, invoke_ns)
        return {} if energy is None else {_LOOP_ENERGY: f"{energy:.6g}"}
    if quantity is Quantity.TEMPERATURE and readings:
        ends = readings[0][1], max(value for _, value in readings)
        return {fact: f"{value:g}" for fact, value in zip(_HEAT, ends, strict=True)}
    return {}


def _energy_of_a_call(readings: Sequence[tuple[int, float]], invoke_ns: Sequence[int]) -> float | None:
    """Joules of one call: the mean power between the first and the last reading, for the time of a call."""
    if not readings or not invoke_ns:
        return None
    (first_ns, first_j), (last_ns, last_j) = readings[0], readings[-1]
    if last_ns - first_ns < LEAST_ENERGY_S * 1e9:
        return None
    return (last_j - first_j) / (last_ns - first_ns) * sum(invoke_ns) / len(invoke_ns)
