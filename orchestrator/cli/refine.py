"""`farm refine`: add blocks to the vaguest results of a campaign."""

import re
from typing import Annotated, Final

import typer

from orchestrator.cli import output
from orchestrator.cli.outcome import end_of_campaign
from orchestrator.cli.progress import further_blocks
from orchestrator.cli.stopping import stoppable
from orchestrator.cli.verb import CampaignRef, Json, Verbose, open_farm, read_length
from orchestrator.errors import UsageError
from orchestrator.farm.again.refining import Refined
from orchestrator.farm.conducting import read_campaign
from orchestrator.policy.blocks import require_target

_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)(\s*%)?")


def refine(
    campaign: CampaignRef,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="SHARE", help="Add blocks until every figure is known to this half width: 3%."
        ),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Begin no further cell after this time: 30s, 10m, 2h."),
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> int:
    """Add blocks to the vaguest results of a campaign.

    The campaign must have ended, and device, environment and model must be as they were. Without --until,
    blocks are added until each open ratio is decided, and each figure without a baseline is known to the
    target of its plan. A result is shown as it was until its new blocks are pooled with the earlier ones;
    after Ctrl-C every result stays.
    Exit code: 0 all well, 1 some cells failed, gave wrong output or were cancelled.

    Examples:
      farm refine demo
      farm refine demo --until 3% --for 10m
    """
    target = None if until is None else read_share(until, "--until")
    seconds = None if length is None else read_length(length, "--for").total_seconds()
    with open_farm() as farm:
        refined = farm.refinements.refine(campaign, target, seconds)
        campaign_id = refined.submitted.campaign_id
        with stoppable():
            further_blocks(farm, campaign_id).measure(refined)
        if not refined.cells:
            text = "nothing to refine: " + _all_known(target, refined)
            return output.answer({"campaign_id": campaign_id, "refined": []}, text, as_json)
        ended = read_campaign(farm, campaign_id, output.note)
        return end_of_campaign(*ended, as_json, verbose=verbose)


def read_share(text: str, option: str) -> float:
    """Read `3%` or `0.03`. Raises `UsageError`, which names the option."""
    found = _SHARE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{option} {text}: expected a share such as 3% or 0.03")
    share = float(found[1]) / (100.0 if found[2] else 1.0)
    require_target(share)
    return share


def _all_known(target: float | None, refined: Refined) -> str:
    if refined.left_out:
        return "no block would help the cells that are left out"
    return "every ratio is decided" if target is None else f"every figure is known to {target:.3g}"
