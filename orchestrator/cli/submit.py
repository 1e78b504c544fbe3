"""`farm submit`: measures what a campaign file asks for, or a single model."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.budgets import BudgetOption, JunitOption
from orchestrator.cli.verb import OK, Json, open_farm, settings

if TYPE_CHECKING:
    from orchestrator.config.lab import LabConfig
    from orchestrator.farm import Farm
    from orchestrator.farm.submission import Submitted
    from orchestrator.manifest import Campaign, InputOptions
    from orchestrator.policy.preview import Action, PlannedCell
    from orchestrator.sources import CheckedSources, StoredModel
    from orchestrator.sources.store import Store


_MODEL_SUFFIXES = {".tflite", ".skel"}
_CAMPAIGN_SUFFIXES = {".yaml", ".yml"}


def submit(
    file: Annotated[Path | None, typer.Argument(help="The campaign: a models.yaml.")] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option("--model", help="Measure this .tflite on all delegates, without YAML; may be repeated."),
    ] = None,
    input_range: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=LOW..HIGH", help="With --model: the range of an input."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="NAME=1,224,224,3", help="With --model: the shape of an input."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List every cell and what would be done; measure nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Measure again what could be reused.")] = False,
    delegate: Annotated[
        list[str] | None,
        typer.Option("--delegate", metavar="NAME", help="Only this delegate, kind or glob; may be repeated."),
    ] = None,
    only: Annotated[
        str, typer.Option("--only", metavar="GLOB", help="Models whose id matches, e.g. 'face_*'.")
    ] = "*",
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority", min=-100, max=100, help="Higher runs first; left out: the file's, else 0."
        ),
    ] = None,
    budget: BudgetOption = None,
    junit: JunitOption = None,
    as_json: Json = False,
) -> int:
    """Measure what a campaign file asks for, and compare.

    Finished cells of earlier submissions are reused. Ctrl-C keeps what is finished, and the
    same command continues.
    Exit code: 0 all well, 1 some cells failed, gave wrong output or were cancelled, 3 a budget is exceeded.
    """
    from orchestrator.cli import budgets as budgets_of
    from orchestrator.cli import output
    from orchestrator.cli.outcome import end_of_campaign
    from orchestrator.cli.stopping import StoppedError, same_command, stoppable
    from orchestrator.endpoint.client import upload
    from orchestrator.farm.database_wait import DatabaseWait
    from orchestrator.manifest import InputOptions
    from orchestrator.sources.store import Store

    inputs = InputOptions(input_range or [], shape or [])
    campaign, checked = _asked(file, model or [], inputs, delegate or [], only)
    budgets = budgets_of.read([*campaign.budgets, *(budget or [])])
    if priority is not None:
        campaign = replace(campaign, priority=priority)
    with open_farm() as farm:
        store = Store(farm.home.store, farm.lab.limits.artifact_bytes, farm.lab.limits)
        # Until the campaign names its files in the database, `farm db prune` must not delete them.
        with store.in_use():
            campaign, models = _stored(campaign, checked, store, farm.lab)
            plan = farm.submission.plan(campaign, models, force=force)
            if dry_run:
                return _show_plan(plan.cells, as_json)
            upload(farm.home, farm.lab, farm.database, _files(campaign, models), output.note)
            submitted = farm.submission.submit(plan)
        campaign_id = submitted.campaign_id
        output.note(f"campaign {campaign_id}: {_summary(plan.cells)}")
        try:
            with stoppable():
                _run(farm, submitted)
        except StoppedError as stop:
            output.note("stopped; finished cells are kept. Continue with:")
            output.note(f"  {same_command(sys.argv, os.environ)}")
            return stop.exit_code
        wait = DatabaseWait(output.note)
        ended = wait(lambda: (farm.reading.campaign(campaign_id), farm.reading.cells(campaign_id)))
        exit_code = end_of_campaign(*ended, as_json)
        return budgets_of.conclude(campaign.name, ended[1], budgets, junit, exit_code)


def _asked(
    file: Path | None, models: Sequence[Path], inputs: InputOptions, delegates: Sequence[str], only: str
) -> tuple[Campaign, CheckedSources]:
    """The campaign and its sources, checked before anything is stored."""
    from orchestrator.errors import UsageError
    from orchestrator.manifest import Wanted, campaign_for_models, load_manifest, narrow, require_samples_fit
    from orchestrator.sources import check_all

    specs = inputs.specs()
    if file is not None and not models:
        if file.suffix in _MODEL_SUFFIXES:
            raise UsageError(f"{file} is a model; measure it alone with: farm submit --model {file}")
        if specs:
            raise UsageError(f"--input and --shape go with --model; {file} describes inputs under 'inputs'")
        campaign, folder = load_manifest(file), file.parent
    elif models and file is None:
        for model in models:
            if model.suffix in _CAMPAIGN_SUFFIXES:
                raise UsageError(f"{model} is a campaign file; it goes without --model: farm submit {model}")
        # Each source is an absolute path, so the folder matters to none of them.
        campaign, folder = campaign_for_models(models, Wanted(inputs=specs)), models[0].parent
    else:
        raise UsageError(
            "give a campaign file or one model: farm submit models.yaml, farm submit --model my.tflite"
        )
    campaign = narrow(campaign, delegates, only)
    _, lab = settings()
    require_samples_fit(campaign, lab)
    name = None if file is None else str(file)
    return campaign, check_all(campaign.models, folder, name, lab.limits.artifact_bytes)


def _stored(
    campaign: Campaign, checked: CheckedSources, store: Store, lab: LabConfig
) -> tuple[Campaign, tuple[StoredModel, ...]]:
    """The campaign's models and labelled data in the store. Raises `FarmError` where its budget is used."""
    from orchestrator.cli import output
    from orchestrator.config.limits import require_budget
    from orchestrator.sources import Web, resolve_all
    from orchestrator.sources.datasets import with_data

    require_budget(store.root, lab.limits)
    web = Web(lab.allow_private, lab.npm_registry)
    models = resolve_all(checked, store, output.note, web)
    for model in models:
        if model.problem:
            output.note(f"warning: {model.id}: not a usable .tflite, its cells will fail: {model.problem}")
    return with_data(campaign, checked, store, output.note, web), models


