"""Judges a process's figures by the sensors read meanwhile, as a table of quantities and judgements.

The bounds are those of NVBench (75 % of the nominal clock) and of the vendors' own protections.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Final

from agent.machine.disturbance import Disturbance
from agent.machine.sensors.sensor import Quantity, Sensor, Throttle

LEAST_CLOCK: Final = 0.75
"""Share of the nominal clock below which a reading is one of a slowed part: NVBench's throttle threshold."""

MOST_SLOWED: Final = 0.1
"""Share of such readings above which the figures mean nothing; up to it, the process was disturbed."""

MOST_VARIATION: Final = 0.03
"""Standard deviation of the clock over its mean above which it did not hold still. Times follow the clock,
and 3 % is more than the smallest difference that a comparison calls one."""

NEAR_LIMIT_C: Final = 5.0
"""Degrees below the temperature at which the hardware slows itself down from which on it may begin to."""

FEWEST: Final = 3
"""Readings in a window below which nothing follows from them: a third of a second at ten rounds a second."""

Values = Sequence[float]
Judgement = Callable[[Sensor, Values], Disturbance | None]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """A row of the table."""

    quantity: Quantity
    judge: Judgement


def conclude(sensor: Sensor, values: Values, arms: int = 1) -> tuple[Disturbance, ...]:
    """Judge a sensor's readings in one window; `arms`: the measured processes on its part."""
    if sensor.quantity is Quantity.PROCESSES:
        values = [value - arms for value in values]
    if sensor.quantity is Quantity.CLOCK:
        # A GPU that waits for its host reports no clock at all.
        values = [value for value in values if value > 0.0]
    rows = (row for row in CONCLUSIONS if values and row.quantity is sensor.quantity)
    return tuple(found for row in rows if (found := row.judge(sensor, values)) is not None)


def disturbs(sensor: Sensor, values: Values, arms: int) -> str | None:
    """Say what of a GPU disturbed the slice in which it was read: its clock, or another process on it."""
    if sensor.quantity not in (Quantity.CLOCK, Quantity.PROCESSES):
        return None
    return next((one.text for one in conclude(sensor, values, arms) if one.invalidates), None)


def _throttled_by(reasons: Throttle, why: str, *, invalidates: bool) -> Judgement:
    def judge(sensor: Sensor, values: Values) -> Disturbance | None:
        share = sum(bool(Throttle(int(value)) & reasons) for value in values) / len(values)
        text = f"{sensor.name}: slowed down by {why} in {share:.0%} of the readings"
        return Disturbance(text, invalidates) if share else None

    return judge


def _throttlings(sensor: Sensor, values: Values) -> Disturbance | None:
    count = values[-1] - values[0]
    return Disturbance(f"{sensor.name}: {count:.0f} times", invalidates=True) if count > 0 else None


def _slow_clock(sensor: Sensor, values: Values) -> Disturbance | None:
    if sensor.limit is None:
        return None
    share = sum(value < LEAST_CLOCK * sensor.limit for value in values) / len(values)
    if not share:
        return None
    text = f"{sensor.name}: below {LEAST_CLOCK:.0%} of {sensor.limit:.0f} MHz in {share:.0%} of the readings"
    return Disturbance(text, invalidates=share > MOST_SLOWED)


def _moving_clock(sensor: Sensor, values: Values) -> Disturbance | None:
    # Readings of 0 were left out: fewer than `FEWEST` may remain.
    if len(values) < FEWEST or pstdev(values) <= MOST_VARIATION * fmean(values):
        return None
    return Disturbance(f"{sensor.name}: varied by {pstdev(values) / fmean(values):.0%}")


def _hot(sensor: Sensor, values: Values) -> Disturbance | None:
    if sensor.limit is None or max(values) <= sensor.limit - NEAR_LIMIT_C:
        return None
    return Disturbance(f"{sensor.name}: {max(values):.0f} °C, where {sensor.limit:.0f} °C slows it down")


def _others(_sensor: Sensor, values: Values) -> Disturbance | None:
    # Without the measured ones. One that uses no GPU hides another one: it would be disturbed least.
    others = max(values)
    if others <= 0:
        return None
    return Disturbance(
        f"{others:.0f} other process{'es' * (others > 1)} computed on the GPU", invalidates=True
    )


CONCLUSIONS: Final = (
    Conclusion(
        Quantity.THROTTLING,
        _throttled_by(Throttle.HEAT | Throttle.HARDWARE, "heat or the board", invalidates=True),
    ),
    Conclusion(Quantity.THROTTLING, _throttled_by(Throttle.POWER, "its power limit", invalidates=False)),
    Conclusion(Quantity.THROTTLINGS, _throttlings),
    Conclusion(Quantity.CLOCK, _slow_clock),
    Conclusion(Quantity.CLOCK, _moving_clock),
    Conclusion(Quantity.TEMPERATURE, _hot),
    Conclusion(Quantity.PROCESSES, _others),
)
"""The table. Power and energy are recorded, and nothing follows from them."""
