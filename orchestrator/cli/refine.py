"""`farm refine`: add blocks to the vaguest results of a campaign."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from orchestrator.cli.verb import CampaignRef, Json, open_farm

if TYPE_CHECKING:
    from orchestrator.farm import Farm
    from orchestrator.farm.refining import Refined
    from orchestrator.farm.remote import RemoteFarm
    from orchestrator.manifest.budget import Budget

_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)(\s*%)?")


def refine(
    campaign: CampaignRef,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="SHARE", help="Half width to which every figure is to be known: 3%."),
    ] = None,
    length: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="Begin no cell after that: 30s, 10m, 2h.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Add blocks to the vaguest results of a campaign.

    It must have ended. Without --until, ratios that are open are decided, and figures without a baseline
    become known to the target of their plan. New blocks are pooled with those of the result, which stands
    meanwhile; device, environment and model must be as they were. Ctrl-C keeps every result, on one machine
    also those of the cells that it stops.
    Exit code: as of farm submit.
    """
    from orchestrator.cli import output
    from orchestrator.cli.ages import read_length
    from orchestrator.cli.outcome import end_of_campaign
    from orchestrator.cli.stopping import StoppedError, stoppable

    target = None if until is None else read_share(until, "--until")
    seconds = None if length is None else read_length(length, "--for").total_seconds()
    with open_farm() as farm:
        found = farm.refinements.refine(campaign, target, seconds)
        campaign_id = found.submitted.campaign_id
        for line in said(found):
            output.note(line)
        if not found.cells:
            text = "nothing to refine: " + _all_known(target, found)
            return output.answer({"campaign_id": campaign_id, "refined": []}, text, as_json)
        try:
            with stoppable():
                run_refined(farm, found)
        except StoppedError as stop:
            return stop.exit_code
        wait = farm.wait(output.note)
        ended = wait(lambda: (farm.reading.campaign(campaign_id), farm.reading.cells(campaign_id)))
        return end_of_campaign(*ended, as_json)


def run_refined(farm: Farm | RemoteFarm, found: Refined) -> None:
    """Measure what was queued, with its progress on the terminal. Raises `StoppedError` after Ctrl-C."""
    from orchestrator.cli import output
    from orchestrator.cli.measuring import run_shown, say_how_to_go_on
    from orchestrator.cli.stopping import StoppedError

    campaign_id = found.submitted.campaign_id
    try:
        run_shown(farm, found.submitted)
    except StoppedError:
        if farm.schedules_elsewhere:
            say_how_to_go_on(farm, campaign_id)
        else:
            farm.steering.cancel(campaign_id)
            output.note(f"stopped; every result is kept. Go on with: farm refine {campaign_id}")
        raise


def said(found: Refined) -> list[str]:
    """What is queued and about how long it takes, and each vague cell that is left out."""
    from orchestrator.cli.output import cells

    about = f", about {max(1, round(found.seconds / 60))} min" if found.seconds else ""
    lines = [f"adding blocks to {cells(len(found.cells))}, the vaguest first{about}"] if found.cells else []
    return [*lines, *(f"left out: {name}: {why}" for name, why in found.left_out.items())]


def read_share(text: str, option: str) -> float:
    """Read `3%` or `0.03`. Raises `UsageError`, which names the option."""
    from orchestrator.errors import UsageError
    from orchestrator.policy.refining import require_target

    found = _SHARE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option} {text}: expected a share such as 3% or 0.03")
    share = float(found[1]) / (100.0 if found[2] else 1.0)
    require_target(share)
    return share


def spend(farm: Farm | RemoteFarm, campaign_id: str, budget_s: float | None, began_s: float) -> None:
    """Spend what is left of a campaign's time on its vaguest cells. Raises `StoppedError` after Ctrl-C."""
    left_s = 0.0 if budget_s is None else began_s + budget_s - time.monotonic()
    if left_s > 0.0:
        _refine(farm, campaign_id, "time_budget", None, left_s)


def decide(farm: Farm | RemoteFarm, campaign_id: str, budgets: Sequence[Budget]) -> None:
    """Add blocks, once, to the cells of which it is open whether they keep a limit, for twice the precision.

    The change since an earlier campaign is no such limit: blocks do not tell what sessions differ by. Raises
    `StoppedError` after Ctrl-C.
    """
    from orchestrator.cli import output
    from orchestrator.manifest.budget import RATIO
    from orchestrator.manifest.campaign import LEAST_TARGET
    from orchestrator.results.budgets import judge_budgets, open_cells
    from orchestrator.results.grading import p50_grade

    own = [budget for budget in budgets if budget.figure != RATIO]
    if not own:
        return
    cells = farm.wait(output.note)(lambda: farm.reading.cells(campaign_id))
    undecided = open_cells(judge_budgets(cells, own))
    if undecided:
        halves = [g.half for cell in undecided if (g := p50_grade(cell)) is not None and g.half is not None]
        target = max(LEAST_TARGET, min(halves, default=0.1) / 2.0)
        ids = tuple(cell.cell_id for cell in undecided)
        _refine(farm, campaign_id, "open budgets", target, None, ids)


def _refine(
    farm: Farm | RemoteFarm,
    campaign_id: str,
    what: str,
    target: float | None,
    seconds: float | None,
    cells: tuple[str, ...] = (),
) -> None:
    """Refine a campaign that was measured all the same where that cannot be. Raises `StoppedError`."""
    from orchestrator.cli import output
    from orchestrator.errors import UsageError

    try:
        found = farm.refinements.refine(campaign_id, target, seconds, cells)
    except UsageError as error:
        output.note(f"{what}: {error}")
        return
    for line in said(found):
        output.note(line)
    if found.cells:
        run_refined(farm, found)


def _all_known(target: float | None, found: Refined) -> str:
    if found.left_out:
        return "no block would help the cells that are left out"
    return "every ratio is decided" if target is None else f"every figure is known to {target:.3g}"
