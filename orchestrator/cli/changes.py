"""Prints what changed between two runs, as a table, as Markdown and as JSON; also between a campaign that has
ended and the earlier one that its file names.
"""

from collections import Counter
from collections.abc import Sequence

from orchestrator.cli import output
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.manifest.campaign import Campaign
from orchestrator.policy.lifecycle import OPEN
from orchestrator.results import format as text
from orchestrator.results.change_estimates import NO_SESSIONS, Estimate
from orchestrator.results.device_noise import SESSIONS_DIFFER
from orchestrator.results.format import NOTHING, moment, short_name
from orchestrator.results.records import CampaignRecord, CellRecord, ComparedCell
from orchestrator.results.regression import Change, Names, Report, by_names, compare_runs
from orchestrator.results.speedups import counted_times
from orchestrator.results.wording import LONGEST_REASON, first_line

_SIGNS = {
    "slower": "▼", "broken": "✗", "faster": "▲", "repaired": "✓", "added": "+", "removed": "-", "void": "!",
    "open": "?", "same": "=", "missing": "·",
}  # fmt: skip
"""A sign for each verdict, in the order of the table."""


def _listed(report: Report, show_all: bool) -> list[Change]:
    quiet = () if show_all else ("same", "open")
    return [change for change in report.changes if change.verdict not in quiet]


def _rows(report: Report, show_all: bool) -> list[tuple[str, ...]]:
    places = {verdict: place for place, verdict in enumerate(_SIGNS)}
    ordered = sorted(_listed(report, show_all), key=lambda change: (places[change.verdict], change.key))
    return [
        (
            " ".join(change.key),
            _latency(change.first),
            _latency(change.second),
            _percent(change.estimate),
            f"{_SIGNS[change.verdict]} {change.verdict}",
            first_line(change.why, LONGEST_REASON),
        )
        for change in ordered
    ]


def _headings(report: Report) -> tuple[str, ...]:
    return ("cell", *(f"{short_name(name)}, ms" for name in report.names), "speed", "verdict", "why")


def names_of(first: CampaignRecord, second: CampaignRecord) -> Names:
    """Return what two campaigns are called: by their names, else by when they were submitted, else by id."""
    ways = (
        (first.name, second.name),
        (moment(first.submitted_at), moment(second.submitted_at)),
        (first.campaign_id, second.campaign_id),
    )
    return next((names for names in ways if names[0] != names[1]), ways[-1])


def title(one: CampaignRecord) -> str:
    """Write `nightly of 2026-11-26 03:00 UTC (campaign 20261126-…)`."""
    return f"{one.name} of {moment(one.submitted_at)} (campaign {one.campaign_id})"


def table(report: Report, show_all: bool) -> None:
    """Print the changes; `show_all`: also those that are the same or open."""
    rows = _rows(report, show_all)
    if rows:
        output.table(_headings(report), rows)


def markdown(report: Report, show_all: bool) -> str:
    """Return the same as a table of Markdown; empty if nothing is listed."""
    rows = _rows(report, show_all)
    return output.markdown_table(_headings(report), rows) + "\n" if rows else ""


def summary(report: Report, show_all: bool) -> list[str]:
    """Return the counts, the mean, and the caveats that belong to them, line by line."""
    counts = report.counts
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    hidden = len(report.changes) - len(_listed(report, show_all))
    lines = [f"{len(report.changes)} cells: {said}" + (f"; {hidden} not listed (--all)" if hidden else "")]
    if report.mean is not None:
        kind = "" if report.mean_paired else ", unpaired"
        mean = f"speed {_percent(report.mean)}{kind}{_left_out(report)}"
        lines.append(f"geometric mean over {report.mean_count} cells: {mean}")
    # A table without `--all` leaves open cells out: the reason that most of them share is told once.
    for begin in (NO_SESSIONS, SESSIONS_DIFFER):
        whys = [one.why for one in report.changes if one.verdict == "open" and one.why.startswith(begin)]
        if whys:
            lines.append(f"open: {len(whys)} {whys[0]}")
    kept = sum(
        bool(cell and cell.kept) for change in report.changes for cell in (change.first, change.second)
    )
    if kept:
        lines.append(f"{kept} earlier results stand for what is measured again, or could not be (--all)")
    void = sum(change.verdict == "void" and not change.is_imported for change in report.changes)
    if void:
        lines.append(f"void: {void}, without a verdict; farm retry --void measures those again")
    return lines + [
        f"differs: {one.name}: {one.before} -> {one.after} ({one.cells} cells)" for one in report.differences
    ]


