"""`farm pause`: start no more cells of a campaign."""

from __future__ import annotations

from orchestrator.cli.verb import CampaignRef, Json, open_farm


def pause(ref: CampaignRef, as_json: Json = False) -> int:
    """Start no more cells of a campaign; running ones finish."""
    from orchestrator.cli import output

    with open_farm() as farm:
        count = farm.steering.pause(ref)
    return output.answer(
        {"ref": ref, "paused": True, "waiting": count},
        f"{ref} is paused; {output.cells(count)} wait",
        as_json,
    )
