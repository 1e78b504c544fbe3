"""The profile as text of at most 100 columns."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from runtime.common.profile.model import ModelProfile, ProfileRow

WIDTH: Final = 100
"""Columns of the text, as of the plan's. Wider breaks in a window of half a screen."""

_TOP: Final = 10
"""Operators that are listed, the slowest first, as many as LiteRT's tables list; `--json` has all."""

_ROW = "{:>4}  {:<22} {:<24} {:>10} {:>6} {:>8} {:>4} {:>7} {:>4}"
"""A row: step, operator, kernel, microseconds, percent, GFLOP/s and GB/s, each with its share of the peak."""


def lines(profile: ModelProfile, heading: str) -> Iterator[str]:
    """Yield the whole text, line by line."""
    yield from wrap(f"{heading}; medians of {profile.rounds} rounds", WIDTH)
    yield from wrap(profile.caution, WIDTH)
    yield from wrap(_peaks_text(profile), WIDTH)
    if profile.rows:
        yield ""
        yield _ROW.format("step", "operator", "kernel", "us", "%", "GFLOP/s", "peak", "GB/s", "peak")
        for row in profile.rows:
            yield _row(profile, row)
    yield from _operators(profile)
    yield ""
    yield f"{'type':<40} {'count':>6} {'us':>12} {'%':>7}"
    for one in profile.types:
        yield f"{_cut(one.name, 40):<40} {one.count:>6} {one.time_ns / 1e3:>12.1f} {100 * one.share:>7.2f}"


def _peaks_text(profile: ModelProfile) -> str:
    if profile.peaks is None:
        return f"The device's peaks are not known: {profile.no_peaks}."
    return (
        f"Measured peaks of the device with these threads: {profile.peaks.gflops:.1f} GFLOP/s in fp32, "
        f"{profile.peaks.gigabytes:.1f} GB/s from and to memory; what caches serve is beyond that."
    )


def _row(profile: ModelProfile, row: ProfileRow) -> str:
    peaks = profile.peaks
    first = next((one for one in profile.operators if row.operators[:1] == (one.index,)), None)
    name = "" if first is None else f"{first.index} {first.name}"
    more = f"+{len(row.operators) - 1}" if len(row.operators) > 1 else ""
    kernel = {"kernel": row.name, "cpu": "(on the CPU)", "partition": "(tells no kernels)"}
    return _ROW.format(
        row.step,
        _cut(name, 22 - len(more)) + more,
        _cut(kernel[row.place], 24),
        f"{row.time_ns / 1e3:.1f}",
        f"{100 * row.share:.2f}",
        f"{row.gflops:.2f}" if row.flops else "-",
        _percent(row.gflops, None if peaks is None else peaks.gflops),
        f"{row.gigabytes:.2f}" if row.bytes else "-",
        _percent(row.gigabytes, None if peaks is None else peaks.gigabytes),
    )


def _percent(rate: float, peak: float | None) -> str:
    return f"{100 * rate / peak:.0f}%" if rate and peak else "-"


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
