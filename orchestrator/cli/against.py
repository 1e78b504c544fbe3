"""Compares a campaign that has ended with the earlier one that its file names."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cli import changes, output
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.manifest import Campaign
from orchestrator.policy.lifecycle import OPEN
from orchestrator.results.format import moment
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.results.regression import Report, by_names, compare_runs

LATEST = "latest"


def found(farm: AnyFarm, campaign: Campaign) -> CampaignRecord | None:
    """Find the earlier campaign, before this one is stored; None if it names none, or is the first.

    `latest`, or the campaign's own name: the newest of that name that has ended. Raises `UsageError` for
    another one that there is not.
    """
    if campaign.against is None:
        return None
    if campaign.against not in (LATEST, campaign.name):
        return farm.reading.campaign(campaign.against)
    for one in farm.reading.campaigns():
        if one.name == campaign.name and not any(one.counts.get(state) for state in OPEN):
            return one
    output.note(
        f"against: no campaign {campaign.name} has ended before this one; there is nothing to compare"
    )
    return None


def compared(
    farm: AnyFarm, before: CampaignRecord | None, cells: Sequence[CellRecord], as_json: bool
) -> Report | None:
    """Compare the ended cells with the earlier campaign and print what changed; None without one.

    Where the results are printed as JSON, the summary alone is printed, on standard error.
    """
    if before is None:
        return None
    earlier = farm.wait(output.note)(lambda: farm.reading.cells(before.campaign_id))
    report = compare_runs(by_names(earlier), by_names(cells))
    say = output.note if as_json else output.line
    say(f"against campaign {before.campaign_id} ({before.name}, {moment(before.submitted_at)}):")
    if not as_json:
        changes.table(report, show_all=False)
    for line in changes.summary(report, show_all=False):
        say(line)
    return report
