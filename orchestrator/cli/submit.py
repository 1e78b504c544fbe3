"""`farm submit`: measures models, or what a campaign file asks for."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import budgets as budgets_of
from orchestrator.cli import changes, output
from orchestrator.cli.campaign_file import report_check, report_schema
from orchestrator.cli.outcome import end_of_campaign
from orchestrator.cli.progress import further_blocks, measure
from orchestrator.cli.stopping import stoppable
from orchestrator.cli.verb import OK, Json, Verbose, open_farm, settings
from orchestrator.errors import UsageError
from orchestrator.farm.conducting import planned, read_campaign
from orchestrator.farm.submit.explaining import Explanation, explanations
from orchestrator.farm.submit.notification import Notifier, message
from orchestrator.manifest.bare import DEFAULT_LEVEL, InputOptions, Wanted, campaign_for_models, check_name
from orchestrator.manifest.campaign import Campaign, ModelEntry, Notify, narrow
from orchestrator.manifest.labels import read_labels
from orchestrator.manifest.load import load_manifest
from orchestrator.manifest.plans import require_samples_fit
from orchestrator.manifest.problems import Problem
from orchestrator.policy.preview import Action, CellPreview
from orchestrator.results.budgets import judge_budgets
from orchestrator.results.format import counted
from orchestrator.sources.named import campaign_name, models_named
from orchestrator.sources.resolve import CheckedSources, check_all, problems_of


def submit(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODELS.YAML|MODEL...",
            help="A campaign file; or models: files, folders, globs, zoo:NAME, https: and the like.",
        ),
    ] = None,
    model: Annotated[list[str] | None, typer.Option("--model", hidden=True)] = None,
    input_range: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=LOW..HIGH", help="Of one model: the range of an input."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="NAME=1,224,224,3", help="Of one model: the shape of an input."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Of models: as --option threads=N.", metavar="N")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", metavar="NAME=VALUE", help="Of models: an option of the delegates that take it."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Of models: what their campaign is called.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List every cell and what would be done; measure nothing.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Check the file or the models offline, with line and column of each mistake."
        ),
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="List the keys of models.yaml; with --json: its JSON Schema.")
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="With --dry-run: how many operators each delegate takes here, why not all, and advice.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Measure again what could be reused.")] = False,
    delegate: Annotated[
        list[str] | None,
        typer.Option("--delegate", metavar="NAME", help="Only this delegate, kind or glob; may be repeated."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", "--model-id", metavar="GLOB", help="Models whose id matches, e.g. 'face_*'; repeatable."
        ),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device", metavar="GLOB", help="Only devices whose id or name matches; may be repeated."
        ),
    ] = None,
    level: Annotated[
        str | None, typer.Option("--level", help="quick, standard or publish, in place of the file's level.")
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority", min=-100, max=100, help="A higher one runs first; by default the file's, else 0."
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="WORD|NAME=VALUE", help="Kept on the campaign; may be repeated."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Submit and end at once; the lab measures.")
    ] = False,
    budget: budgets_of.BudgetOption = None,
    junit: budgets_of.JunitOption = None,
    verbose: Verbose = False,
    undecided: budgets_of.UndecidedOption = budgets_of.Undecided.FAIL,
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify",
            metavar="URL",
            help="Send a message to this https address at the end, signed with FARM_NOTIFY_SECRET.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure models, or what a campaign file asks for, and compare.

    Models without a file are measured at the level quick, on cpu, gpu and litert or on those of --delegate.
    Results of earlier submissions are reused, but for void ones (docs/measuring.md). Ctrl-C keeps what is
    finished, of a cell under way its blocks, and the same command continues from there; a second one ends at
    once; a lab goes on measuring. Cells of which a budget is open get further blocks, once.
    Exit code: 0 all well; 1 some cells failed, gave wrong output or were cancelled; 2 not valid; 3 a budget
    is exceeded; 5 a budget is undecided.

    Examples:
      farm submit models.yaml
      farm submit --check models.yaml
      farm submit --schema --json > models.schema.json
      farm submit models.yaml --dry-run
      farm submit models.yaml --dry-run --explain
      farm submit my.tflite
      farm submit 'models/*.tflite' zoo:torchvision_resnet18 --delegate gpu --delegate litert --threads 2
    """
    if schema:
        return report_schema(as_json)
    if explain and not dry_run:
        raise UsageError("--explain goes with --dry-run; a result has its delegation and advice: farm show")
    bare = _Bare(InputOptions(input_range or [], shape or []), threads, option or [], name)
    part = _Part(delegate or [], only or [], device or [], level)
    wanted = partial(_asked, [*(words or ()), *(model or ())], bare, part)
    if check:
        return report_check(lambda: wanted()[0], " ".join(words or model or ()), as_json)
    campaign, checked = wanted()
    budgets = budgets_of.read([*campaign.budgets, *(budget or [])], campaign.against)
    told = _notified(campaign, notify, detach)
    if priority is not None:
        campaign = replace(campaign, priority=priority)
    if label:
        campaign = replace(campaign, labels={**campaign.labels, **read_labels(label)})
    with open_farm() as farm:
        if detach and not farm.schedules_elsewhere:
            raise UsageError("--detach is for a lab: a farm of one machine measures while farm submit runs")
        # Before this one is stored, and is the newest of its name.
        before = changes.earlier_of(farm, campaign)
        with planned(farm, campaign, checked, output.note, force=force) as plan:
            if dry_run:
                farm.close()  # with what it keeps for a campaign: the explanations take minutes
                asked = campaign.delegates if explain else ()
                found = explanations(farm.home.store, plan.models, asked, output.note)
                return _show_plan(plan.preview, found, as_json)
            submitted = plan.submit()
        campaign_id = submitted.campaign_id
        output.note(f"campaign {campaign_id}: {_summary(plan.preview)}")
        if detach:
            return _detached(campaign_id, as_json)
        # From here on: a time budget is for measuring, not for fetching and planning.
        began_s = time.monotonic()
        measure(farm, submitted)
        with stoppable():
            more = further_blocks(farm, campaign_id)
            if campaign.time_budget_s is not None:
                more.spend(began_s + campaign.time_budget_s - time.monotonic())
            more.decide(budgets)
        ended = read_campaign(farm, campaign_id, output.note)
        exit_code = end_of_campaign(*ended, as_json, verbose=verbose)
        earlier = changes.compared_with(farm, before, ended[1], as_json)
        exit_code = budgets_of.conclude(
            campaign.name, ended[1], budgets, junit, exit_code, earlier, undecided
        )
        if told is not None:
            judged = judge_budgets(ended[1], budgets, earlier)
            _tell(told, message(*ended, judged, earlier, exit_code, told.notify.link))
        return exit_code


