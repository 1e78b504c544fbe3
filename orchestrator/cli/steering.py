"""`farm pause`, `resume`, `retry`, `priority`: to have it otherwise."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.verb import OK, Json, open_farm

Campaign = Annotated[str, typer.Argument(help="A campaign: its id, the beginning of it, or its name.")]
Ref = Annotated[str, typer.Argument(help="A campaign or cell: its id, or the beginning of it.")]


def pause(ref: Campaign, as_json: Json = False) -> int:
    """Let nothing more of a campaign start; what runs goes on."""
    with open_farm() as farm:
        count = farm.operations.pause(ref)
    return _tell(
        {"ref": ref, "paused": True, "waiting": count}, f"{ref} is paused; {_cells(count)} wait", as_json
    )


def resume(ref: Campaign, as_json: Json = False) -> int:
    """Let a paused campaign go on."""
    with open_farm() as farm:
        count = farm.operations.resume(ref)
    return _tell(
        {"ref": ref, "paused": False, "waiting": count}, f"{ref} goes on; {_cells(count)} wait", as_json
    )


def retry(
    ref: Ref,
    failed: Annotated[
        bool, typer.Option("--failed", help="Failed cells only, not those cancelled or without a device.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Put failed, cancelled and deviceless cells back in line.

    Measured cells stay; to measure them again: farm submit --force. Without a lab, submit the campaign again
    to run them.
    """
    with open_farm() as farm:
        count = farm.operations.retry(ref, failed_only=failed)
    text = f"{ref}: {_cells(count)} back in line" if count else f"{ref}: no cell to try again"
    return _tell({"ref": ref, "retried": count}, text, as_json)


def priority(
    ref: Ref,
    number: Annotated[int, typer.Argument(help="-100 to 100; higher goes first, 0 is usual.")],
    as_json: Json = False,
) -> int:
    """Let a campaign or one cell go before others, or after them."""
    with open_farm() as farm:
        count = farm.operations.prioritise(ref, number)
    text = f"{ref}: priority {number} for {_cells(count)}"
    return _tell({"ref": ref, "priority": number, "cells": count}, text, as_json)


def _tell(value: dict[str, object], text: str, as_json: bool) -> int:
    from orchestrator.cli import output

    if as_json:
        output.emit_json(value)
    else:
        output.line(text)
    return OK


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
