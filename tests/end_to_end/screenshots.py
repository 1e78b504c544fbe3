"""Takes pictures of every kind of page on a phone, a laptop and a wide screen, to be looked at.

    .venv/bin/python -m tests.end_to_end.screenshots FOLDER

The results shown were made for tests; none was measured. `FOLDER/manual` has the pictures of the manual, to
be copied to docs/screenshots.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from orchestrator.site import archive, links
from orchestrator.site.build import build_site
from tests.end_to_end.conftest import QUIET
from tests.end_to_end.test_site_compare import AGAIN, DEMO, OLDER, changed_farm
from tests.needs import browser as chromium_path
from tests.orchestrator.site.records import HOST, HOSTILE_NAMES, MODELS, HandMadeFarm
from tests.orchestrator.site.test_over_time import MODEL, nightly_farm

SCREENS = ((360, "light"), (360, "dark"), (1280, "light"), (1280, "dark"), (2560, "light"))
COLOURS = 128
"""Of a picture in the manual: its letters look the same with all of them, at three times the bytes."""


def pictured_farm() -> HandMadeFarm:
    """Build the nights of one model and two runs of the demo, without the names that are there to do harm."""
    nights, changed = nightly_farm(), changed_farm()
    # Of the model of the nights, whose step would not be told after another one.
    again = tuple(one for one in changed.cell_lists[AGAIN] if one.model != MODEL)
    cells = {**nights.cell_lists, AGAIN: again}
    cells[OLDER] = tuple(one for one in cells[OLDER] if one.model not in HOSTILE_NAMES)
    campaigns = (*nights.campaign_list, changed.campaign_list[-1])
    campaigns = tuple(
        replace(one, models=tuple(name for name in one.models if name not in HOSTILE_NAMES))
        for one in campaigns
    )
    return HandMadeFarm(campaigns, cells, nights.raw | changed.raw)


def pages(farm: HandMadeFarm) -> dict[str, str]:
    """Return an address of every kind of page."""
    cell = next(c for c in farm.cells(DEMO) if (c.model, c.delegate) == ("torchvision_resnet18", "gpu"))
    failed = next(c for c in farm.cells(AGAIN) if c.status == "failed")
    return {
        "home": links.INDEX,
        "campaign": links.campaign_page(DEMO),
        "campaign-in-brief": links.campaign_page(OLDER),
        "model": links.history_page(MODEL),
        "model-of-campaign": links.model_page(DEMO, tuple(MODELS)[1]),
        "cell": links.cell_page(cell.cell_id),
        "cell-failed": links.cell_page(failed.cell_id),
        "cell-of-shard": links.any_cell_page(links.shard_name(DEMO, 0), cell.cell_id),
        "cells-of-shard": links.shard_page(links.shard_name(DEMO, 0)),
        "comparison": links.comparison_page(AGAIN),
        "compare": links.any_comparison_page(AGAIN, DEMO),
        "device": links.device_page(HOST),
        "trends": links.TRENDS,
        "failures": links.FAILURES,
        "published": links.PUBLISHED,
        "method": links.METHOD,
    }


MANUAL = {
    "home.png": ("home", 1280, 860),
    "home-phone.png": ("home", 360, 1500),
    "model.png": ("model", 1280, 1120),
    "compare.png": ("compare", 1280, 860),
}
"""The manual's pictures by file: page, width and height in px, from the top of the page."""


def main() -> int:
    """Build the site, take the pictures, print their folder."""
    folder = Path(sys.argv[1])
    farm = pictured_farm()
    archive.IN_FULL = sum(len(cells) for name, cells in farm.cell_lists.items() if name != OLDER)
    site = build_site(farm, folder / "site").parent
    found = pages(farm)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=list(QUIET))
        for width, scheme in SCREENS:
            page = _page(chromium, width, 900, scheme)
            for name, address in found.items():
                _open(page, site, address)
                page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
            page.close()
        for file, (name, width, height) in MANUAL.items():
            page = _page(chromium, width, height, "light")
            _open(page, site, found[name])
            path = folder / "manual" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=path)
            page.close()
            Image.open(path).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
                path, optimize=True
            )
        chromium.close()
    sys.stdout.write(f"{folder}\n")
    return 0


def _page(chromium: Browser, width: int, height: int, scheme: str) -> Page:
    return chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)


def _open(page: Page, site: Path, address: str) -> None:
    # An address that differs by its end alone would be no new page.
    page.goto("about:blank")
    page.goto(f"{site.as_uri()}/{address}")
    page.wait_for_selector("table.forest" if address.startswith(links.ANY_COMPARISON) else "h1")


if __name__ == "__main__":
    raise SystemExit(main())