def _notified(campaign: Campaign, url: str | None, detach: bool) -> Notifier | None:
    """Who is told of the end; None: nobody. Raises `UsageError`."""
    link = None if campaign.notify is None else campaign.notify.link
    asked = campaign.notify if url is None else Notify(url, link)
    if asked is not None and detach:
        raise UsageError("--detach ends before the campaign does, so that nothing could notify; leave it out")
    return None if asked is None else Notifier.of(asked, by_file=url is None)


def _tell(told: Notifier, body: bytes) -> None:
    why = told.send(body)
    if why is None:
        output.note(f"notified {told.receiver}")
    else:
        output.note(f"warning: {told.receiver} was not notified: {why}; the campaign is not affected")


def _detached(campaign_id: str, as_json: bool) -> int:
    text = f"farm status --watch {campaign_id} watches it, farm results {campaign_id} shows its results"
    return output.answer({"campaign_id": campaign_id}, text, as_json)


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a campaign to measure, by the options; `level`: in place of its own."""

    delegates: Sequence[str]
    models: Sequence[str]
    devices: Sequence[str]
    level: str | None


@dataclass(frozen=True, slots=True)
class _Bare:
    """The settings of models without a file, by the options."""

    inputs: InputOptions
    threads: int | None
    options: Sequence[str]
    name: str | None

    def wanted(self, part: _Part, name: str) -> Wanted:
        """Return the request, named `name` where no option names it. Raises `UsageError`."""
        threads = [] if self.threads is None else [f"threads={self.threads}"]
        options = {}
        for text in (*self.options, *threads):
            option, equals, value = text.partition("=")
            if not equals or not option or option in options:
                raise UsageError(f"--option {text}: expected NAME=VALUE, each name once")
            options[option] = value
        if self.name is not None:
            check_name(self.name)
        return Wanted(
            level=part.level or DEFAULT_LEVEL,
            delegates=part.delegates,
            inputs=self.inputs.specs(),
            options=options,
            name=self.name or name,
        )

    def require_none(self, file: str) -> None:
        """Raise `UsageError` where something is said that a campaign file says itself."""
        said = (self.inputs.ranges, self.inputs.shapes, self.options, self.name)
        if any(said) or self.threads is not None:
            raise UsageError(
                f"--input, --shape, --threads, --option and --name go with models; {file} says these itself"
            )


def _asked(words: Sequence[str], bare: _Bare, part: _Part) -> tuple[Campaign, CheckedSources]:
    """Return the campaign and its sources, checked before anything is stored."""
    _, lab = settings()
    most_bytes = lab.limits.artifact_bytes
    if not words:
        raise UsageError("give a campaign file or models: farm submit models.yaml, farm submit my.tflite")
    if len(words) == 1 and words[0].endswith((".yaml", ".yml")):
        (name,), folder = words, Path(words[0]).parent
        bare.require_none(name)
        campaign = load_manifest(Path(name), part.level, partial(_problems, part, folder, most_bytes))
        campaign = narrow(campaign, part.delegates, part.models, part.devices)
    else:
        sources, name, folder = models_named(words), None, Path()
        wanted = bare.wanted(part, campaign_name(words, [*sources]))
        campaign = narrow(campaign_for_models(sources, wanted), (), part.models, part.devices)
    require_samples_fit(campaign, lab)
    return campaign, check_all(campaign.models, folder, name, most_bytes)


def _problems(part: _Part, folder: Path, most_bytes: int, entries: Sequence[ModelEntry]) -> Sequence[Problem]:
    """Return the mistakes in the sources of the chosen models; the others are not fetched."""
    chosen = (e for e in entries if not part.models or any(fnmatchcase(e.id, glob) for glob in part.models))
    return problems_of(chosen, folder, most_bytes)


def _show_plan(plan: Sequence[CellPreview], told: Sequence[Explanation], as_json: bool) -> int:
    if as_json:
        found = {(one.model, one.delegate): one.found.model_dump(mode="json") for one in told}
        output.emit_json(
            [_plan_json(c) | ({"explained": found.get((c.model, c.delegate))} if told else {}) for c in plan]
        )
        return OK
    output.table(
        ("model", "delegate", "device", "action", "eta", "why"),
        [
            (c.model, c.delegate, c.device, c.action, _seconds(c.eta_s) if c.eta_s else "", c.why)
            for c in plan
        ],
        right=("eta",),
    )
    output.line(_summary(plan))
    for line in (line for one in told for line in one.lines()):
        output.line(line)
    return OK


def _plan_json(cell: CellPreview) -> dict[str, object]:
    changed = [{"field": one.name, "before": one.before, "after": one.after} for one in cell.changed]
    return asdict(cell) | {"changed": changed}


def _summary(plan: Sequence[CellPreview]) -> str:
    """`27 cells: 18 to run (about 4 min), 9 reused`."""
    counts = Counter(cell.action for cell in plan)
    words: dict[Action, str] = {
        "run": "to run",
        "reuse": "reused",
        "no_device": "without a device",
        "no_model": "without a model",
        "excluded": "excluded",
    }
    parts = [f"{counts[action]} {word}" for action, word in words.items() if counts[action]]
    if counts["run"]:
        # `run` is the first of the words, and so of the parts.
        parts[0] += f" (about {_seconds(sum(cell.eta_s for cell in plan))})"
    return f"{counted(len(plan), 'cell')}: {', '.join(parts)}"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 100 else f"{value / 60:.0f} min"
