"""`farm model zoo`: the models that come with the farm."""

from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import OK, Json, open_farm
from orchestrator.results.format import NOTHING
from orchestrator.sources.published import PUBLISHED_NOTE, published_rows
from orchestrator.sources.zoo import zoo_models_like


def zoo(
    pattern: Annotated[str | None, typer.Argument(help="A part of a name, or a glob.")] = None,
    published: Annotated[
        bool, typer.Option("--published", help="LiteRT's published table beside this farm's newest results.")
    ] = False,
    as_json: Json = False,
) -> int:
    """List the models that come with the farm.

    Multiply-accumulates of one call, size of the restored file, licence and source. `zoo:NAME` is a model's
    source in a campaign file, and for farm submit.

    With `--published`, the table of LiteRT's documents instead: the share of each model that its delegate
    takes and the time on a Galaxy S24, beside the operators and the p50 of this farm's newest results.

    Examples:
      farm model zoo
      farm model zoo --published
      farm model zoo resnet
      farm model zoo 'hf_*' --json
    """
    if published:
        return _published(pattern or "*", as_json)
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


def _published(pattern: str, as_json: bool) -> int:
    with open_farm() as farm:
        cells = [
            one for campaign in farm.reading.campaigns() for one in farm.reading.cells(campaign.campaign_id)
        ]
    rows = [one for one in published_rows(cells) if pattern in one.model or fnmatchcase(one.model, pattern)]
    if as_json:
        output.emit_json({"note": PUBLISHED_NOTE, "rows": [asdict(row) for row in rows]})
        return OK
    lines = (
        (
            # What is published stands once, beside the first of the farm's own results.
            row.model if index == 0 else "",
            row.delegated if index == 0 else "",
            f"{row.ms:,.1f}" if index == 0 else "",
            *(("", NOTHING, "") if own is None else (own.column, own.p50, own.operators)),
        )
        for row in rows
        for index, own in enumerate(row.own or (None,))
    )
    output.table(("model", "theirs", "ms", "ours", "p50", "operators"), lines, right=("ms", "p50"))
    output.line(PUBLISHED_NOTE)
    return OK
