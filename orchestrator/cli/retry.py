"""`farm retry`: put ended cells back in the queue."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.verb import Json, Ref, open_farm


def retry(
    ref: Ref,
    failed: Annotated[
        bool, typer.Option("--failed", help="Failed cells only, not those cancelled or without a device.")
    ] = False,
    suspect: Annotated[
        bool, typer.Option("--suspect", help="Measured cells whose result is suspect or invalid.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Queue failed, cancelled and deviceless cells again. A measured cell keeps its result meanwhile.

    Measured cells stay, but for those with a disturbed result under --suspect; to measure all of them again:
    farm submit --force. Without a lab, submit the campaign again to run them.
    """
    from orchestrator.cli import output

    with open_farm() as farm:
        count = farm.steering.retry(ref, failed_only=failed, suspect=suspect)
    text = f"{ref}: {output.cells(count)} queued again" if count else f"{ref}: no cell to retry"
    return output.answer({"ref": ref, "retried": count}, text, as_json)
