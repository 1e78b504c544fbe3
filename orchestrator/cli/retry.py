"""`farm retry`: put ended cells back in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.verb import Json, Ref, open_farm

if TYPE_CHECKING:
    from runtime.common.verdict import Grade


def retry(
    ref: Ref,
    failed: Annotated[
        bool, typer.Option("--failed", help="Failed cells only, not those cancelled or without a device.")
    ] = False,
    void: Annotated[bool, typer.Option("--void", help="Measured cells whose result is void.")] = False,
    noisy: Annotated[bool, typer.Option("--noisy", help="Measured cells whose result is noisy.")] = False,
    as_json: Json = False,
) -> int:
    """Queue failed, cancelled and deviceless cells again.

    Measured cells stay, but for those of a grade that --void or --noisy names; to measure all of them again:
    farm submit --force. Without a lab, submit the campaign again to run them.
    """
    from orchestrator.cli import output

    asked: tuple[tuple[Grade, bool], ...] = (("void", void), ("noisy", noisy))
    grades = tuple(grade for grade, wanted in asked if wanted)

    with open_farm() as farm:
        count = farm.steering.retry(ref, failed_only=failed, grades=grades)
    text = f"{ref}: {output.cells(count)} queued again" if count else f"{ref}: no cell to retry"
    return output.answer({"ref": ref, "retried": count}, text, as_json)
