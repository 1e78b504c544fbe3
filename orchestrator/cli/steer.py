"""`farm cancel`, `farm retry` and `farm queue`: steer what a campaign still has to measure."""

from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import CampaignRef, Json, Ref, open_farm
from orchestrator.results.format import counted
from runtime.common.verdict import Grade


def cancel(ref: Ref, as_json: Json = False) -> int:
    """Cancel a campaign or one cell, running or not.

    Finished cells stay, and so do the results of cells that are measured again. A cell under way is done with
    the blocks that it has finished; farm refine, or the next farm submit, adds to them.

    Examples:
      farm cancel demo
    """
    with open_farm() as farm:
        count = farm.steering.cancel(ref)
    ended = "" if count else "; all have ended already"
    return output.answer(
        {"ref": ref, "cancelled": count}, f"{ref}: {counted(count, 'cell')} cancelled{ended}", as_json
    )


def pause(ref: CampaignRef, as_json: Json = False) -> int:
    """Start no more cells of a campaign; running ones finish.

    Examples:
      farm queue pause nightly
    """
    return _pause(ref, True, as_json)


def resume(ref: CampaignRef, as_json: Json = False) -> int:
    """Continue a paused campaign.

    Examples:
      farm queue resume nightly
    """
    return _pause(ref, False, as_json)


def _pause(ref: str, paused: bool, as_json: bool) -> int:
    with open_farm() as farm:
        count = farm.steering.pause(ref) if paused else farm.steering.resume(ref)
    text = f"{ref} {'is paused' if paused else 'continues'}; {counted(count, 'cell')} wait"
    return output.answer({"ref": ref, "paused": paused, "waiting": count}, text, as_json)


def retry(
    ref: Ref,
    failed: Annotated[
        bool, typer.Option("--failed", help="Failed cells only, not those cancelled or without a device.")
    ] = False,
    void: Annotated[bool, typer.Option("--void", help="Measured cells whose result is void.")] = False,
    noisy: Annotated[bool, typer.Option("--noisy", help="Measured cells whose result is noisy.")] = False,
    as_json: Json = False,
) -> int:
    """Queue failed, cancelled and deviceless cells again. A measured cell keeps its result meanwhile.

    Measured cells stay, but for those of a grade that --void or --noisy names; to measure all of them again:
    farm submit --force. Without a lab, submit the campaign again to run them.

    Examples:
      farm retry nightly
      farm retry nightly --failed
      farm retry 3f2a
    """
    asked: tuple[tuple[Grade, bool], ...] = (("void", void), ("noisy", noisy))
    grades = tuple(grade for grade, wanted in asked if wanted)

    with open_farm() as farm:
        count = farm.steering.retry(ref, failed_only=failed, grades=grades)
    text = f"{ref}: {counted(count, 'cell')} queued again" if count else f"{ref}: no cell to retry"
    return output.answer({"ref": ref, "retried": count}, text, as_json)


def priority(
    ref: Ref,
    number: Annotated[int, typer.Argument(help="-100 to 100; higher runs first, 0 is the default.")],
    as_json: Json = False,
) -> int:
    """Run a campaign or one cell before others, or after them.

    Examples:
      farm queue priority nightly 10
      farm queue priority 3f2a -- -5
    """
    with open_farm() as farm:
        count = farm.steering.prioritise(ref, number)
    text = f"{ref}: priority {number} for {counted(count, 'cell')}"
    return output.answer({"ref": ref, "priority": number, "cells": count}, text, as_json)


VERBS = {"pause": pause, "resume": resume, "priority": priority}
