"""Measures what a larger batch, a larger image and a second thread cost, and draws it: `gpu` beside XNNPACK.

    python -m benchmarks.sizes [--threads 1 2] [--out JSON] [option of `farm submit` ...]

Submits `benchmarks/sizes.yaml` (`benchmarks.campaign`, which says how), in which MODEL_BxS is a network at
batch B with images of S pixels a side. Writes results/sizes.{json,md,svg}. The machine must run nothing else.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment

from benchmarks import output
from benchmarks.campaign import run_and_report
from orchestrator.site.axes import log_scale, px

CAMPAIGN: Final = output.REPOSITORY / "benchmarks/sizes.yaml"

_MODEL: Final = re.compile(r"(?P<network>.+)_(?P<batch>\d+)x(?P<side>\d+)")
_SIDE: Final = 224
"""Pixels a side of the images of which a batch consists: what the networks were trained for."""

_TEMPLATE: Final = output.REPOSITORY / "benchmarks/sizes.svg.j2"

_WIDTH, _HEIGHT, _LEFT, _LOW = 380, 260, 46, 220
"""Px of a panel, and where its axes lie; the viewer scales the whole drawing."""

_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
"""Told apart by readers of any colour vision (Okabe and Ito, 2008)."""


class Point(NamedTuple):
    """One cell of the campaign: milliseconds of one image, and the lines that it lies on."""

    network: str
    batch: int
    side: int
    line: str
    ms: float


def main() -> int:
    """Measure, write the report, and draw it."""
    parser = output.parser(__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of both delegates")
    args, options = parser.parse_known_args()
    report = run_and_report(CAMPAIGN, args.threads, args.out, options)
    written: Path = args.out or output.RESULTS / "sizes.json"
    drawn = written.with_suffix(".svg")
    drawn.write_text(drawing(points_of(report["rows"])), encoding="utf-8")
    # Behind the page that `run_and_report` has written.
    with written.with_suffix(".md").open("a", encoding="utf-8") as page:
        page.write(f"\n![Milliseconds of an image over batch and pixels a side]({drawn.name})\n")
    return 0


def points_of(rows: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Return what can be drawn: the cells that were measured."""
    points = []
    for row in rows:
        named = _MODEL.fullmatch(row["model"])
        if named is not None and row["p50_ms"]:
            batch, threads = int(named["batch"]), row["threads"]
            line = f"{row['delegate']}, {threads} thread{'s' * (threads > 1)}"
            points.append(Point(named["network"], batch, int(named["side"]), line, row["p50_ms"] / batch))
    return points


def drawing(points: Sequence[Point]) -> str:
    """Return an SVG: for each network a panel over batches and one over images, both axes by logarithm.

    Raises `ValueError` where nothing was measured.
    """
    if not points:
        raise ValueError("no cell of the campaign was measured: there is nothing to draw")
    colours = dict(zip(sorted({point.line for point in points}), cycle(_COLOURS), strict=False))
    networks = sorted({point.network for point in points})
    panels = []
    for down, network in enumerate(networks):
        of_network = [point for point in points if point.network == network]
        batches = [(point.batch, point) for point in of_network if point.side == _SIDE]
        images = [(point.side, point) for point in of_network if point.batch == 1]
        for across, (axis, chosen) in enumerate((("batch", batches), ("pixels a side", images))):
            place = {"left": across * _WIDTH, "top": down * _HEIGHT}
            panels.append(
                place | _panel(chosen, colours) | {"title": f"{network}: ms of an image over {axis}"}
            )
    template = Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    sizes = {"width": _WIDTH, "height": _HEIGHT, "left": _LEFT, "low": _LOW, "rows": len(networks)}
    legend = [(colour, line) for line, colour in colours.items()]
    return template.render(sizes, panels=panels, legend=legend) + "\n"


def _panel(chosen: Sequence[tuple[int, Point]], colours: Mapping[str, str]) -> dict[str, Any]:
    """Return the parts of one panel: `chosen` are places on the lower axis, and what was measured there."""
    across = log_scale([place for place, _ in chosen], _LEFT, _WIDTH - 12, least_factor=2)
    upwards = log_scale([point.ms for _, point in chosen], _LOW, 26, least_factor=2)
    lines = []
    for line, colour in colours.items():
        places = sorted((place, point.ms) for place, point in chosen if point.line == line)
        lines.append((colour, [(px(across(place)), px(upwards(ms))) for place, ms in places]))
    below = [(px(across(place)), place) for place in sorted({place for place, _ in chosen})]
    return {"below": below, "ticks": upwards.ticks(), "lines": lines}


if __name__ == "__main__":
    sys.exit(main())
