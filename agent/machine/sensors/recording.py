"""Reads sensors about ten times a second, on the clock of the timed samples, and records the readings.

A line of JSON for each round: the time in ns of CLOCK_MONOTONIC, then each sensor's value, null once it has
vanished; a line of another form tells what vanished, and why. Lines are written at once, so that a reader
sees all rounds but the one in progress.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO

from agent.machine.sensors.sensor import Sensor, why_unreadable

PERIOD_S: Final = 0.1
"""Seconds between two rounds. Heat and clocks change within tenths of a second; more rounds would take time
of the CPUs that are measured."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The rounds so far. `values[i]` are those of sensor i, as long as `at_ns`; `lost`: why one vanished."""

    at_ns: tuple[int, ...] = ()
    values: tuple[tuple[float | None, ...], ...] = ()
    lost: dict[int, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, count: int, last_bytes: int | None = None) -> "Recording":
        """Read what was recorded of `count` sensors; nothing where there is no file yet.

        `last_bytes`: no more than that of the newest rounds.
        """
        rows: list[tuple[int, list[float | None]]] = []
        lost: dict[int, str] = {}
        try:
            with path.open("rb") as file:
                begin = 0 if last_bytes is None else max(0, file.seek(0, os.SEEK_END) - last_bytes)
                file.seek(begin)
                # A line in whose middle it begins is not complete.
                lines = file.read().decode().split("\n")[bool(begin) :]
        except OSError:
            lines = []
        # The last line is empty, or not yet complete.
        for line in lines[:-1]:
            found = json.loads(line)
            if "lost" in found:
                lost[found["lost"]] = found["why"]
            elif len(found["values"]) == count:
                rows.append((found["at_ns"], found["values"]))
        columns = zip(*(values for _, values in rows), strict=True)
        # Without any round, `zip` gives no columns at all.
        return cls(tuple(at for at, _ in rows), tuple(columns) or ((),) * count, lost)

    def between(self, sensor: int, from_ns: int, to_ns: int) -> tuple[tuple[int, float], ...]:
        """Return the readings of a sensor in a window, each with its time."""
        readings = zip(self.at_ns, self.values[sensor], strict=True)
        return tuple((at, value) for at, value in readings if from_ns <= at <= to_ns and value is not None)


def record(
    sensors: Sequence[Sensor],
    path: Path,
    tell: Callable[[str], object],
    goes_on: Callable[[], bool] = lambda: True,
    period_s: float = PERIOD_S,
) -> None:
    """Read the sensors until `goes_on` says no. One that vanishes is told once and left out from then on."""
    lost: set[int] = set()
    with path.open("w", encoding="utf-8") as file:
        due_s = time.monotonic()
        while goes_on():
            _round(sensors, lost, file, tell)
            # A machine that was suspended has missed rounds, which nobody makes up for.
            due_s = max(due_s + period_s, time.monotonic())
            time.sleep(max(0.0, due_s - time.monotonic()))


def _round(sensors: Sequence[Sensor], lost: set[int], file: TextIO, tell: Callable[[str], object]) -> None:
    values: list[float | None] = []
    gone: list[tuple[int, str]] = []
    for number, sensor in enumerate(sensors):
        if number in lost:
            values.append(None)
            continue
        try:
            values.append(sensor.read())
        except (OSError, ValueError) as error:
            values.append(None)
            gone.append((number, why_unreadable(error)))
    row = {"at_ns": time.monotonic_ns(), "values": values}
    lines = [row, *({"lost": number, "why": why} for number, why in gone)]
    os.write(file.fileno(), "".join(json.dumps(line) + "\n" for line in lines).encode())
    for number, why in gone:
        lost.add(number)
        tell(f"{sensors[number].name} vanished while it was read: {why}; the measurement goes on without it")
