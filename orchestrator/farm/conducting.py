"""Conducts a submission: brings its files into the store, has it planned, sends the files, and stores it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.config.limits import require_budget
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.farm.submit.submission import Order, Submitted
from orchestrator.manifest.campaign import Campaign
from orchestrator.manifest.load import parse_manifest
from orchestrator.policy.preview import CellPreview
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.sources.datasets import with_data
from orchestrator.sources.own_inputs import with_inputs
from orchestrator.sources.resolve import CheckedSources, check_all, resolve_all
from orchestrator.sources.store import Store
from orchestrator.sources.web import Web


@dataclass(frozen=True, slots=True)
class Planned:
    """A campaign with a decision for each cell.

    `files`: the sha256 of each file that it needs; `models`: id and sha256 of each model that there is.
    """

    farm: AnyFarm
    order: Order
    files: Sequence[str]
    models: Sequence[tuple[str, str]]
    note: Callable[[str], None]

    @property
    def preview(self) -> Sequence[CellPreview]:
        """The plan for each cell; once it is submitted, as it was stored."""
        return self.order.preview

    def submit(self) -> Submitted:
        """Send the files to where the farm has its own, and store the campaign."""
        self.farm.send(self.files, self.note)
        return self.order.submit()


@contextmanager
def planned(
    farm: AnyFarm, campaign: Campaign, checked: CheckedSources, note: Callable[[str], None], *, force: bool
) -> Iterator[Planned]:
    """Keep a campaign's models and labelled data in the store, and have it planned; submit it inside.

    `note` receives a line for each slow step and for each model whose cells will fail; `force`: nothing is
    reused. Raises `FarmError` where the store's budget is used, and as `resolve_all`, `with_data` and
    `with_inputs`.
    """
    lab = farm.lab
    store = Store(farm.home.store, lab.limits.artifact_bytes, lab.limits)
    # Until the campaign names its files in the database, `farm db prune` must not delete them.
    with store.in_use():
        require_budget(store.root, lab.limits)
        if checked.are_copied:
            # While the files are read, which takes seconds; a download could take hours.
            farm.begin()
        web = Web(lab.allow_private, lab.npm_registry)
        models = resolve_all(checked, store, note, web)
        campaign, models = with_data(campaign, models, checked, store, note, web)
        campaign, models = with_inputs(campaign, models, checked.base_dir, store, note, web)
        for model in models:
            if model.problem:
                note(f"warning: {model.id}: not a usable .tflite, its cells will fail: {model.problem}")
            if model.unreachable:
                note(f"warning: {model.id}: its cells will fail: {model.unreachable}")
        there = [(model.id, model.sha256) for model in models if model.sha256 and not model.problem]
        files = [model.sha256 for model in models if model.sha256]
        files += [one.plan.labelled.sha256 for one in campaign.models if one.plan.labelled is not None]
        specs = (spec for one in campaign.models for spec in one.inputs.values())
        files += [spec.data.sha256 for spec in specs if spec.data is not None]
        yield Planned(farm, farm.submission.order(campaign, models, force=force), files, there, note)


def read_campaign(
    farm: AnyFarm, campaign_id: str, note: Callable[[str], None]
) -> tuple[CampaignRecord, list[CellRecord]]:
    """Return a campaign and its cells as they are now; a farm that is away for a while is waited for."""
    reading = farm.reading
    return farm.wait(note)(lambda: (reading.campaign(campaign_id), reading.cells(campaign_id)))


def submit_document(farm: AnyFarm, document: str, called: str, note: Callable[[str], None]) -> Submitted:
    """Store the campaign of a `models.yaml` text; `called`: what messages call it. Nothing is reused.

    `note` receives a line for each slow step. Raises as `farm submit` does.
    """
    return submit_campaign(farm, parse_manifest(document.encode(), called), note, force=True)


def submit_campaign(
    farm: AnyFarm,
    campaign: Campaign,
    note: Callable[[str], None],
    *,
    force: bool,
    require: Callable[[Sequence[CellPreview]], None] = lambda _: None,
) -> Submitted:
    """Store a campaign whose relative sources start at the working directory.

    `force`: nothing is reused; `require` raises where the planned cells are not those that were meant.
    """
    checked = check_all(campaign.models, Path(), None, farm.lab.limits.artifact_bytes)
    with planned(farm, campaign, checked, note, force=force) as plan:
        require(plan.preview)
        return plan.submit()
