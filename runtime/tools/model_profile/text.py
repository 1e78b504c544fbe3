"""The profile as text of at most 100 columns."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from runtime.plan.profile import ModelProfile, ProfileRow
from runtime.tools.model_profile.measuring import Profiled

WIDTH: Final = 100
"""Columns of the text, as of the plan's. Wider breaks in a window of half a screen."""

_TOP: Final = 10
"""Operators that are listed, the slowest first, as many as LiteRT's tables list; `--json` has all."""

_ROW = "{:>4}  {:<22} {:<34} {:>10} {:>6} {:>8} {:>7}"
"""A row: step, operator, kernel, microseconds, percent, GFLOP/s, GB/s."""


def lines(found: Profiled, file: str) -> Iterator[str]:
    """Yield the whole text, line by line."""
    profile = found.profile
    told = ", ".join(
        f"{key} {found.settings[key]}" for key in ("device", "precision", "tuning") if key in found.settings
    )
    yield from wrap(f"{file} on {found.delegate}: {told}; medians of {profile.rounds} rounds", WIDTH)
    yield from wrap(profile.caution, WIDTH)
    yield ""
    yield _ROW.format("step", "operator", "kernel", "us", "%", "GFLOP/s", "GB/s")
    for row in profile.rows:
        yield _row(profile, row)
    yield from _operators(profile)
    yield ""
    yield f"{'type':<40} {'count':>6} {'us':>12} {'%':>7}"
    for one in profile.types:
        yield f"{_cut(one.name, 40):<40} {one.count:>6} {one.time_ns / 1e3:>12.1f} {100 * one.share:>7.2f}"


def _row(profile: ModelProfile, row: ProfileRow) -> str:
    first = profile.operators[row.operators[0]] if row.operators else None
    name = "" if first is None else f"{first.index} {first.name}"
    more = f"+{len(row.operators) - 1}" if len(row.operators) > 1 else ""
    kernel = {"kernel": row.name, "cpu": "(on the CPU)", "partition": "(partition, no kernels told)"}
    return _ROW.format(
        row.step,
        _cut(name, 22 - len(more)) + more,
        _cut(kernel[row.place], 34),
        f"{row.time_ns / 1e3:.1f}",
        f"{100 * row.share:.2f}",
        f"{row.gflops:.2f}" if row.flops else "-",
        f"{row.gigabytes:.2f}" if row.bytes else "-",
    )


def _operators(profile: ModelProfile) -> Iterator[str]:
    slowest = sorted(profile.operators, key=lambda one: -one.time_ns)[:_TOP]
    yield ""
    yield f"{'operator':<40} {'where':>9} {'us':>12} {'%':>7}"
    for one in slowest:
        name = f"{one.index} {one.name}{' ~' if one.is_divided else ''}"
        yield f"{_cut(name, 40):<40} {one.place:>9} {one.time_ns / 1e3:>12.1f} {100 * one.share:>7.2f}"
    if any(one.is_divided for one in slowest):
        yield "~ the time of a kernel of several operators is divided by their estimated work"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
