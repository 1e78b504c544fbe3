"""Sensors are read where the kernel and NVML document them; what a machine lacks is named with the reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pytest

from agent.machine.sensors.conclusions import CONCLUSIONS, conclude, disturbs
from agent.machine.sensors.discovery import NOWHERE, sensors_of
from agent.machine.sensors.graphics import ALL
from agent.machine.sensors.recording import Recording, record
from agent.machine.sensors.sensor import PROCESSOR, Found, Quantity, Sensor, Throttle
from tests.agent.machine.sensors.trees import (
    ADDRESS,
    AMD_GPU,
    AMD_RYZEN,
    CPU,
    INTEL_GPU,
    INTEL_XEON,
    XE_GPU,
    tree,
)

OF_PROCESSOR = {"CPU clock", "CPU temperature", "CPU throttling by heat", "CPU energy"}


def readings(found: Found) -> dict[str, tuple[float, float | None]]:
    return {one.name: (one.read(), one.limit) for one in found.sensors}


def test_an_intel_host_has_clock_temperature_throttling_and_energy(tmp_path):
    found = sensors_of(PROCESSOR, [0, 1], tree(tmp_path, INTEL_XEON))
    assert readings(found) == {
        "CPU clock": (3100.0, 2600.0),
        "CPU temperature": (61.0, 98.0),
        "CPU throttling by heat": (7.0, None),
        "CPU energy": (7.0, None),
    }
    assert found.missing == ()


def test_an_amd_host_names_what_it_lacks(tmp_path):
    found = sensors_of(PROCESSOR, [0], tree(tmp_path, AMD_RYZEN))
    assert readings(found) == {"CPU clock": (3600.0, 3600.0), "CPU temperature": (45.25, None)}
    assert {one.name: one.why for one in found.missing} == {
        "CPU throttling by heat": "the kernel does not count it for these CPUs",
        "CPU energy": "no RAPL counter of a package in /sys/class/powercap",
    }


@pytest.mark.parametrize(
    ("driver", "files", "expected"),
    [
        ("amdgpu", AMD_GPU, {"GPU clock": (1250.0, 2100.0), "GPU temperature": (52.0, 100.0),
                             "GPU power": (31.0, None)}),
        ("i915", INTEL_GPU, {"GPU clock": (1950.0, None), "GPU energy": (123.0, None),
                             "GPU throttling": (float(Throttle.HEAT | Throttle.POWER), None)}),
        ("xe", XE_GPU, {"GPU clock": (2400.0, None), "GPU energy": (9.0, None),
                        "GPU throttling": (float(Throttle.POWER), None)}),
    ],
)  # fmt: skip
def test_a_gpu_is_read_by_the_files_of_its_driver(tmp_path, driver, files, expected):
    found = sensors_of(ADDRESS, [0], tree(tmp_path, files, driver))
    assert readings(found) == expected
    assert {one.name for one in found.missing} == set(ALL) - set(expected)
    assert all(one.why for one in found.missing)


def test_a_machine_that_shows_nothing_says_so_of_every_sensor(tmp_path):
    for part, names in ((PROCESSOR, OF_PROCESSOR), (ADDRESS, set(ALL)), (NOWHERE, set(ALL))):
        found = sensors_of(part, [0], tmp_path)
        assert found.sensors == ()
        assert {one.name for one in found.missing} == names
        assert all(one.why and "\n" not in one.why for one in found.missing)
    unknown = sensors_of(ADDRESS, [0], tree(tmp_path, {}, "nouveau"))
    assert unknown.missing[0].why == "its driver is nouveau; known are amdgpu, i915, xe, nvidia"


def test_this_machine_has_or_lacks_each_sensor():
    found = sensors_of(PROCESSOR, sorted(os.sched_getaffinity(0)))
    assert {one.name for one in (*found.sensors, *found.missing)} == OF_PROCESSOR
    assert all(value >= 0.0 for value, _ in readings(found).values())


def test_an_energy_counter_that_begins_again_goes_on(tmp_path):
    root = tree(tmp_path, INTEL_XEON)
    (energy,) = [s for s in sensors_of(PROCESSOR, [0], root).sensors if s.quantity is Quantity.ENERGY]
    counter = root / "sys/class/powercap/intel-rapl:0/energy_uj"
    counter.write_text("1000000\n")
    assert energy.read() == pytest.approx(262143.32885 + 1.0)
    counter.write_text("3000000\n")
    assert energy.read() == pytest.approx(262143.32885 + 3.0)


class Nvml:
    """Answers of NVML as nvml.h documents them, of one GPU."""

    class NVMLError(Exception):
        pass

    answers: ClassVar = {
        "ClockInfo": 1980, "DefaultApplicationsClock": 1755, "Temperature": 64, "TemperatureThreshold": 87,
        "PowerUsage": 412_000, "TotalEnergyConsumption": 5_000_000, "CurrentClocksThrottleReasons": 0x24,
        "ComputeRunningProcesses": ["ours", "theirs"],
    }  # fmt: skip

    def __init__(self, **changed: object) -> None:
        self.known = self.answers | changed

    def nvmlInit(self) -> None:  # noqa: N802  # NVML's name
        if not self.known:
            raise self.NVMLError("Driver Not Loaded")

    def __getattr__(self, name: str) -> object:
        def ask(*_arguments: object) -> object:
            if name == "nvmlDeviceGetHandleByPciBusId":
                return "handle"
            value = self.known[name.removeprefix("nvmlDeviceGet")]
            if value is None:
                raise self.NVMLError("Not Supported")
            return value

        return ask


def test_an_nvidia_gpu_is_read_by_nvml(tmp_path):
    root = tree(tmp_path, {}, "nvidia")
    found = sensors_of(ADDRESS, [0], root, Nvml())
    assert readings(found) == {
        "GPU clock": (1980.0, 1755.0), "GPU temperature": (64.0, 87.0), "GPU power": (412.0, None),
        "GPU energy": (5000.0, None), "GPU throttling": (float(Throttle.HEAT | Throttle.POWER), None),
        "other processes on the GPU": (2.0, None),
    }  # fmt: skip
    without = sensors_of(ADDRESS, [0], root, Nvml(TotalEnergyConsumption=None))
    assert [(one.name, one.why) for one in without.missing] == [("GPU energy", "NVML: Not Supported")]


def test_without_the_package_or_the_driver_an_nvidia_gpu_has_no_sensors(tmp_path):
    found = sensors_of(ADDRESS, [0], tree(tmp_path, {}, "nvidia"))
    if found.sensors:
        pytest.skip("this machine has a GPU of NVIDIA at this very address")
    assert {one.name for one in found.missing} == set(ALL)
    assert {one.why.partition(":")[0] for one in found.missing} <= {
        "NVML", "NVML needs the package nvidia-ml-py"
    }  # fmt: skip


def sensor(quantity: Quantity, limit: float | None = None) -> Sensor:
    return Sensor(ADDRESS, "it", quantity, lambda: 0.0, limit)


@pytest.mark.parametrize(
    ("quantity", "limit", "values", "said", "invalidates"),
    [
        (Quantity.THROTTLING, None, [0] * 9 + [Throttle.HEAT],
         "it: slowed down by heat or the board in 10% of the readings", True),
        (Quantity.THROTTLING, None, [0] * 9 + [Throttle.HARDWARE],
         "it: slowed down by heat or the board in 10% of the readings", True),
        (Quantity.THROTTLING, None, [Throttle.POWER] * 10,
         "it: slowed down by its power limit in 100% of the readings", False),
        (Quantity.THROTTLING, None, [0] * 10, None, False),
        (Quantity.THROTTLINGS, None, [7, 7, 9], "it: 2 times", True),
        (Quantity.THROTTLINGS, None, [7, 7, 7], None, False),
        (Quantity.CLOCK, 1000.0, [1000.0] * 99 + [700.0],
         "it: below 75% of 1000 MHz in 1% of the readings", False),
        (Quantity.CLOCK, 1000.0, [700.0] * 100, "it: below 75% of 1000 MHz in 100% of the readings", True),
        (Quantity.CLOCK, 1000.0, [0.0, 1000.0] * 5, None, False),
        (Quantity.CLOCK, 1000.0, [0.0] * 5, None, False),
        (Quantity.CLOCK, None, [900.0, 1100.0] * 5, "it: varied by 10%", False),
        (Quantity.CLOCK, None, [0.0, 1000.0, 1000.0, 1010.0, 0.0], None, False),
        (Quantity.TEMPERATURE, 87.0, [60.0, 83.0], "it: 83 °C, where 87 °C slows it down", False),
        (Quantity.TEMPERATURE, 87.0, [60.0, 82.0], None, False),
        (Quantity.TEMPERATURE, None, [99.0], None, False),
        (Quantity.PROCESSES, None, [1, 1, 1], None, False),
        (Quantity.PROCESSES, None, [1, 2, 1], "1 other process computed on the GPU", True),
        (Quantity.POWER, None, [1.0, 900.0], None, False),
    ],
)  # fmt: skip
def test_each_reading_has_its_conclusion(quantity, limit, values, said, invalidates):
    found = conclude(sensor(quantity, limit), [float(value) for value in values])
    assert [(one.text, one.invalidates) for one in found] == ([] if said is None else [(said, invalidates)])


@pytest.mark.parametrize(
    ("quantity", "limit", "values", "arms", "said"),
    [
        (Quantity.CLOCK, 1000.0, [900.0], 1, None),
        (Quantity.CLOCK, 1000.0, [990.0, 700.0], 1, "it: below 75% of 1000 MHz in 50% of the readings"),
        (Quantity.CLOCK, 1000.0, [0.0], 1, None),
        (Quantity.CLOCK, None, [1.0], 1, None),
        (Quantity.CLOCK, 1000.0, [], 1, None),
        (Quantity.PROCESSES, None, [1.0], 1, None),
        (Quantity.PROCESSES, None, [3.0], 3, None),
        (Quantity.PROCESSES, None, [2.0, 3.0], 2, "1 other process computed on the GPU"),
        (Quantity.PROCESSES, None, [4.0], 2, "2 other processes computed on the GPU"),
        (Quantity.TEMPERATURE, 87.0, [99.0], 1, None),
        (Quantity.THROTTLING, None, [Throttle.HEAT], 1, None),
    ],
)
def test_a_slice_is_disturbed_by_a_slow_clock_and_by_others_on_its_gpu(quantity, limit, values, arms, said):
    assert disturbs(sensor(quantity, limit), values, arms) == said


def test_the_table_concludes_from_every_quantity_that_disturbs():
    assert {row.quantity for row in CONCLUSIONS} == set(Quantity) - {Quantity.POWER, Quantity.ENERGY}


def test_a_sensor_that_vanishes_is_told_once_and_the_others_go_on(tmp_path):
    root = tree(tmp_path, INTEL_XEON)
    found = sensors_of(PROCESSOR, [0], root)
    told: list[str] = []
    rounds = iter(range(6))

    def goes_on() -> bool:
        number = next(rounds)
        if number == 2:
            (root / "sys/class/hwmon/hwmon1/temp1_input").unlink()
        if number == 4:
            (root / f"{CPU}/cpu0/thermal_throttle/core_throttle_count").write_text("3\n")
        return number < 5

    record(found.sensors, tmp_path / "sensors", told.append, goes_on, period_s=0.0)
    recorded = Recording.read(tmp_path / "sensors", len(found.sensors))
    by_name = {one.name: recorded.values[number] for number, one in enumerate(found.sensors)}
    assert by_name["CPU temperature"] == (61.0, 61.0, None, None, None)
    assert by_name["CPU throttling by heat"] == (7.0, 7.0, 7.0, 7.0, 8.0)
    assert list(recorded.at_ns) == sorted(recorded.at_ns)
    (line,) = told
    assert line.startswith("CPU temperature vanished while it was read: ")
    assert line.endswith("; the measurement goes on without it")
    assert "\n" not in line
    assert list(recorded.lost) == [1]


def test_an_unfinished_line_is_left_out(tmp_path):
    path = tmp_path / "sensors"
    path.write_text('{"at_ns": 5, "values": [1.0]}\n{"at_ns": 9, "val')
    recorded = Recording.read(path, 1)
    assert recorded.between(0, 0, 9) == ((5, 1.0),)
    assert recorded.between(0, 6, 9) == ()
    assert Recording.read(Path("/nowhere"), 2).values == ((), ())


def test_the_newest_readings_alone_are_read_where_that_is_enough(tmp_path):
    path = tmp_path / "sensors"
    path.write_text("".join(f'{{"at_ns": {k}, "values": [1.0]}}\n' for k in range(10, 60)))
    line = len('{"at_ns": 10, "values": [1.0]}\n')
    assert Recording.read(path, 1, 2 * line + 5).at_ns == (58, 59)
    assert Recording.read(path, 1, 60 * line).at_ns == tuple(range(10, 60))