def _left_out(report: Report) -> str:
    """`; not in it: 3 without a ratio, 1 imported`: which cells the mean is not over."""
    left: Counter[str] = Counter()
    for change in report.changes:
        if change.is_imported:
            left["imported"] += 1
        elif change.estimate is None:
            left["without a ratio"] += 1
        elif change.verdict == "void":
            left["void"] += 1
        elif report.mean_paired and not change.estimate.blocks:
            left["unpaired"] += 1
    said = ", ".join(f"{count} {what}" for what, count in left.items())
    return f"; not in it: {said}" if said else ""


def _latency(cell: ComparedCell | None) -> str:
    times = None if cell is None else counted_times(cell)
    return text.milliseconds(None if times is None else times.p50)


def _percent(estimate: Estimate | None) -> str:
    """By how much the second is faster, with the interval; below 0 it is slower."""
    if estimate is None:
        return NOTHING
    if estimate.ci95 is None:
        return f"{estimate.ratio - 1.0:+.1%}"
    low, high = estimate.ci95
    return f"{estimate.ratio - 1.0:+.1%} [{low - 1.0:+.1%}, {high - 1.0:+.1%}]"


def as_json(report: Report) -> dict[str, object]:
    """Return the object of `farm compare --json`."""
    return {
        "paired": bool(report.changes)
        and all(change.estimate is None or change.estimate.blocks > 0 for change in report.changes),
        "counts": dict(report.counts),
        "geometric_mean": _estimate_json(report.mean),
        "changes": [_change_json(change) for change in report.changes],
        "differences": report.differences,
    }


def _change_json(change: Change) -> dict[str, object]:
    return {
        "key": list(change.key),
        "verdict": change.verdict,
        "ratio": _estimate_json(change.estimate),
        "cells": [None if cell is None else cell.cell_id for cell in (change.first, change.second)],
        "why": change.why,
    }


def _estimate_json(estimate: Estimate | None) -> dict[str, object] | None:
    if estimate is None:
        return None
    return {
        "median": estimate.ratio,
        "ci95": None if estimate.ci95 is None else list(estimate.ci95),
        "p": estimate.p,
        "blocks": estimate.blocks,
        "allowance": estimate.allowance,
    }


LATEST = "latest"


def earlier_of(farm: AnyFarm, campaign: Campaign) -> CampaignRecord | None:
    """Find the earlier campaign, before this one is stored; None if it names none, or is the first.

    `latest`, or the campaign's own name: the newest of that name that has ended. Raises `UsageError` for
    another one that there is not.
    """
    if campaign.against is None:
        return None
    if campaign.against not in (LATEST, campaign.name):
        return farm.reading.campaign(campaign.against)
    # The one that was submitted last comes first.
    for one in farm.reading.campaigns():
        if one.name == campaign.name and not any(one.counts.get(state) for state in OPEN):
            return one
    output.note(
        f"against: no campaign {campaign.name} has ended before this one; there is nothing to compare"
    )
    return None


def compared_with(
    farm: AnyFarm, before: CampaignRecord | None, cells: Sequence[CellRecord], as_json: bool
) -> Report | None:
    """Compare the ended cells with the earlier campaign and print what changed; None without one.

    Where the results are printed as JSON, the summary alone is printed, on standard error.
    """
    if before is None:
        return None
    earlier = farm.wait(output.note)(lambda: farm.reading.cells(before.campaign_id))
    report = compare_runs(by_names(earlier), by_names(cells), names=(moment(before.submitted_at), "now"))
    say = output.note if as_json else output.line
    say(f"against {title(before)}:")
    if not as_json:
        table(report, show_all=False)
    for line in summary(report, show_all=False):
        say(line)
    return report
