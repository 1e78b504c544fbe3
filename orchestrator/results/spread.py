"""Says in words what an interval is over, how much each level varies, and where to repeat more."""

from __future__ import annotations

from collections.abc import Iterator

from agent.wire.measurement import Measurement, Variation

_DIGEST_DIGITS = 12
"""Hex digits of an outcome's hash that are shown: enough to tell the tunings of one cell apart."""


def spread_lines(m: Measurement) -> Iterator[tuple[str, str]]:
    """Lines of a name and a text; none for results from before it was recorded."""
    v = m.variation
    if v is None:
        return
    units = _count(v.tunings, "tuning") if v.level == "tuning" else _count(v.processes, "process", "es")
    yield "interval over", f"{units}{', given this tuning' if v.given_tuning else ''}"
    shares = (("samples", v.sample_sd), ("processes", v.process_sd), ("tunings", v.tuning_sd))
    known = [f"{name} {sd:.2%}" for name, sd in shares if sd is not None]
    if known:
        yield "varies by", f"{', '.join(known)} (standard deviation that each adds)"
    if advice := ", ".join(_advice(v)):
        yield "advice", advice
    for number, tuning in enumerate(m.tunings, 1):
        used = _count(tuning.processes, "process", "es")
        yield f"tuning {number}", f"{used}, sha256 {tuning.sha256[:_DIGEST_DIGITS]}"
        yield "", f"choices: {tuning.choices or 'too long to be an option'}"


def _advice(v: Variation) -> Iterator[str]:
    """How often to repeat what, by Kalibera and Jones; a level that adds nothing needs no more than one."""
    if v.rounds_advised is not None:
        yield f"{_count(v.rounds_advised, 'round')} of a block"
    elif v.process_sd == 0.0:
        yield "more rounds rather than blocks"
    if v.processes_advised is not None:
        yield f"{_count(v.processes_advised, 'block')} of a tuning"
    elif v.tuning_sd == 0.0:
        yield "more blocks rather than tunings"
    if v.units_advised is not None:
        unit = "tuning" if v.level == "tuning" else "block"
        yield f"{_count(v.units_advised, unit)} for an interval of 1 % to either side"


def _count(number: int, word: str, plural: str = "s") -> str:
    return f"{number} {word}{'' if number == 1 else plural}"
