"""`farm zoo`: the models that come with the farm."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import OK, Json
from orchestrator.sources.zoo import zoo_models_like


def zoo(
    pattern: Annotated[str | None, typer.Argument(help="A part of a name, or a glob.")] = None,
    as_json: Json = False,
) -> int:
    """List the models that come with the farm.

    Multiply-accumulates of one call, size of the restored file, licence and source. `zoo:NAME` is a model's
    source in a campaign file, and for farm submit.

    Examples:
      farm zoo
      farm zoo resnet
      farm zoo 'hf_*' --json
    """
    found = zoo_models_like(pattern)
    if as_json:
        told = ("name", "macs", "size_bytes", "sha256", "licence", "source")
        output.emit_json({"models": [{name: getattr(one, name) for name in told} for one in found]})
        return OK
    rows = (
        (f"zoo:{one.name}", f"{one.macs / 1e6:,.0f}", f"{one.size_bytes / 1e6:,.1f}", one.licence, one.source)
        for one in found
    )
    output.table(("model", "MMACs", "MB", "licence", "source"), rows, right=("MMACs", "MB"))
    return OK
