"""`farm site build`: the results as pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import Json, open_farm
from orchestrator.config.home import FarmHome


def build(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder to write; left out: site/ under $FARM_HOME.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Build the static site of everything measured; it opens from file:// without a server.

    Examples:
      farm site build
      farm site build --out public
    """
    from orchestrator.site.build import build_site  # noqa: PLC0415  # jinja2, which no help needs

    with open_farm() as farm:
        index = build_site(farm.reading, out or FarmHome.from_environment().site)
    return output.answer({"site": str(index)}, f"site: {index.absolute().as_uri()}", as_json)


VERBS = {"build": build}
