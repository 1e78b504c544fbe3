"""`farm priority`: run a campaign or one cell before others, or after them."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.verb import Json, Ref, open_farm


def priority(
    ref: Ref,
    number: Annotated[int, typer.Argument(help="-100 to 100; higher runs first, 0 is the default.")],
    as_json: Json = False,
) -> int:
    """Run a campaign or one cell before others, or after them."""
    from orchestrator.cli import output

    with open_farm() as farm:
        count = farm.steering.prioritise(ref, number)
    text = f"{ref}: priority {number} for {output.cells(count)}"
    return output.answer({"ref": ref, "priority": number, "cells": count}, text, as_json)
