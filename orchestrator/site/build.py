"""Builds the site: `build_site` reads the farm, renders every page and puts the site in place."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from statistics import median_low
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agent.wire.measurement import ProcessSamples
from orchestrator.config.clock import utc_now
from orchestrator.errors import FarmError
from orchestrator.results import export
from orchestrator.results import format as text
from orchestrator.results.metrics import CI95, P50
from orchestrator.results.profiles import profile_heading, profile_of
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.results.speedups import Baselines
from orchestrator.results.wording import grouped
from orchestrator.site import links
from orchestrator.site.archive import Archive, SiteSource
from orchestrator.site.cell_page import cell_page
from orchestrator.site.cell_view import attempt_status, delegate_name, device_id
from orchestrator.site.figures import Facts, file_facts, origin_facts
from orchestrator.site.home import campaign_page, index_page
from orchestrator.site.matrix import BAR_WIDTH
from orchestrator.site.method_page import method_page
from orchestrator.site.model_page import model_page
from orchestrator.site.publish import replaced_folder
from runtime.common.profile import ModelProfile, written

SITE_FORMAT = 1
"""Version of `data/site.json`, for programs that read a site; raised when a field changes its meaning."""
_ASSETS = {"style.css": links.STYLE, "site.js": links.SCRIPT}


def build_site(farm: SiteSource, out_dir: Path, *, built_at: datetime | None = None) -> Path:
    """Write the whole site to `out_dir` and return its `index.html`.

    An older site there stays whole until the new one is complete. Raises `UsageError` where `out_dir` is
    something other than a site, `FarmError` where the farm cannot be read.
    """
    archive = Archive.read(farm)
    moment = built_at or utc_now()
    with replaced_folder(out_dir, links.MANIFEST) as folder:
        _Writer(farm, archive, folder, moment).write()
    return out_dir / links.INDEX


class _Writer:
    """One build of the site into a folder."""

    def __init__(self, farm: SiteSource, archive: Archive, folder: Path, built_at: datetime) -> None:
        self._farm = farm
        self._archive = archive
        self._folder = folder
        self._built_at = built_at
        self._files: dict[str, Facts] = {}
        self._environment = _template_environment()
        self._environment.globals |= {"built_at": built_at, "archive": archive}

    def write(self) -> None:
        """Write every page, data file and asset; the manifest last."""
        self._page(links.INDEX, "index", page=index_page(self._archive))
        self._page(links.METHOD, "method", page=method_page(self._archive))
        for campaign in self._archive.campaigns:
            self._campaign(campaign)
        for name, path in _ASSETS.items():
            self._file(path, files("templates").joinpath(name).read_text(encoding="utf-8"))
        self._file(links.MANIFEST, export.to_json(self._manifest()))

    def _campaign(self, campaign: CampaignRecord) -> None:
        cells = self._archive.cells[campaign.campaign_id]
        page = campaign_page(campaign, cells)
        self._page(links.campaign_page(campaign.campaign_id), "campaign", page=page)
        self._file(links.campaign_data(campaign.campaign_id, "json"), export.results_document(cells))
        self._file(links.campaign_data(campaign.campaign_id, "csv"), export.results_csv(cells))
        manifest = self._farm.manifest(campaign.campaign_id)
        for model in dict.fromkeys(cell.model for cell in cells):
            path = links.model_page(campaign.campaign_id, model)
            facts = self._facts(next(cell.model_sha256 for cell in cells if cell.model == model))
            origin = None if manifest is None else manifest.origins.get(model)
            facts = (*origin_facts(origin), *facts)
            self._page(path, "model", page=model_page(self._archive, campaign, model, facts))
        baselines = Baselines.among(campaign.baseline, cells)
        for cell in cells:
            self._cell(campaign, cell, baselines.of(cell))

    def _cell(self, campaign: CampaignRecord, cell: CellRecord, baseline: CellRecord | None) -> None:
        processes, note = self._samples(cell)
        original = self._archive.origin(cell)
        page = cell_page(campaign, cell, baseline, original, processes, note)
        self._page(links.cell_page(cell.cell_id), "cell", page=page)
        if isinstance(profile := profile_of(cell), ModelProfile):
            flame = "\n".join(written(profile, profile_heading(cell), "flame"))
            self._file(links.flame_page(cell.cell_id), flame)
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
            return (), f"The raw samples cannot be read: {error}"
        return processes, "" if processes else "No raw samples are stored."

    def _manifest(self) -> dict[str, Any]:
        return {
            "format": SITE_FORMAT,
            "built_at": self._built_at.isoformat(),
            "campaigns": [
                export.campaign_json(campaign)
                | {
                    "html": links.campaign_page(campaign.campaign_id),
                    "json": links.campaign_data(campaign.campaign_id, "json"),
                    "csv": links.campaign_data(campaign.campaign_id, "csv"),
                }
                for campaign in self._archive.campaigns
            ],
        }

    def _page(self, path: str, template: str, **values: Any) -> None:
        root = "../" * path.count("/")
        page = self._environment.get_template(f"{template}.html.j2").render(root=root, path=path, **values)
        self._file(path, page)

    def _file(self, path: str, content: str) -> None:
        target = self._folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, encoding="utf-8", errors="backslashreplace", newline="")


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
        "grouped": grouped, "median": _median,
    }  # fmt: skip
    return environment


def _median(samples_ns: Sequence[int]) -> int | None:
    """Return the lower median, the nearest rank, by which the measuring core forms a p50, too."""
    return median_low(samples_ns) if samples_ns else None


def _finalise(value: Any) -> Any:
    """Make hidden characters visible in every text that a template prints; markup of a macro passes."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return text.visible(value)
    return value
