"""Judges the budgets of a campaign file."""

from orchestrator.errors import UsageError
from orchestrator.manifest.budget import Budget, read_budget
from orchestrator.manifest.load import parse_manifest
from orchestrator.results.budgets import Judged, judge_budgets
from orchestrator.results.records import CampaignRecord, ManifestRecord
from orchestrator.results.regression import by_names, compare_runs
from orchestrator.site.archive import Archive, SiteSource


def judged_budgets(source: SiteSource, archive: Archive, campaign: CampaignRecord) -> list[Judged]:
    """Judge a campaign's budgets as `farm submit` did; a ratio against the one of that name before."""
    budgets = budgets_of(source.manifest(campaign.campaign_id))
    if not budgets:
        return []
    cells = source.cells(campaign.campaign_id)
    before = archive.before(campaign)
    earlier = None
    if before is not None:
        earlier = compare_runs(by_names(archive.cells(before.campaign_id)), by_names(cells))
    return judge_budgets(cells, budgets, earlier)


def budgets_of(manifest: ManifestRecord | None) -> list[Budget]:
    """Read the budgets of a stored campaign file; none where this release cannot read it any more."""
    if manifest is None:
        return []
    try:
        campaign = parse_manifest(manifest.document.encode(), manifest.file)
    except UsageError:
        return []
    return [read_budget(text) for text in campaign.budgets]
