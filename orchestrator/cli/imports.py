"""`farm import`: results of other tools beside those of the farm."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import Json, open_farm
from orchestrator.farm.again.importing import Names
from orchestrator.results.format import counted


def import_results(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What another tool wrote.")],
    campaign: Annotated[
        str, typer.Option("--campaign", metavar="NAME", help="The campaign that they become.")
    ] = "imported",
    model_id: Annotated[
        str | None, typer.Option("--model-id", metavar="NAME", help="The model's name; else the file's.")
    ] = None,
    delegate: Annotated[
        str | None,
        typer.Option("--delegate", metavar="NAME", help="How it was run; else what the file says."),
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="NAME", help="What it ran on; else what the file says.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show results of other tools beside the farm's own.

    Reads what benchmark_model prints and its result file (--result_file_path), what litert-benchmark prints
    and its JSON, profiles of Qualcomm AI Hub, what LiteRT's evaluation tools print (Inference Diff, Top-k
    accuracies, mAP), and tables with the columns model, status and ms. They are flagged as imported in every
    form, with the tool and the SHA-256 of the file; they are never reused, and no verdict or budget judges by
    them. All files are imported, or none.

    Examples:
      farm import bench.log --device pixel-8
      farm import report.json profile.json --campaign phones
      farm import run1.log run2.log --model-id mobilenet_v2 --delegate gpu
      farm import compatibility.csv --device galaxy-s24 --delegate gpu
    """
    with open_farm() as farm:
        taken = farm.importing.take(files, campaign, Names(model_id, delegate, device))
    found = {"campaign_id": taken.campaign_id, "cells": taken.cells, "new": taken.is_new}
    before = "" if taken.is_new else "imported before: "
    count = counted(taken.cells, "cell")
    text = f"{before}campaign {taken.campaign_id}: {count}; farm results {taken.campaign_id}"
    return output.answer(found, text, as_json)
