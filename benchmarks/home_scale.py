"""Times the home page of many models in Chromium, opened from the file system: opened, filtered, sorted, and
with another metric or baseline.

    .venv/bin/python -m benchmarks.home_scale [--rows 5000] [--rounds 5] [--out FILE]

Each time ends with the frame that shows what was asked for: of opening, the first one after the page is
loaded; the first choice of a metric reads what it shows. The marks for 5,000 rows are 1 s until it is open,
100 ms for a filter and 300 KB compressed.
"""

import gzip
import random
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from playwright.sync_api import Page, sync_playwright

from agent.wire.measurement import Measurement
from benchmarks.output import RESULTS, parser, write_figures
from orchestrator.results.records import CellRecord
from orchestrator.site import links
from orchestrator.site.build import build_site
from tests.end_to_end.conftest import QUIET
from tests.needs import browser
from tests.orchestrator.site.records import (
    HOST,
    NIGHT,
    POCL,
    HandMadeFarm,
    campaign,
    cell,
    measurement,
    processes,
)

_FILTERS = ("4", "42", "421", "", "model opencl", "")
"""As somebody types and clears; the shortest leave thousands of rows."""

# The callback runs before the frame is painted; a task that it queues, afterwards.
_FRAME = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"
"""The ms since the navigation began, after the next frame."""

_TYPED = f"""async word => {{
  const input = document.querySelector(".tools input"), begin = performance.now();
  input.value = word;
  input.dispatchEvent(new Event("input"));
  return await {_FRAME} - begin;
}}"""

_CHOSEN = f"""async ([label, value]) => {{
  const select = document.querySelector(`[aria-label='${{label}}']`), begin = performance.now();
  const table = document.querySelector("table.home");
  const redrawn = new Promise(done => table.addEventListener("redrawn", done, {{once: true}}));
  select.value = value;
  select.dispatchEvent(new Event("change"));
  await redrawn;
  return await {_FRAME} - begin;
}}"""

_SORTED = f"""async () => {{
  const begin = performance.now();
  document.querySelector("[aria-label='sort by p50, ms']").click();
  return await {_FRAME} - begin;
}}"""


def main() -> int:
    """Build a site, open it, filter and sort, print, write."""
    options = parser(__doc__, RESULTS / "home_scale.json")
    options.add_argument("--rows", type=int, default=5000)
    options.add_argument("--rounds", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm-home-") as folder:
        index = build_site(_farm(given.rows), Path(folder) / "site")
        size, chosen = (
            len(gzip.compress(one.read_bytes())) for one in (index, index.parent / links.choice(""))
        )
        took = _in_a_browser(index, given.rounds)
    figures = {"rows": given.rows, "home_gzip_bytes": size, "choices_gzip_bytes": chosen, **took}
    write_figures(given.out, figures)
    said = (f"{name} {median(ms):.0f} ms ({min(ms):.0f} to {max(ms):.0f})" for name, ms in took.items())
    sizes = f"{size / 1e3:.0f} KB compressed, and {chosen / 1e3:.0f} KB of choices"
    sys.stdout.write(f"{given.rows} rows, {sizes}: {', '.join(said)}\n")
    return 0


def _farm(models: int) -> HandMadeFarm:
    """Return a campaign of models that were each measured on two delegates, in times of their own."""
    names = tuple(f"model_{number:04}__static_int8" for number in range(models))
    sides = (("litert", HOST, 3.0), ("gpu", POCL, 2.0))
    made = [
        cell("large", "any", d, where, measurement=measurement(processes(d, p50, samples=30), d, 42))
        for d, where, p50 in sides
    ]
    factors = random.Random(7)  # noqa: S311  # figures of a drawing
    cells = tuple(
        replace(
            one,
            model=name,
            model_sha256=f"{number:064x}",
            cell_id=f"{one.delegate}-{number:06}",
            measurement=_longer(one, 1.0 + factors.random()),
        )
        for number, name in enumerate(names)
        for one in made
    )
    record = campaign("large", NIGHT, names, ("litert", "gpu"), "litert")
    return HandMadeFarm((record,), {record.campaign_id: cells})


def _longer(cell: CellRecord, factor: float) -> Measurement | None:
    """Return a cell's measurement with times longer by a factor, so that pages have as many digits as real
    ones.
    """
    if cell.measurement is None:
        return None
    times = cell.measurement.latency_ms
    low, high = times.ci95 or (0.0, 0.0)
    longer = {name: factor * getattr(times, name) for name in ("p50", "init", "first")}
    latency = times.model_copy(update={**longer, "ci95": (factor * low, factor * high)})
    return cell.measurement.model_copy(update={"latency_ms": latency})


def _in_a_browser(index: Path, rounds: int) -> Mapping[str, list[float]]:
    """Return the times in ms: each round opens the page anew."""
    took: dict[str, list[float]] = {
        "opened": [], "filtered": [], "sorted": [], "first_choice": [], "chosen": [], "filtered_then": [],
    }  # fmt: skip
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=list(QUIET))
        for _ in range(rounds):
            page = chromium.new_page(viewport={"width": 1280, "height": 900})
            page.goto(index.as_uri(), wait_until="load")
            took["opened"].append(_ms(page, _FRAME))
            took["filtered"] += [_ms(page, _TYPED, word) for word in _FILTERS]
            took["first_choice"].append(_ms(page, _CHOSEN, ["Metric", "init"]))
            took["chosen"].append(_ms(page, _CHOSEN, ["Baseline of the ratio", "litert"]))
            took["filtered_then"] += [_ms(page, _TYPED, word) for word in _FILTERS]
            # Back to the medians, by whose column the page is sorted next.
            page.evaluate(_CHOSEN, ["Metric", ""])
            took["sorted"].append(_ms(page, _SORTED))
            page.close()
        chromium.close()
    return took


def _ms(page: Page, script: str, argument: object = None) -> float:
    return float(page.evaluate(script, argument))


if __name__ == "__main__":
    raise SystemExit(main())