def _files(campaign: Campaign, models: Sequence[StoredModel]) -> list[str]:
    """Every file of a submission, by its sha256."""
    data = [model.plan.labelled.sha256 for model in campaign.models if model.plan.labelled is not None]
    return [model.sha256 for model in models] + data


def _run(farm: Farm, submitted: Submitted) -> None:
    from orchestrator.cli.output import StatusLine
    from orchestrator.cli.progress import Progress
    from orchestrator.farm.database_wait import DatabaseWait

    with StatusLine() as status:
        farm.running.run(submitted, Progress(status), DatabaseWait(status.event))


def _show_plan(plan: Sequence[PlannedCell], as_json: bool) -> int:
    from orchestrator.cli import output

    if as_json:
        output.emit_json([_plan_json(cell) for cell in plan])
        return OK
    columns = [output.Column(name) for name in ("model", "delegate", "device", "action", "why")]
    columns.insert(4, output.Column("eta", "right"))
    output.table(
        columns,
        [
            (c.model, c.delegate, c.device, c.action, _seconds(c.eta_s) if c.eta_s else "", c.why)
            for c in plan
        ],
    )
    output.line(_summary(plan))
    return OK


def _plan_json(cell: PlannedCell) -> dict[str, object]:
    return {
        "model": cell.model,
        "delegate": cell.delegate,
        "device": cell.device,
        "level": cell.level,
        "action": cell.action,
        "why": cell.why,
        "changed": [
            {"field": field.name, "before": field.before, "after": field.after} for field in cell.changed
        ],
        "eta_s": cell.eta_s,
        "reused_from": cell.reused_from,
    }


def _summary(plan: Sequence[PlannedCell]) -> str:
    """`27 cells: 18 to run (about 4 min), 9 reused`."""
    counts = Counter(cell.action for cell in plan)
    words: dict[Action, str] = {
        "run": "to run",
        "reuse": "reused",
        "no_device": "without a device",
        "excluded": "excluded",
    }
    parts = [f"{counts[action]} {word}" for action, word in words.items() if counts[action]]
    if counts["run"]:
        parts[0] += f" (about {_seconds(sum(cell.eta_s for cell in plan))})"
    return f"{len(plan)} cell{'' if len(plan) == 1 else 's'}: {', '.join(parts)}"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 100 else f"{value / 60:.0f} min"
