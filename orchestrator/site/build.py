"""Builds the site: `build_site` reads the farm, renders every page and puts the site in place."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import median_low
from types import SimpleNamespace as View
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agent.wire.measurement import ProcessSamples
from orchestrator.config.collector import collector_paused
from orchestrator.errors import FarmError
from orchestrator.results import export
from orchestrator.results import format as text
from orchestrator.results.metrics import CI95, P50
from orchestrator.results.profiles import profile_heading, profile_of
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.results.speedups import Baselines
from orchestrator.results.wording import first_line, grouped
from orchestrator.site import links
from orchestrator.site.archive import Archive, SiteSource
from orchestrator.site.campaign_page import brief_page, campaign_page
from orchestrator.site.cell_page import cell_page
from orchestrator.site.cell_view import attempt_status, delegate_name, device_id
from orchestrator.site.compare_page import any_comparison_page, compare_page
from orchestrator.site.device_page import device_page
from orchestrator.site.digests import campaign_digest, model_digest
from orchestrator.site.failures_page import causes_of, failures_page
from orchestrator.site.figures import Facts, file_facts, origin_facts
from orchestrator.site.history_page import dated_shifts, history_page, trends_page
from orchestrator.site.home import index_page
from orchestrator.site.matrix import BAR_WIDTH
from orchestrator.site.method_page import method_page
from orchestrator.site.model_page import model_page
from orchestrator.site.notes import Notes
from orchestrator.site.parts import Parts, digest_of, text_digest, written_views
from orchestrator.site.publish import replaced_folder
from orchestrator.site.series import series_of, shifts_of
from orchestrator.site.shards import packed, shards
from orchestrator.site.summaries import campaign_summary, judged_budgets, model_summary, published_of
from orchestrator.sources.published import PUBLISHED_NOTE, published_rows
from orchestrator.sources.zoo import has_zoo
from runtime.common.profile import ModelProfile, written

SITE_FORMAT = 3
"""Version of `data/site.json`, for programs that read a site; raised when a field changes its meaning."""


def build_site(farm: SiteSource, out_dir: Path, notes: Notes | None = None) -> Path:
    """Write the whole site to `out_dir` and return its `index.html`; `notes` say which changes are accepted.

    The bytes depend on the farm's content alone. An older site there stays whole until the new one is
    complete; parts of it whose content is the same are taken from it. Raises `UsageError` where `out_dir` is
    something other than a site, `FarmError` where the farm cannot be read.
    """
    with replaced_folder(out_dir, links.MANIFEST) as folder:
        # Under the lock: while this build waited for another one, both the farm and the older site changed.
        with collector_paused():
            archive = Archive(farm)
            parts = Parts.of(out_dir)
        _Writer(farm, archive, folder, parts, notes or Notes()).write()
    return out_dir / links.INDEX


class _Writer:
    """One build of the site into a folder."""

    def __init__(self, farm: SiteSource, archive: Archive, folder: Path, parts: Parts, notes: Notes) -> None:
        self._farm = farm
        self._archive = archive
        self._folder = folder
        self._parts = parts
        self._notes = notes
        self._files: dict[str, Facts] = {}
        self._published = published_rows() if has_zoo() else []
        self._files_published = frozenset(row.sha256 for row in self._published) - {""}
        self._newest_at: datetime | None = None
        self._environment = _template_environment()
        self._environment.globals |= {"archive": archive}

    def write(self) -> None:
        """Write every page, data file and asset; the manifest last."""
        newest: set[str] = set()
        campaigns = []
        for campaign in self._archive.campaigns:
            # Campaigns come newest first.
            is_newest = campaign.name not in newest
            newest.add(campaign.name)
            digest = campaign_digest(self._archive, campaign, is_newest=is_newest)
            make = partial(self._campaign, campaign, is_newest=is_newest)
            campaigns.append((campaign, self._part(f"campaign {campaign.campaign_id}", digest, make)))
        models = []
        for model in dict.fromkeys(model for own in self._archive.groups.values() for model in own):
            digest = model_digest(self._archive, model, self._notes, self._files_published)
            models.append(self._part(f"model {model}", digest, partial(self._history, model)))
        with collector_paused():
            self._over_all_campaigns(campaigns, models)
        for path in links.ASSETS:
            name = path.rpartition("/")[2]
            self._file(path, files("templates").joinpath(name).read_text(encoding="utf-8"))
        # The manifest, which makes the folder a site, comes last. With the summaries' digest in it, a later
        # build never takes parts by one file and their summaries by another.
        summaries = written_views(self._parts.summaries)
        self._file(links.SUMMARIES, summaries)
        self._file(links.MANIFEST, export.to_json(self._manifest(text_digest(summaries))))

    def _over_all_campaigns(
        self, campaigns: Sequence[tuple[CampaignRecord, View]], models: Sequence[View]
    ) -> None:
        shifts = dated_shifts(models)
        causes = causes_of(one for model in models for one in model.failures)
        self._newest_at = max(
            (datetime.fromisoformat(one.newest_at) for _, one in campaigns if one.newest_at), default=None
        )
        page = index_page(self._archive, campaigns, models, shifts, causes, self._newest_at)
        self._page(links.INDEX, "index", page=page)
        for version, script in page["scripts"].items():
            make = partial(self._choice, links.choice(version), script)
            self._part(f"home {version}", digest_of(script), make)
        floors = (one.sample_floors for _, one in campaigns)
        # Of the newest campaign that states any: campaigns come newest first.
        self._page(links.METHOD, "method", page=method_page(next(filter(None, floors), "{}")))
        self._page(
            links.PUBLISHED, "published",
            rows=self._published, own_by_file=published_of(models), note=PUBLISHED_NOTE,
        )  # fmt: skip
        self._page(links.FAILURES, "failures", page=failures_page(causes))
        self._page(links.ANY_CELL, "any_cell")
        self._page(links.ANY_COMPARISON, "any_comparison", campaigns=any_comparison_page(self._archive))
        self._page(links.TRENDS, "trends", page=trends_page(models, shifts))
        slower = [one for one in shifts if one.is_slower and one.state == "confirmed"]
        self._page(links.FEED, "feed.xml", page={"shifts": slower, "newest_at": self._newest_at})
        devices: dict[str, list[View]] = {}
        for one in (one for _, summary in campaigns for one in summary.devices):
            devices.setdefault(one.device, []).append(one)
        for device, own in devices.items():
            self._page(links.device_page(device), "device", page=device_page(device, own, models))

    def _part(self, name: str, digest: str, make: Callable[[], View]) -> View:
        """Write a part's files, or take the older site's of equal digest; return its summary."""
        if not self._parts.take(name, digest, self._folder):
            with self._parts.written(name, digest):
                summary = make()
            self._parts.keep(name, summary)
        return self._parts.summaries[name]

    def _choice(self, path: str, script: str) -> View:
        self._file(path, packed(script))
        return View()

    def _history(self, model: str) -> View:
        own = series_of(self._archive, model)
        shifts = [shift for one in own for shift in shifts_of(one, self._notes)]
        page = history_page(self._archive, model, own, shifts)
        self._page(links.history_page(model), "history", page=page)
        return model_summary(self._archive, model, own, shifts, self._files_published)

    def _campaign(self, campaign: CampaignRecord, *, is_newest: bool) -> View:
        name, before = campaign.campaign_id, self._archive.before(campaign)
        if before is not None:
            page = compare_page(self._archive, before, campaign)
            self._page(links.comparison_page(name), "compare", page=page)
        own = self._archive.cells(name)
        for shard, content in shards(campaign, own, self._farm.measurements(name)):
            self._file(links.shard(shard), content)
        if name in self._archive.in_full:
            self._in_full(campaign, self._farm.cells(name), before)
        else:
            page = brief_page(self._archive, campaign, before)
            self._page(links.campaign_page(name), "campaign", page=page)
        judged = judged_budgets(self._farm, self._archive, campaign) if is_newest else []
        return campaign_summary(self._archive, campaign, judged)

    def _in_full(
        self, campaign: CampaignRecord, cells: Sequence[CellRecord], before: CampaignRecord | None
    ) -> None:
        page = campaign_page(campaign, cells, before)
        self._page(links.campaign_page(campaign.campaign_id), "campaign", page=page)
        self._file(links.campaign_data(campaign.campaign_id, "json"), export.results_document(cells))
        self._file(links.campaign_data(campaign.campaign_id, "csv"), export.results_csv(cells))
        manifest = self._farm.manifest(campaign.campaign_id)
        by_model: dict[str, list[CellRecord]] = {}
        for cell in cells:
            by_model.setdefault(cell.model, []).append(cell)
        baselines = Baselines.among(campaign.baseline, cells)
        for model, own in by_model.items():
            origin = None if manifest is None else manifest.origins.get(model)
            facts = (*origin_facts(origin), *self._facts(own[0].model_sha256))
            page = model_page(campaign, own, cells, baselines, facts)
            self._page(links.model_page(campaign.campaign_id, model), "model", page=page)
        for cell in cells:
            self._cell(campaign, cell, baselines.of(cell))

    def _cell(self, campaign: CampaignRecord, cell: CellRecord, baseline: CellRecord | None) -> None:
        processes, note = self._samples(cell)
        original = self._archive.origin(cell)
        numbers = original or cell
        # Of older campaigns there is no file of raw numbers.
        raw = links.cell_data(numbers.cell_id) if numbers.campaign_id in self._archive.in_full else ""
        page = cell_page(campaign, cell, baseline, original, processes, note) | {"raw_json": raw}
        self._page(links.cell_page(cell.cell_id), "cell", page=page)
        if isinstance(profile := profile_of(cell), ModelProfile):
            flame = "\n".join(written(profile, profile_heading(cell), "flame"))
            self._file(links.flame_page(cell.cell_id), flame)
        # A reused result has no file of its own: its page links that of its origin.
        if original is None:
            self._file(links.cell_data(cell.cell_id), export.cell_document(cell, processes))

    def _facts(self, sha256: str) -> Facts:
        """Return a file's facts; read once, however many campaigns measured it."""
        if sha256 not in self._files:
            self._files[sha256] = file_facts(self._farm.model_facts(sha256)) if sha256 else ()
        return self._files[sha256]

    def _samples(self, cell: CellRecord) -> tuple[Sequence[ProcessSamples], str]:
        if cell.measurement is None:
            return (), "Nothing was measured."
        try:
            processes = self._farm.samples(cell)
        except FarmError as error:
            self._parts.mark_lacking()
            return (), f"The raw samples cannot be read: {error}"
        return processes, "" if processes else "No raw samples are stored."

    def _manifest(self, summaries: str) -> dict[str, Any]:
        newest = self._newest_at
        return {
            "format": SITE_FORMAT,
            "newest_result": newest and newest.isoformat(),
            "parts": self._parts.new,
            "summaries": summaries,
            "campaigns": [
                export.campaign_json(campaign)
                | {"html": links.campaign_page(campaign.campaign_id)}
                | {
                    suffix: links.campaign_data(campaign.campaign_id, suffix)
                    if campaign.campaign_id in self._archive.in_full
                    else None
                    for suffix in ("json", "csv")
                }
                for campaign in self._archive.campaigns
            ],
        }

    def _page(self, path: str, template: str, **values: Any) -> None:
        # All links are relative: a site works below any address, and from a disk.
        root = "../" * path.count("/")
        # A template that is not HTML has its ending in its name: `feed.xml`.
        name = f"{template}.j2" if "." in template else f"{template}.html.j2"
        page = self._environment.get_template(name).render(root=root, path=path, **values)
        self._file(path, page)

    def _file(self, path: str, content: str) -> None:
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # CSV has line ends of its own, and a lone surrogate in a name must not end the build.
        target.write_text(content, encoding="utf-8", errors="backslashreplace", newline="")
        self._parts.note(path)


def _template_environment() -> Environment:
    """Autoescape everywhere, undefined names are errors, and no printed text hides a character."""
    environment = Environment(
        loader=PackageLoader("templates", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalise,
    )
    environment.globals |= {
        "links": links, "bar_width": BAR_WIDTH, "P50": P50, "CI95": CI95, "attempt_status": attempt_status,
    }  # fmt: skip
    environment.filters |= {
        "short": text.short_name, "moment": text.moment, "bytes": text.byte_count, "count": text.count,
        "ms": text.nanoseconds, "duration": text.duration, "device": device_id, "delegate": delegate_name,
        "grouped": grouped, "median": _median, "line": _line,
    }  # fmt: skip
    return environment


def _line(reason: str, limit: int = 100) -> str:
    return first_line(reason, limit)


def _median(samples_ns: Sequence[int]) -> int | None:
    """Return the lower median, the nearest rank, by which the measuring core forms a p50, too."""
    return median_low(samples_ns) if samples_ns else None


def _finalise(value: Any) -> Any:
    """Make hidden characters visible in every text that a template prints; markup of a macro passes."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return text.visible(value)
    return value
