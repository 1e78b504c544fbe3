"""`farm compare`: what changed between two runs, or between delegates, devices or models of one."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer
import yaml

from orchestrator.cli import changes, output
from orchestrator.cli.budgets import Undecided, UndecidedOption
from orchestrator.cli.progress import measure
from orchestrator.cli.verb import OK, REGRESSION, UNDECIDED, CampaignRef, Json, open_farm
from orchestrator.config.collector import collector_paused
from orchestrator.errors import UsageError
from orchestrator.farm.again.rerunning import Keyed as Records
from orchestrator.farm.again.rerunning import LeftOut, plan_rerun
from orchestrator.farm.conducting import read_campaign, submit_document
from orchestrator.farm.remote.farm import AnyFarm
from orchestrator.manifest.problems import suggestion
from orchestrator.results.format import counted
from orchestrator.results.records import CampaignRecord, CellRecord, ComparedCell
from orchestrator.results.regression import Names, Report, by_names, compare_runs
from orchestrator.results.speedups import Partners
from orchestrator.sources.store import Store


@dataclass(frozen=True, slots=True)
class Rerun:
    """A comparison measured anew: its two sides, their campaigns, and the cells left out. `gone`: fields of
    the environment that differed when the sides were measured first, and are the same now.
    """

    sides: tuple[Records, Records]
    campaigns: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    gone: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return the lines below the table: the campaigns, and each reason once with its count."""
        named = ", ".join(self.campaigns)
        lines = [f"measured anew by blocks in {named}: farm results {self.campaigns[0]}"]
        if self.gone:
            lines.append(f"both sides with what is installed now; not brought back: {', '.join(self.gone)}")
        reasons = Counter(one.why for one in self.left_out)
        # Reversed, so that the first one of each reason is its example.
        examples = {one.why: " ".join(one.key) for one in reversed(self.left_out)}
        for why, count in reasons.items():
            more = "" if count == 1 else f" and {count - 1} more"
            lines.append(f"not measured anew: {examples[why]}{more}: {why}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return the same for scripts."""
        return {"campaigns": self.campaigns, "left_out": self.left_out, "not_brought_back": self.gone}


def measured_anew(farm: AnyFarm, first: Records, second: Records, names: Names) -> Rerun:
    """Measure every pair that can be; `names`: what the sides are called.

    Raises `UsageError` where none can, `StoppedError` after Ctrl-C.
    """
    planned, left_out = plan_rerun(first, second, farm.devices.hello(), Store(farm.home.store), names)
    if not planned:
        example = left_out[0] if left_out else None
        why = "there are no cells" if example is None else f"{' '.join(example.key)}: {example.why}"
        more = "" if len(left_out) < 2 else f" (and {len(left_out) - 1} more)"
        raise UsageError(f"--rerun: no cell can be measured anew; {why}{more}")
    before: dict[tuple[str, ...], CellRecord] = {}
    after: dict[tuple[str, ...], CellRecord] = {}
    campaigns = []
    for one in planned:
        text = yaml.safe_dump(dict(one.document), sort_keys=False, allow_unicode=True)
        submitted = submit_document(farm, text, "the campaign of --rerun", output.note)
        output.note(
            f"campaign {submitted.campaign_id}: {counted(2 * len(one.keys), 'cell')}, "
            f"{one.second} over {one.first} by blocks"
        )
        measure(farm, submitted)
        sides = one.sides(read_campaign(farm, submitted.campaign_id, output.note)[1])
        before |= sides[0]
        after |= sides[1]
        campaigns.append(submitted.campaign_id)
    return Rerun((before, after), tuple(campaigns), left_out, _gone(first, second, before))


def _gone(first: Records, second: Records, measured: Records) -> tuple[str, ...]:
    pairs = ((first[key], second[key]) for key in measured)
    # Two delegates differ in their own packages, which are both there again.
    there = ((a.environment, b.environment) for a, b in pairs if a.delegate_kind == b.delegate_kind)
    return tuple(
        sorted({name for a, b in there for name in a.keys() | b.keys() if a.get(name) != b.get(name)})
    )


_Cell = TypeVar("_Cell", bound="ComparedCell")


class By(StrEnum):
    """The field in which the two sides of a comparison within one campaign differ."""

    DEVICE = "device"
    DELEGATE = "delegate"
    MODEL = "model"


class Form(StrEnum):
    """The forms in which a comparison is written."""

    TABLE = "table"
    JSON = "json"
    MD = "md"


class FailOn(StrEnum):
    """The condition that ends the command with exit code 3."""

    NOTHING = "nothing"
    REGRESSION = "regression"


def compare(
    a: CampaignRef,
    b: Annotated[
        str, typer.Argument(help="The second campaign; with --by, two values of campaign A: VALUE,VALUE.")
    ],
    by: Annotated[
        By | None, typer.Option("--by", help="Compare two delegates, devices or models within campaign A.")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="The form of the output.")] = Form.TABLE,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also list cells that are the same or open.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            min=0.0,
            max=100.0,
            metavar="PERCENT",
            help="Smaller differences are not called faster or slower. [default: 1]",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn,
        typer.Option("--fail-on", help="Exit with 3 where a cell is slower or has no right result any more."),
    ] = FailOn.NOTHING,
    undecided: UndecidedOption = Undecided.FAIL,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Measure both sides of each cell anew, in the same blocks.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Compare two runs: what is slower, faster, or the same.

    A speed above 0 says by how much the second is faster. Cells of one run alone are added or removed; those
    that had a right result and have none any more are broken, the other way round repaired. Two campaigns are
    two sessions of a device, and a verdict between them allows for what its sessions differ by; farm devices
    noise measures that, and without it every ratio is open. --rerun measures both settings of each cell anew,
    in the same blocks, which decides; it lists the cells for which that cannot be done. With --by, the ratios
    of cells that were measured in the same blocks have a verdict, the others and void ones none.
    Exit code: 0; with --fail-on regression, 3 where a cell is slower or has no right result any more, and 5
    where it is open whether a cell is slower.

    Examples:
      farm compare monday tuesday --fail-on regression
      farm compare demo cpu,gpu --by delegate --format md
      farm compare monday tuesday --rerun
    """
    # A rerun schedules for minutes: garbage has to be collected meanwhile.
    with nullcontext() if rerun else collector_paused(), open_farm() as farm:
        runs = [farm.reading.campaign(one) for one in ((a,) if by else (a, b))]
        names = _values(b, by) if by else changes.names_of(*runs)
        again = None
        if rerun:
            again = measured_anew(farm, *_sides(farm.reading.cells, runs, names, by), names)
        sides = _sides(farm.reading.compared, runs, names, by) if again is None else again.sides
        least = None if threshold is None else threshold / 100.0
        # Both sides are of one session then.
        within_run = by is not None or again is not None
        report = compare_runs(*sides, least, names=names, within_run=within_run)
        _print(report, runs, Form.JSON if as_json else form, again, show_all)
        return _exit_code(report, fail_on, undecided)


def _print(
    report: Report, runs: Sequence[CampaignRecord], form: Form, again: Rerun | None, show_all: bool
) -> None:
    if form is Form.JSON:
        campaigns = [
            {"campaign_id": run.campaign_id, "name": run.name, "submitted_at": run.submitted_at}
            for run in runs
        ]
        more = {"campaigns": campaigns} | ({} if again is None else {"rerun": again.as_json()})
        output.emit_json(changes.as_json(report) | more)
        return
    lines = [*changes.summary(report, show_all), *([] if again is None else again.lines())]
    heads = [f"{word} {changes.title(run)}" for word, run in zip(("from", "to"), runs, strict=False)]
    if len(runs) == 1:
        heads = [f"{report.names[0]} and {report.names[1]} in {changes.title(runs[0])}"]
    if form is Form.MD:
        # Two blanks at the end of a line break it in Markdown.
        output.raw("".join(f"{line}  \n" for line in heads) + "\n")
        output.raw(changes.markdown(report, show_all) + "".join(f"{line}  \n" for line in lines))
        return
    for line in heads:
        output.line(line)
    changes.table(report, show_all)
    for line in lines:
        output.line(line)


def _exit_code(report: Report, fail_on: FailOn, undecided: Undecided) -> int:
    if fail_on is FailOn.NOTHING:
        return OK
    if report.has_regression:
        return REGRESSION
    if report.undecided:
        output.note(f"{counted(len(report.undecided), 'cell')}: whether slower is open")
    return UNDECIDED if report.undecided and undecided is Undecided.FAIL else OK


def _values(text: str, by: By) -> Names:
    first, comma, second = text.partition(",")
    if not comma or "," in second:
        raise UsageError(f"--by {by.value} takes two values with a comma between: {by.value.upper()},OTHER")
    return first, second


def _sides(
    read: Callable[[str], Sequence[_Cell]], runs: Sequence[CampaignRecord], chosen: Names, by: By | None
) -> tuple[Mapping[tuple[str, ...], _Cell], Mapping[tuple[str, ...], _Cell]]:
    """Return the cells of both sides, as `read` gives those of a campaign, by what they have in common.

    `chosen`: with `by`, the two values within the only run.
    """
    first, *others = (read(run.campaign_id) for run in runs)
    names = ("model", "delegate", "device", "level")
    if by is None:
        return by_names(first), by_names(others[0])
    known = sorted({getattr(cell, by.value) for cell in first})
    for value in chosen:
        if value not in known:
            raise UsageError(f"no {by.value} of this campaign is {value!r}{suggestion(value, known)}")
    common = [name for name in names if name != by.value]
    sides = [
        {tuple(getattr(c, n) for n in common): c for c in first if getattr(c, by.value) == value}
        for value in chosen
    ]
    if by is By.DELEGATE:
        sides = [_with_partners(sides[0], sides[1]), _with_partners(sides[1], sides[0])]
    return sides[0], sides[1]


def _with_partners(
    side: Mapping[tuple[str, ...], _Cell], other: Mapping[tuple[str, ...], _Cell]
) -> dict[tuple[str, ...], _Cell]:
    """Add to a side, for each cell that the other one has alone, the baseline with which this was measured.

    A GPU's baseline is on the CPU of its host, and so has another device.
    """
    found, partners = dict(side), Partners(side.values())
    for key in other.keys() - side.keys():
        if (baseline := partners.of(other[key])) is not None:
            found[key] = baseline
    # Such a baseline is compared under the other side's key; under its own it would seem to be removed.
    measured_with = {id(cell) for key, cell in found.items() if key not in side}
    return {k: c for k, c in found.items() if k in other or id(c) not in measured_with}
