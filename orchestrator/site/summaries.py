"""Summarises the parts of a site: what pages over all campaigns say of a campaign, and of a model."""

from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace as View

from orchestrator.errors import UsageError
from orchestrator.manifest.budget import Budget, read_budget
from orchestrator.manifest.load import parse_manifest
from orchestrator.policy.lifecycle import OPEN
from orchestrator.results import format as text
from orchestrator.results.budgets import Judged, judge_budgets
from orchestrator.results.records import CampaignRecord, ComparedCell, ManifestRecord
from orchestrator.results.regression import by_names, compare_runs
from orchestrator.results.wording import first_line
from orchestrator.site.archive import Archive, SiteSource
from orchestrator.site.campaign_page import cell_counts
from orchestrator.site.device_page import devices_of, on_devices
from orchestrator.site.failures_page import failures_of
from orchestrator.site.figures import json_object
from orchestrator.site.history_page import shift_view
from orchestrator.site.home import model_rows
from orchestrator.site.series import Series, Shift
from orchestrator.sources.published import newest_measured, own_of


def campaign_summary(archive: Archive, campaign: CampaignRecord, judged: Sequence[Judged]) -> View:
    """Summarise a campaign; `judged`: its budgets."""
    cells = archive.cells(campaign.campaign_id)
    return View(
        counts=cell_counts(cells)[0],
        waiting=sum((cell.again or cell.status) in OPEN for cell in cells),
        newest_at=max((cell.finished_at for cell in cells if cell.finished_at), default=None),
        devices=devices_of(cells),
        sample_floors=next(filter(None, map(_sample_floors, cells)), ""),
        budgets=[
            View(
                href=archive.address(one.cell),
                cell=f"{text.short_name(one.cell.model)} on {one.cell.delegate}",
                budget=one.budget.text,
                outcome=one.outcome.replace("_", " "),
                said=first_line(one.said, 140),
            )
            for one in judged
        ],
    )


def judged_budgets(source: SiteSource, archive: Archive, campaign: CampaignRecord) -> list[Judged]:
    """Judge a campaign's budgets as `farm submit` did; a ratio against the one of that name before."""
    budgets = _budgets_of(source.manifest(campaign.campaign_id))
    if not budgets:
        return []
    cells = source.cells(campaign.campaign_id)
    before = archive.before(campaign)
    earlier = None
    if before is not None:
        earlier = compare_runs(by_names(archive.cells(before.campaign_id)), by_names(cells))
    return judge_budgets(cells, budgets, earlier)


def _budgets_of(manifest: ManifestRecord | None) -> list[Budget]:
    """Read the budgets of a stored campaign file; none where this release cannot read it any more."""
    if manifest is None:
        return []
    try:
        campaign = parse_manifest(manifest.document.encode(), manifest.file)
    except UsageError:
        return []
    return [read_budget(text) for text in campaign.budgets]


def _sample_floors(cell: ComparedCell) -> str:
    """Return the setting that names the floors, where it does."""
    written = "" if cell.measurement is None else cell.measurement.settings.get("sample_floors", "")
    return written if written and json_object(written) else ""


def model_summary(
    archive: Archive, model: str, own: Sequence[Series], shifts: Sequence[Shift], published: Collection[str]
) -> View:
    """Summarise a model over all campaigns; `published`: the SHA-256 of the files of the published table."""
    by_file: dict[str, list[ComparedCell]] = {}
    for campaign in archive.campaigns:
        for cell in archive.of_model(campaign.campaign_id, model):
            if cell.model_sha256 in published:
                by_file.setdefault(cell.model_sha256, []).append(cell)
    return View(
        name=model,
        rows=model_rows(archive, own),
        series=len(own),
        results=sum(one.has_result for one in own),
        points=sum(len(one.points) for one in own),
        shifts=[shift_view(shift) for shift in shifts],
        failures=failures_of(archive, own),
        devices=on_devices(own),
        published=[
            View(sha256=sha256, at=cell.finished_at, shown=own_of(cell), href=archive.address(cell))
            for sha256, cells in by_file.items()
            for cell in newest_measured(cells)
        ],
    )


def published_of(models: Sequence[View]) -> Mapping[str, Sequence[View]]:
    """Return the newest published results of all models, by file and column, as the table shows them."""
    found: dict[str, dict[str, View]] = {}
    for one in sorted((one for model in models for one in model.published), key=lambda one: one.at or ""):
        found.setdefault(one.sha256, {})[one.shown.column] = one
    return {sha256: list(own.values()) for sha256, own in found.items()}
